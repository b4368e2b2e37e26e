// fpfs stats: what a mount has counted: operations and how long they took, bytes, commits, errors. Once, or a line per
// interval.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "tools/common/interrupt.h"
#include "tools/common/table.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/stats_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kStatsProgram = "fpfs stats";
constexpr unsigned kLinesUnderHeading = 20;
constexpr size_t kUsualColumns = 80;

struct StatsOptions {
  std::string mount_point;
  double interval_seconds = 0;  // 0: once
  unsigned count = 0;           // 0: until interrupted
  bool json = false;
};

using StatsClock = std::chrono::steady_clock;

Status show_interval(const StatsOptions& options, const Json& now, const Json& before, double seconds, unsigned line) {
  if (options.json) {
    Json with_time = now;
    with_time["seconds"] = seconds;
    print_json_line(with_time);
  } else {
    // A file, or what a pipe leads to, has the usual width.
    const size_t columns = isatty(STDOUT_FILENO) != 0 ? columns_of(STDOUT_FILENO) : kUsualColumns;
    if (line % kLinesUnderHeading == 0) fmt::print("{}", interval_heading(columns));
    fmt::print("{}", describe_interval(stats_between(now, before, seconds), columns));
  }
  return flush_output();
}

int watch(const StatsOptions& options, Json before) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  const auto interval =
      std::chrono::duration_cast<StatsClock::duration>(std::chrono::duration<double>(options.interval_seconds));
  StatsClock::time_point last = StatsClock::now();
  for (unsigned line = 0; options.count == 0 || line < options.count; ++line) {
    sleep_until(last + interval, interrupted);
    if (interrupted) break;
    Result<Json> now = read_mount_stats(options.mount_point);
    if (!now.is_ok()) return fail(kStatsProgram, kExitFailure, now.status().message());
    const StatsClock::time_point looked = StatsClock::now();
    const double seconds = std::chrono::duration<double>(looked - last).count();
    if (const Status written = show_interval(options, *now, before, seconds, line); !written.is_ok())
      return fail(kStatsProgram, kExitFailure, written.message());
    last = looked;
    before = std::move(*now);
  }
  // Behind the ^C that the terminal shows begins the shell's prompt.
  if (interrupted && isatty(STDOUT_FILENO) != 0) fmt::print("\n");
  return kExitOk;
}

int run(const StatsOptions& options) {
  Result<Json> stats = read_mount_stats(options.mount_point);
  if (!stats.is_ok()) return fail(kStatsProgram, kExitFailure, stats.status().message());
  if (options.interval_seconds > 0) return watch(options, std::move(*stats));
  if (options.json)
    print_json_line(*stats);
  else
    fmt::print("{}", describe_totals(*stats));
  return kExitOk;
}

}  // namespace

Verb add_stats(CLI::App& fpfs) {
  auto options = std::make_shared<StatsOptions>();
  CLI::App* command =
      fpfs.add_subcommand("stats", "Show what a mounted array has counted: operations, latencies, errors");
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  CLI::Option* interval = command->add_option("--interval", options->interval_seconds,
                                              "A line every so many seconds (default: once, all since the mount)");
  interval->check(seconds_between(0.1, 3600))->type_name("S");
  command->add_option("--count", options->count, "Leave after this many lines (0, the default: at Ctrl-C)")
      ->check(CLI::Range(0U, UINT32_MAX))
      ->type_name("N")
      ->needs(interval);
  command->add_flag("--json", options->json, "Print JSON, one object per line, all counted since the mount");
  command->footer(
      "Mean (in a window of 113 columns) and 99% are of what ended in the interval, from the receipt of a request to\n"
      "its answer. CLOSE is where durable=close commits. ERRORS: requests that failed, but for the caller's own "
      "mistakes, and errors of drives.\n"
      "Exit code: 0, 1 failure, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
