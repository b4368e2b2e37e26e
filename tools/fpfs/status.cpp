// fpfs status: one look at a mounted array.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "tools/common/table.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/status_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kStatusProgram = "fpfs status";
// Rates come from two looks this far apart: long enough to mean something, short enough not to be waited for.
constexpr std::chrono::milliseconds kRateInterval{250};

struct StatusOptions {
  std::string mount_point;
  bool json = false;
};

int run(const StatusOptions& options) {
  using Clock = std::chrono::steady_clock;
  Result<Json> before = read_mount_status(options.mount_point);
  if (!before.is_ok()) return fail(kStatusProgram, kExitFailure, before.status().message());
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_for(kRateInterval);
  Result<Json> now = read_mount_status(options.mount_point);
  if (!now.is_ok()) return fail(kStatusProgram, kExitFailure, now.status().message());
  add_rates(*now, *before, std::chrono::duration<double>(Clock::now() - start).count());
  if (options.json) {
    print_json(*now);
  } else {
    const size_t columns = columns_of(STDOUT_FILENO);
    fmt::print("{}\n{}{}", describe_array(*now, columns), describe_members(*now, columns), describe_errors(*now));
  }
  return kExitOk;
}

}  // namespace

Verb add_status(CLI::App& fpfs) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command = fpfs.add_subcommand("status", "Show a mounted array: members, options in force, buffers, rates");
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "ERRORS counts what failed since the mount, or fpfs clear: a damaged chunk counts each time it is read. fpfs "
      "scrub\n"
      "and fpfs verify say which chunks are damaged. What a window is too narrow for is left out; --json has it all.");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
