// The life of one mount, from opening the array to closing it:
//
//   open the array → mount → serve → (unmounted, or asked by a signal to end) → answer what is under way → commit all
//
// Everything a mount needs is owned here and taken down in the reverse order.
#pragma once

#include <memory>

#include "engine/base/status.h"
#include "engine/io/posix_environment.h"
#include "fs/channel.h"
#include "fs/daemonize.h"
#include "fs/file_system.h"
#include "fs/options.h"

namespace fpfs {

class MountProcess {
 public:
  explicit MountProcess(const MountOptions& options) : options_(options) {}

  // Runs the mount to its end. Blocks SIGTERM, SIGINT and SIGHUP in this thread and waits for them itself. Reports to
  // `launcher` when live. A failure before that means nothing was mounted; one after it says what could not be
  // committed.
  Status run(Launcher& launcher);

 private:
  Status open_store();
  Status start();
  Status serve(Launcher& launcher);
  Status close();
  void wait_for_end();
  void commit_all(ControlRequest::Kind kind);
  void end_by_signal(int signal);

  const MountOptions& options_;
  PosixEnvironment environment_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<FileSystem> file_system_;
  std::unique_ptr<Channel> channel_;
  int signals_ = -1;  // a signalfd
};

}  // namespace fpfs
