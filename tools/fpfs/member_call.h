// FPFS_IOC_MEMBERS, asked.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "fs/interface/ioctl.h"

namespace fpfs::tools {

// Sends `question` to the mount that `mount_point` lies in, and returns when it is answered.
Status call_members(const std::string& mount_point, IoctlMembers& question);

}  // namespace fpfs::tools
