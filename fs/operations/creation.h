// What making any kind of entry has in common: the mode that umask and default ACLs leave, the owner, what its
// directory hands down, and that a failed call leaves nothing behind.
#pragma once

#include "engine/store/store.h"
#include "fs/nodes/file_system.h"
#include "fs/protocol/fuse_library.h"

namespace fpfs {

constexpr const char* kDefaultAcl = "system.posix_acl_default";

// The mode to make an entry with: the umask does not apply where the directory has a default ACL, which the filesystem
// under tree/ evaluates itself.
mode_t creation_mode(FileSystem& file_system, Inode& parent, mode_t mode, mode_t umask);

// Makes a new entry the caller's (the group of a set-group-ID directory stays) and gives it what its directory hands
// down beside ACLs. Brings its attributes up to date. It is the caller's already when it was made with AsCaller.
// True: the directory handed down settings (Store::inherit_settings()).
Result<bool> finish_entry(FileSystem& file_system, const fuse_ctx& caller, Inode& parent, Store::Node& node);

// Answers with an entry that was just made under `name`: sees whose it is and looks it up; takes it away again when
// that fails. `handles` (one) are counted for its node.
void reply_made(fuse_req_t request, Inode& parent, const char* name, bool is_directory, HandleShares::Lease handles);

}  // namespace fpfs
