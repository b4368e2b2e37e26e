// fsck.fastpersistfs: is what is stored what was written? A command line around engine/check.
#include <fmt/format.h>

#include "engine/check/check.h"
#include "engine/io/posix_environment.h"
#include "engine/tier/noted_copy.h"
#include "tools/common/command_line.h"
#include "tools/common/interrupt.h"
#include "tools/common/placement_warnings.h"
#include "tools/common/progress.h"
#include "tools/fsck/report.h"

namespace fpfs::tools {

namespace {

const char* const kProgram = "fsck.fastpersistfs";

struct Options {
  std::string directories;
  bool look_only = false;
  bool preen = false;
  bool yes = false;
  bool verify_data = false;
  bool json = false;
  bool progress = false;
  bool no_progress = false;
  bool buffered_members = false;
  std::string metadata_directory;

  Repair repair() const { return yes ? Repair::kYes : preen ? Repair::kPreen : Repair::kNone; }
  ProgressLine::Show show_progress() const {
    using Show = ProgressLine::Show;
    return progress ? Show::kAlways : no_progress ? Show::kNever : Show::kOnTerminal;
  }
};

void add_options(CLI::App& app, Options& options) {
  add_directories(app, options.directories);
  CLI::Option* look_only = app.add_flag("-n", options.look_only, "Change nothing (the default); works while mounted");
  CLI::Option* preen = app.add_flag(
      "-p,-a", options.preen,
      "Repair what is safe: orphan objects, torn tails and leftovers of crashes; after a clean end, only what "
      "no file can have named");
  CLI::Option* yes = app.add_flag("-y", options.yes,
                                  "Also set damaged files aside under lost+found, and free what a clean end left over");
  look_only->excludes(preen)->excludes(yes);
  preen->excludes(yes);
  app.add_flag("--verify-data", options.verify_data, "Read every chunk on all members and check it");
  app.add_flag("--json", options.json, "Print one JSON object");
  CLI::Option* progress =
      app.add_flag("--progress", options.progress, "Show progress on stderr (default: when stderr is a terminal)");
  app.add_flag("--no-progress", options.no_progress, "Show no progress")->excludes(progress);
  app.add_flag("--buffered-members", options.buffered_members, "Accept members without O_DIRECT (development)");
  app.add_option("--meta-dir", options.metadata_directory, "Where the array's --meta-dir is now")->type_name("DIR");
  app.footer("Exit code: 0 clean, 1 corrected, 4 errors left, 8 the check could not run, 16 usage, 32 cancelled");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Checks a fastpersistfs array, and repairs it when asked to", kProgram);
  add_options(app, options);
  if (std::optional<int> exit_code = parse_command_line(app, kProgram, argc, argv)) return *exit_code;
  Result<std::vector<std::string>> directories = Array::split_directories(options.directories);
  if (!directories.is_ok()) return fail(kProgram, kExitUsage, directories.status().message());
  const Status outside = check_no_mount_points(
      *directories,
      "while it is, fpfs verify and fpfs scrub start look at what is there, and fsck.fastpersistfs -n at its "
      "directories; to repair them, unmount it first");
  if (!outside.is_ok()) return fail(kProgram, kFsckOperational, outside.message());
  PosixEnvironment environment;

  ProgressLine line(options.show_progress());
  CheckOptions check;
  check.repair = options.repair();
  check.verify_data = options.verify_data;
  check.buffered_members = options.buffered_members;
  check.metadata_directory = options.metadata_directory;
  check.cancelled = &catch_interrupts();
  check.copies = noted_copies;
  if (line.is_on())
    check.progress = [&line](const CheckOptions::Progress& now) {
      line.update({now.bytes_done, now.bytes_total, now.files, 0});
    };

  Result<CheckReport> report = check_array(environment, *directories, check);
  line.clear();
  if (!report.is_ok()) {
    const bool cancelled = report.status().code() == StatusCode::kCancelled;
    return fail(kProgram, cancelled ? kFsckCancelled : kFsckOperational, report.status().message());
  }
  if (options.json) {
    print_report_json(*report);
  } else {
    print_report(*report, *directories, options.repair(), options.verify_data);
  }
  return fsck_exit_code(*report);
}

}  // namespace

}  // namespace fpfs::tools

int main(int argc, char** argv) {
  using namespace fpfs::tools;
  return run_program(kProgram, kFsckOperational, [&] { return run(argc, argv); });
}
