// The life of one mount, from opening the array to closing it:
//
//   open the array → its tier → mount → serve → (unmounted, or asked by a signal to end) → answer what is under way → commit all
//
// Everything a mount needs is owned here and taken down in the reverse order. With a drive that hangs that order cannot
// be kept: threads and transfers that it holds cannot be waited for. Then a mount that does not come up says so, and
// one that ends commits what the other drives can take and leaves the rest behind, with a line in the log and exit
// status 1.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/file_descriptor.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/io/posix_environment.h"
#include "engine/tier/array_tier.h"
#include "fs/interface/end_report.h"
#include "fs/metrics/metrics_server.h"
#include "fs/nodes/file_system.h"
#include "fs/process/daemonize.h"
#include "fs/process/options.h"
#include "fs/transport/channel.h"

namespace fpfs {

class MountProcess {
 public:
  explicit MountProcess(const MountOptions& options)
      : options_(options),
        environment_(PosixEnvironment::threads_default(), std::make_unique<PosixStorage>(), options.workers) {}

  // Runs the mount to its end. Blocks SIGTERM, SIGINT (they end it) and SIGHUP (it opens the log file anew) in this
  // thread and waits for them itself. Reports to `launcher` when live. A failure before that means nothing was mounted;
  // one after it says what could not be committed.
  Status run(Launcher& launcher);

 private:
  Status open_store();
  Status open_tier();
  Status start();
  Status start_metrics();
  void end_metrics();
  Status serve(Launcher& launcher);
  Status close();
  std::optional<MountEntry> own_entry() const;
  void listen_for_waiters(const std::optional<MountEntry>& mount);
  void wait_for_end();
  void commit_finished();
  void end_by_signal(int signal);
  void begin_to_end();
  // On the watch's thread, while a drive hangs.
  void on_stall(StallDomain domain);
  std::string hanging_drive();
  [[noreturn]] void leave(const std::string& why);
  void end_tier(bool was_live);
  [[noreturn]] void leave_tier_behind(const Status& status);

  enum class Stage : uint8_t { kOpening, kServing, kEnding };

  MountOptions options_;
  PosixEnvironment environment_;
  Launcher* launcher_ = nullptr;  // while kOpening
  std::atomic<Stage> stage_{Stage::kOpening};
  std::atomic<bool> committed_{false};       // while ending: what could be committed is
  std::atomic<uint64_t> stage_began_ns_{0};  // of kEnding, then of committed_
  std::unique_ptr<Store> store_;
  PosixStorage outside_;  // for a store in a directory: its filesystem is not one of the drives that are watched
  std::unique_ptr<ArrayTier> tier_;
  std::string left_over_;        // of a good end: what is to be copied by the next mount, and failed saves; in words
  bool tier_is_caught_ = false;  // something in it does not end
  std::unique_ptr<FileSystem> file_system_;
  std::unique_ptr<MetricsServer> metrics_;  // null: not wanted
  Mutex channel_mutex_;                     // for on_stall() and the taking down of the channel and the store
  std::unique_ptr<Channel> channel_;
  FileDescriptor signals_;  // a signalfd
  EndReport end_report_;
  StallWatch::Registration stall_listener_;
};

}  // namespace fpfs
