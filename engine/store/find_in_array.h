// Reaching files of an array that is not mounted, by path.
#pragma once

#include <string>
#include <vector>

#include "engine/store/store.h"

namespace fpfs {

// Looks up "/run1/step100.pt" (with or without the first slash) from the array's root. Symbolic links are not followed:
// where they point to is a matter of the mount. ".." is refused.
Result<Store::Node> find_in_array(Store& store, const std::string& path);

}  // namespace fpfs
