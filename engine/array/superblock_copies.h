// The file `superblocks` of every directory of an array: copies of the superblocks of all its directories, so that one
// that is lost or damaged can be made again (fsck -y). The superblocks one behind the other: members by their index,
// then the directory that holds the names only. Each says and proves by itself whose it is.
#pragma once

#include <optional>
#include <vector>

#include "engine/base/status.h"
#include "engine/index/superblock.h"
#include "engine/io/storage.h"

namespace fpfs {

constexpr size_t kSuperblocksSizeMax = size_t{kSuperblockSize} * (kMemberCountMax + 1);

// Writes the superblock of one directory. Under another name first: a torn superblock would look like a damaged array.
// Durable on return.
Status write_superblock(Storage& storage, Handle directory, const Superblock& superblock);

// Makes the directory's copies these. Changes nothing when they are already. Durable on return.
Status write_superblock_copies(Storage& storage, Handle directory, const std::vector<Superblock>& superblocks);

// The copies in a directory that are whole; empty when there are none.
std::vector<Superblock> read_superblock_copies(Storage& storage, Handle directory);

// Which of `copies` is the superblock of this directory, whose own one is lost: the one that its mount record names, or
// where the array has this one directory, the only one there is. None when the directory does not say which it is, does
// not have that one's parts, or is being formatted.
std::optional<Superblock> identify_by_copies(Storage& storage, Handle directory, const std::vector<Superblock>& copies);

}  // namespace fpfs
