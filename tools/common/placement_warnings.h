// Where members lie that work, and will not do what members are for.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace fpfs::tools {

// What the array will suffer from, though it works: said, not refused. About the directories of its members, from the
// one at `first` on. A sentence for each.
std::vector<std::string> placement_warnings(const std::vector<std::string>& directories, size_t first = 0);

// kInvalidArgument: one of these directories is, or would be, within a mounted array.
Status check_outside_of_mounts(const std::vector<std::string>& directories);

// kInvalidArgument: what was given as the directories of an array is where it is mounted. `advice`: what to do with it
// there.
Status check_no_mount_points(const std::vector<std::string>& directories, const std::string& advice);

}  // namespace fpfs::tools
