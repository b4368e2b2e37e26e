// Everything that the command line of fastpersistfs says, parsed and checked. Each option works as `-o name=value`
// (comma separated, -o repeated) and as `--name=value`; fstab's generic options are passed on or ignored as mount(8)
// does.
#pragma once

#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/status.h"
#include "engine/file/options.h"
#include "engine/tier/array_tier.h"
#include "fs/metrics/metrics_address.h"

namespace fpfs {

struct MountOptions {
  std::string source;                    // DIRS as given: what `mount` and `df` show
  std::vector<std::string> directories;  // split; absolute after make_paths_absolute()
  std::string mount_point;

  bool foreground = false;
  bool init = false;  // format first when every directory is absent or empty
  bool allow_other = false;
  bool nonempty = false;     // mount over a directory that holds something
  bool sync_writes = false;  // the mount option `sync`: every write as if the file were opened with O_SYNC
  // Reading moves access times by the rules of the filesystem that holds the names; `noatime` and `nodiratime` stop it.
  bool access_times = true;
  bool directory_access_times = true;
  // Workers that read requests, 1 .. 256; 0: max(4, 2 * cores). Each request is handled without waiting for a drive, so
  // more threads help only many-client loads.
  unsigned threads = 0;
  // Threads that hash, verify, encode and decode, 1 .. 256; 0: one for each core, at least 8.
  unsigned workers = 0;
  std::string profile;  // the file of `profile=` (profile.h); empty: none
  // killed_saver=keep_old: what a process that a signal killed was replacing keeps its content of before.
  bool killed_keeps_old = true;
  // Whether requests come through io_uring. kAuto: where the kernel offers it; kOn: the same, and the log says when it
  // does not. Fixed at mount: the kernel sends all requests one way.
  enum class IoUring : uint8_t { kOff, kOn, kAuto } io_uring = IoUring::kAuto;
  StoreOptions store;
  TierOptions tier;
  unsigned tier_timeout_ms = 60'000;  // CopyWaits; 0: for ever
  MetricsAddress metrics;             // not set: no metrics are served
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;                     // empty: stderr, in the background the system's log
  std::vector<std::string> kernel_options;  // passed to mount(2): ro, nosuid, noatime, ...

  enum class Action : uint8_t { kMount, kHelp, kVersion } action = Action::kMount;
};

// Parses the arguments after the program's name. kInvalidArgument, with one line that names the option and what is
// allowed. What a profile says (profile=FILE, which is read here) counts where no argument says otherwise.
Result<MountOptions> parse_mount_options(const std::vector<std::string>& arguments);

// Turns the member paths, the mount point, the log file and the profile into absolute paths, as the daemon leaves the
// caller's working directory. The mount point must exist (links in it are resolved); members need not yet.
Status make_paths_absolute(MountOptions& options);

// What --help prints.
std::string mount_usage();

}  // namespace fpfs
