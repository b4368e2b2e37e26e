#include "tools/fpfs/moving_view.h"

#include <chrono>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/common/table.h"
#include "tools/fpfs/mounted.h"

namespace fpfs::tools {

namespace {

constexpr std::chrono::milliseconds kMovingLook{200};
// Before that a rate of 0 means that nothing was committed yet.
constexpr double kRateSecondsMin = 1;

// "200 MiB/s", or nothing yet: of what was moved, which is what --limit holds back; what is in its place is passed by at any rate.
std::string moved_rate_text(const Json& rebalance) {
  const double rate = real_at(rebalance, "bytes_per_second", 0);
  if (rate <= 0 && real_at(rebalance, "seconds", 0) < kRateSecondsMin) return "";
  return format_rate(rate);
}

}  // namespace

std::string describe_moving_progress(const Json& rebalance) {
  const uint64_t done = number_at(rebalance, "bytes_done"), total = number_at(rebalance, "bytes_total");
  std::string text =
      total == 0 ? format_size(done)
                 : fmt::format("{} of {} ({})", format_size(done), format_size(total), format_percent(done, total));
  text += fmt::format(", {} moved", format_size(number_at(rebalance, "bytes_moved")));
  if (const std::string rate = moved_rate_text(rebalance); !rate.empty()) text += ", " + rate;
  if (const double eta = real_at(rebalance, "eta_seconds", -1); eta >= 0)
    text += fmt::format(", {} left", format_duration(eta));
  return text;
}

std::string describe_under_way(const Json& rebalance, const std::vector<std::string>& leaving,
                               const std::string& mount_point) {
  const std::string progress = describe_moving_progress(rebalance);
  const bool is_removal = text_at(rebalance, "kind") == "removal";
  if (!is_removal || leaving.empty())
    return fmt::format(
        "{0}: a {1} is under way, {2}; fpfs rebalance --wait {3} waits for it, --status says how far it is, --cancel "
        "ends it",
        mount_point, is_removal ? "removal of a member" : "rebalance", progress, shell_word(mount_point));
  std::string keeps;
  for (const std::string& directory : leaving)
    keeps += fmt::format("{}fpfs member remove --cancel {} {}", keeps.empty() ? "" : ", ", shell_word(mount_point),
                         shell_word(directory));
  return fmt::format(
      "{0}: a removal of {1} is under way, {2}; fpfs rebalance --wait {6} waits for it, --status says how far it is, "
      "--cancel ends the moving only ({3} leaving still); to keep the {4}: {5}",
      mount_point, fmt::join(leaving, ", "), progress, one_or_many(leaving.size(), "it is", "they are"),
      one_or_many(leaving.size(), "member", "members"), keeps, shell_word(mount_point));
}

std::vector<std::string> leaving_members(const Json& status) {
  std::vector<std::string> directories;
  for (const Json& member : array_at(status, "members"))
    if (flag_at(member, "leaving")) directories.push_back(text_at(member, "path"));
  return directories;
}

std::string describe_leaving(const std::string& directory, const std::string& mount_point) {
  return fmt::format(
      "{2} is leaving: fpfs member remove {0} {1} goes on with it, and fpfs member remove --cancel {0} {1} keeps it",
      shell_word(mount_point), shell_word(directory), directory);
}

std::string describe_moving(const Json& rebalance) {
  const std::string state = text_at(rebalance, "state", "-");
  if (state == "none") return "Nothing was moved since the array was mounted.\n";
  const std::string note = text_at(rebalance, "note");
  const uint64_t done = number_at(rebalance, "bytes_done"), total = number_at(rebalance, "bytes_total");
  Facts facts;
  facts.add("What", text_at(rebalance, "kind", "-"));
  facts.add("State", note.empty() ? state : fmt::format("{}: {}", state, note));
  const uint64_t limit = number_at(rebalance, "limit");
  facts.add("Limit", limit == 0 ? std::string("none") : format_rate(static_cast<double>(limit)));
  if (const std::string rate = moved_rate_text(rebalance); !rate.empty()) facts.add("Rate", rate + " moved");
  facts.add("Looked at", fmt::format("{} of {} in {}", format_size(done), format_size(total),
                                     format_count(number_at(rebalance, "files_done"), "file")));
  facts.add("Moved", fmt::format("{}, {}", format_size(number_at(rebalance, "bytes_moved")),
                                 format_count(number_at(rebalance, "chunks_moved"), "chunk")));
  facts.add("Left", format_count(number_at(rebalance, "chunks_left"), "chunk"));
  return facts.text() + describe_left(rebalance);
}

std::string why_it_ended(const Json& rebalance) {
  const std::string note = text_at(rebalance, "note");
  return note.empty() ? "it was ended before its end" : "it has stopped by itself, because of: " + one_line(note);
}

std::string describe_left(const Json& rebalance) {
  std::string text;
  for (const Json& left : array_at(rebalance, "left")) {
    std::vector<uint64_t> chunks;
    for (const Json& chunk : array_at(left, "first_chunks"))
      if (chunk.is_number_unsigned()) chunks.push_back(chunk.get<uint64_t>());
    const uint64_t count = number_at(left, "chunks");
    const std::string which =
        count == 0 ? "" : fmt::format("{} ({}): ", format_count(count, "chunk"), format_ranges(chunks));
    text += one_line(fmt::format("{}: {}{}", text_at(left, "path", "-"), which, text_at(left, "why"))) + "\n";
  }
  const uint64_t omitted = number_at(rebalance, "left_omitted");
  if (omitted > 0 && flag_at(rebalance, "paths_hidden"))
    text += "Only root and who mounted the array are shown of which files they are, and why they are left.\n";
  else if (omitted > 0 && !text.empty())
    text += fmt::format("... and {}\n", format_count(omitted, "more chunk"));
  return text;
}

Result<Json> follow_moving(const std::string& mount_point) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  ProgressLine progress;
  for (;;) {
    FPFS_ASSIGN_OR_RETURN(Json rebalance, read_rebalance_status(mount_point));
    if (text_at(rebalance, "state") != "running") return rebalance;
    if (interrupted) return Status::error(StatusCode::kCancelled, "interrupted");
    progress.show(describe_moving_progress(rebalance));
    std::this_thread::sleep_for(kMovingLook);
  }
}

}  // namespace fpfs::tools
