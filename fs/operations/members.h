// FPFS_IOC_MEMBERS (fs/interface/ioctl.h). Consumes the request.
#pragma once

#include "fs/interface/ioctl.h"
#include "fs/nodes/file_system.h"
#include "fs/protocol/fuse_library.h"

namespace fpfs::operations {

void members_of_mount(fuse_req_t request, fuse_ino_t node, const IoctlMembers& question);

}  // namespace fpfs::operations
