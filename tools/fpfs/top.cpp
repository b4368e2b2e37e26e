// fpfs top: the status of a mounted array, live, per member and per open file.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "tools/common/interrupt.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/status_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kTopProgram = "fpfs top";

struct TopOptions {
  std::string mount_point;
  double interval_seconds = 1;
  unsigned count = 0;  // 0: until interrupted
};

using Clock = std::chrono::steady_clock;

// In short naps, so that Ctrl-C ends it at once.
void sleep_until(Clock::time_point wake, const std::atomic<bool>& interrupted) {
  constexpr std::chrono::milliseconds kNap{50};
  while (!interrupted && Clock::now() < wake)
    std::this_thread::sleep_for(std::min<Clock::duration>(kNap, wake - Clock::now()));
}

int run(const TopOptions& options) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  const bool redraw = isatty(STDOUT_FILENO) != 0;
  Result<Json> before = read_mount_status(options.mount_point);
  if (!before.is_ok()) return fail(kTopProgram, kExitFailure, before.status().message());
  Clock::time_point last = Clock::now();
  for (unsigned shown = 0; options.count == 0 || shown < options.count; ++shown) {
    sleep_until(
        last + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval_seconds)),
        interrupted);
    if (interrupted) break;
    Result<Json> now = read_mount_status(options.mount_point);
    if (!now.is_ok()) return fail(kTopProgram, kExitFailure, now.status().message());
    const double seconds = std::chrono::duration<double>(Clock::now() - last).count();
    last = Clock::now();
    add_rates(*now, *before, seconds);
    fmt::print("{}{}\n{}\n{}{}", redraw ? "\033[H\033[2J" : "", describe_array(*now), describe_members(*now),
               describe_open_files(*now, *before, seconds), redraw ? "" : "\n");
    std::fflush(stdout);
    before = std::move(now);
  }
  return kExitOk;
}

}  // namespace

Verb add_top(CLI::App& fpfs) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = fpfs.add_subcommand("top", "Show a mounted array live, per member and per open file");
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  command->add_option("--interval", options->interval_seconds, "Seconds between looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--count", options->count, "Leave after this many looks (default: at Ctrl-C)")->type_name("N");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
