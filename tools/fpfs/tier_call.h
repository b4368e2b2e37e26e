// Calls of FPFS_IOC_TIER: begun, and asked about until they are over.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/file_descriptor.h"
#include "engine/base/status.h"
#include "fs/interface/ioctl.h"

namespace fpfs::tools {

// The caller may not ask for that, of this path.
Status refuse_tier(const std::string& named);
// Begins a call, whose `question` is what ask_tier() needs.
Status begin_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named);
// Nothing: it is not over.
std::optional<Status> ask_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named);

// Both. `question`: with its command and what that needs. `named`: for messages. Returns when it is over, with kUnreachable
// after `timeout` seconds (0: never), with kCancelled when the user has interrupted it; then it may go on. `meanwhile`
// is called between the questions whether it is over.
Status call_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named, unsigned timeout_s,
                 const std::function<void()>& meanwhile = {});

}  // namespace fpfs::tools
