// The 256 directories of objects of each member: are they there, and are they the array's?
#pragma once

#include <vector>

#include "engine/array/array.h"
#include "engine/check/check.h"

namespace fpfs {

// Fails where something is mounted over one of them, or a link was put in its place.
Status check_not_hidden(const Array& array);

// "missing-directory", one for each member that lacks some. `make`: they are made anew, empty; durable on return.
Result<std::vector<CheckError>> find_missing_directories(Storage& storage, const Array& array, bool make);

}  // namespace fpfs
