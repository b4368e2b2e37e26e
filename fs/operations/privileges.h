// Set-user-ID, set-group-ID and file capabilities do not survive a change of content by others. The kernel leaves this
// to the filesystem (FUSE_HANDLE_KILLPRIV_V2): it says for each write, truncation and open with O_TRUNC whether the
// caller may keep the bits.
#pragma once

#include "engine/base/status.h"
#include "fs/nodes/file_system.h"

namespace fpfs {

// Before content changes. Cheap once the file was seen without bits and capabilities. `kill_set_id`: the caller may not
// keep the set-ID bits.
Status drop_privileges(FileSystem& file_system, fuse_req_t request, Inode& inode, bool kill_set_id);
// Where the kernel does not say it: whether the caller may keep them.
bool may_keep_set_id(fuse_req_t request);
// Root, or the user who runs the daemon.
bool owns_mount(fuse_req_t request);
// After a user has set an ACL: the set-group-ID bit stays only for root and the group's members.
Status drop_set_group_id(FileSystem& file_system, fuse_req_t request, Inode& inode);

}  // namespace fpfs
