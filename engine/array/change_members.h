// What every change of the members of an array has in common. Internal to engine/array.
#pragma once

#include <vector>

#include "engine/index/superblock.h"

namespace fpfs {

// The superblocks of all directories, where `member_count`, `stripe_order` and `removed` are as they are to be: sets what
// follows from these, and counts the change.
void change_members(std::vector<Superblock>& superblocks);

}  // namespace fpfs
