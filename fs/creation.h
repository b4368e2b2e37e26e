// What making any kind of entry has in common: the mode that umask and default ACLs leave, and the owner. Entries are
// made by the daemon, which for a mount with several users is root, and given to the caller afterwards.
#pragma once

#include "engine/store/store.h"
#include "fs/file_system.h"
#include "fs/fuse_library.h"

namespace fpfs {

constexpr const char* kDefaultAcl = "system.posix_acl_default";

// The mode to make an entry with: the umask does not apply where the directory has a default ACL, which the filesystem
// under tree/ evaluates itself.
mode_t creation_mode(FileSystem& file_system, Inode& parent, mode_t mode, mode_t umask);

// Gives a new entry to the caller (the group of a set-group-ID directory stays) and brings its attributes up to date.
Status give_to_caller(FileSystem& file_system, const fuse_ctx& caller, const Inode& parent, Store::Node& node);

// Answers with an entry that was just made under `name`: gives it to the caller and looks it up; takes it away again
// when that fails.
void reply_made(fuse_req_t request, const Inode& parent, const char* name, bool is_directory);

}  // namespace fpfs
