// What fsck says of damaged chunks whose files were copied to a store outside of the array: that they can be healed.
#pragma once

#include <vector>

#include "engine/array/array.h"
#include "engine/check/check.h"

namespace fpfs {

// Sets CheckError::healing of what is said about the content of files: "healable" where `is_copied` says so, else
// "lost". Of a file whose index cannot be read nothing is said.
void note_copies(Storage& storage, const Array& array, const CheckOptions::IsCopied& is_copied,
                 std::vector<CheckError>& errors);

}  // namespace fpfs
