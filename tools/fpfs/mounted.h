// How fpfs reaches the daemon behind a mount: virtual attributes (JSON) and the ioctls of fs/interface/ioctl.h.
#pragma once

#include <fcntl.h>

#include <string>

#include "engine/base/file_descriptor.h"
#include "engine/base/status.h"
#include "tools/common/json_output.h"

namespace fpfs::tools {

// Opens for looking at: read-only, never waiting for the other end of a fifo.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
Result<FileDescriptor> open_path(const std::string& path);

// For verbs that look at one file: kInvalidArgument for anything but a regular one, on a mount or not.
Status check_regular_file(const std::string& path);

// Absolute, without symbolic links.
Result<std::string> resolve(const std::string& path);

// The JSON (keys: fs/report/scrub_report.h) of the scrub of the mount that `path` lies in.
Result<Json> read_scrub_status(const std::string& path);

// The same of its rebalance (keys: fs/report/rebalance_report.h).
Result<Json> read_rebalance_status(const std::string& path);

// The same of its store outside this machine (keys: fs/report/tier_report.h).
Result<Json> read_tier_status(const std::string& path);

// Whether `path` lies in a mounted fastpersistfs: kUnsupported when not. What finds nothing else to ask about must not
// look as if all were well.
Status check_mounted(const std::string& path);

// The root of the mount that `path` lies in.
Result<std::string> mount_root_of(const std::string& path);

// The JSON (keys: fs/report/status_report.h) behind user.fastpersistfs.status of the mount that `path` lies in. Added
// to it: "state" ("ok"; "failing": a member has errors; "degraded": a member is missing; "failed": the array turned
// read-only by itself).
Result<Json> read_mount_status(const std::string& path);
// The JSON (keys: fs/report/stats_report.h) of what the mount that `path` lies in has counted.
Result<Json> read_mount_stats(const std::string& path);
// The JSON behind user.fastpersistfs.stat of a regular file.
Result<Json> read_file_stat(const std::string& path);

// Whether the caller may look at what is in a directory. Ok also when there is none any more.
Status check_listable(const std::string& directory);

// Why a file of a mount gives EIO when it is opened: kCorruption: its index is damaged; kUnreachable: it need not be;
// kBusy: a save of it has failed, and somebody has it open.
Status describe_unreadable(const std::string& path);
// What a failed call on a mount means, in words: no fastpersistfs there, its daemon gone, or plainly the errno.
Status explain_mount_error(int errno_value, const std::string& path);

}  // namespace fpfs::tools
