// The JSON behind the virtual attribute user.fastpersistfs.stats of the root (`fpfs stats`): what was counted since the
// mount. Byte counts are integers, times seconds. Keys are an interface: they are added to, not changed. It names no
// file.
//
// {
//   "uptime_seconds",
//   "bytes_read", "bytes_written" (of applications, through the daemon),
//   "commits", "buffer_waits", "under_way" (requests that are not answered yet),
//   "errors": {"read", "write", "sync", "checksum"} (of all members), "metadata_errors",
//   "latency_bounds": [seconds...] (bucket i of a histogram has what took at most so long, the last one all longer),
//   "operations": {NAME: {"count", "seconds" (of all together), "failures": {"io", "space", "resources", "caller"},
//                  "buckets": [counts...] (as far as the last that is not 0)}}, those that there were any of
// }
#pragma once

#include <string>

#include "fs/nodes/file_system.h"

namespace fpfs {

std::string stats_report(FileSystem& file_system);

}  // namespace fpfs
