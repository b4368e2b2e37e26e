// FPFS_IOC_MEMBERS, asked.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "fs/interface/ioctl.h"

namespace fpfs::tools {

// Sends `question` to the mount that `mount_point` lies in, and returns when it is answered. A refusal because something
// is moved already says what, how far that is, and how to wait for it.
Status call_members(const std::string& mount_point, IoctlMembers& question);

}  // namespace fpfs::tools
