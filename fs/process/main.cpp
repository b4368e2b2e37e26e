// fastpersistfs: mounts an array. See docs and `fastpersistfs --help`.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "fs/process/daemonize.h"
#include "fs/process/heap.h"
#include "fs/process/mount_process.h"
#include "fs/process/options.h"

namespace fpfs {
namespace {

int fail(const Status& status) {
  print_error(status.message());
  return 1;
}

// In the foreground stderr is somebody's: a terminal's, or a supervisor's. In the background it is the caller's until
// the mount is live.
LogOptions log_options(const MountOptions& options) {
  LogOptions log;
  log.level = options.log_level;
  log.file = options.log_file;
  log.system_log = !options.foreground;
  log.prefix = options.mount_point;
  log.to_journal = stderr_is_journal();
  return log;
}

int mount_main(const std::vector<std::string>& arguments) {
  Result<MountOptions> options = parse_mount_options(arguments);
  if (!options.is_ok()) return fail(options.status());
  if (options->action == MountOptions::Action::kHelp) {
    std::fputs(mount_usage().c_str(), stdout);
    return 0;
  }
  if (options->action == MountOptions::Action::kVersion) {
    std::puts("fastpersistfs " FPFS_VERSION);
    return 0;
  }
  Status status = make_paths_absolute(*options);
  if (!status.is_ok()) return fail(status);

  Heap::configure();
  Launcher launcher = Launcher::launch(options->foreground);
  ::umask(0);  // modes arrive complete; see fs/operations/creation.h
  if (!options->foreground && ::chdir("/") != 0) return 1;
  status = configure_log(log_options(*options));
  if (status.is_ok() && !(options->foreground && options->log_file.empty()))
    launcher.set_log(!options->log_file.empty());
  if (status.is_ok()) status = MountProcess(*options).run(launcher);
  if (status.is_ok()) return 0;
  launcher.report_failure(status.message());
  return 1;
}

}  // namespace
}  // namespace fpfs

int main(int argument_count, char** arguments) {
  return fpfs::mount_main(std::vector<std::string>(arguments + 1, arguments + argument_count));
}
