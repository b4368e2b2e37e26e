// fpfs top: the status of a mounted array, live, per member and per open file.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include <fmt/format.h>

#include "tools/common/interrupt.h"
#include "tools/common/table.h"
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
  bool json = false;
};

using Clock = std::chrono::steady_clock;

// Of the terminal that shows stdout; no columns where there is none, or where it does not say.
winsize window_of_output() {
  winsize window{};
  if (isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row < 2) return {};
  return window;
}

// As much of the text as the window shows; the last line is the cursor's.
std::string fit_window(const std::string& text, const winsize& window) {
  if (window.ws_col == 0) return text;
  std::string shown;
  unsigned rows = 1;
  for (size_t begin = 0; begin < text.size(); ++rows) {
    if (rows == window.ws_row) return shown + "...";
    const size_t end = std::min(text.find('\n', begin), text.size());
    shown += first_columns(text.substr(begin, end - begin), window.ws_col) + "\n";
    begin = end + 1;
  }
  return shown;
}

void print_look(const Json& now, const Json& before, double seconds) {
  const winsize window = window_of_output();
  const size_t columns = columns_of(STDOUT_FILENO);
  const std::string text =
      fmt::format("{}\n{}\n{}", describe_array(now, columns, ArrayFacts::kChanging), describe_members(now, columns),
                  describe_open_files(now, before, seconds, columns));
  if (isatty(STDOUT_FILENO) != 0)
    fmt::print("\033[H\033[2J{}", fit_window(text, window));
  else
    fmt::print("{}\n", text);
}

int run(const TopOptions& options) {
  const std::atomic<bool>& interrupted = catch_interrupts();
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
    if (options.json)
      print_json_line(*now);
    else
      print_look(*now, *before, seconds);
    if (const Status written = flush_output(); !written.is_ok())
      return fail(kTopProgram, kExitFailure, written.message());
    before = std::move(now);
  }
  // Behind the last look, and the ^C that the terminal shows there, begins the shell's prompt.
  if (!options.json && isatty(STDOUT_FILENO) != 0) fmt::print("\n");
  return kExitOk;
}

}  // namespace

Verb add_top(CLI::App& fpfs) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = fpfs.add_subcommand("top", "Show a mounted array live, per member and per open file");
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  command->add_option("--interval", options->interval_seconds, "Seconds between looks")
      ->check(seconds_between(0.1, 3600))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--count", options->count, "Leave after this many looks (0, the default: at Ctrl-C)")
      ->check(CLI::Range(0U, UINT32_MAX))
      ->type_name("N");
  command->add_flag("--json", options->json, "Print a JSON object on one line for each look, as status --json has it");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
