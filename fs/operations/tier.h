// FPFS_IOC_TIER (fs/interface/ioctl.h). Each consumes the request.
#pragma once

#include "fs/interface/ioctl.h"
#include "fs/nodes/file_system.h"
#include "fs/protocol/fuse_library.h"

namespace fpfs::operations {

void tier_of_mount(fuse_req_t request, fuse_ino_t node, const IoctlTier& question);
void tier_of_file(fuse_req_t request, const OpenFile& open, const IoctlTier& question);

}  // namespace fpfs::operations
