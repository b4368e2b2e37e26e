#include "tools/fpfs/tier_view.h"

#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

// A store that is set is begun with anew.
constexpr const char* kSince = "since the mount or the last tier set";

std::string clock_text(uint64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  struct tm local {};
  if (::localtime_r(&time, &local) == nullptr) return fmt::format("{}", seconds);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string tier_state_text(const Json& tier) {
  const std::string state = text_at(tier, "state", "-");
  // Of nothing else the copies would go faster.
  if (state == "copying" && flag_at(tier, "paced")) return "copying (slowly: something is being saved)";
  // Of a mount that has just begun: it is being asked.
  const bool has_answered = number_at(tier, "errors") > 0 || !text_at(tier, "last_error", "").empty();
  if (state == "away")
    return has_answered ? "away: it cannot be reached, refuses, or is full; copies wait" : "being reached";
  if (state == "scanning") return "looking for what is to be copied";
  if (state == "reading") return "read-only: nothing is copied, and what members do not give is read from there";
  if (state == "restoring") return "making the tree of another array's copies";
  if (state == "current")
    return number_at(tier, "files_refused") > 0 ? "everything is copied but what cannot be"
                                                : "everything that is committed is copied";
  return state;
}

std::string files_text(uint64_t files, uint64_t bytes) {
  return fmt::format("{} ({})", format_count(files, "file"), format_size(bytes));
}

std::string rate_text(const Json& tier) {
  std::string text = format_rate(real_at(tier, "bytes_per_second", 0));
  // What a store takes that hardly takes anything says nothing of the rest.
  constexpr double kEtaSecondsMax = 100 * 3600;
  if (const double eta = real_at(tier, "eta_seconds", -1); eta > 0 && eta < kEtaSecondsMax)
    text += fmt::format(", {} left", format_duration(eta));
  return text;
}

}  // namespace

std::string describe_tier_lag(const Json& tier) {
  const uint64_t files = number_at(tier, "files_waiting");
  if (tier.contains("files_waiting") && tier["files_waiting"].is_null())
    return fmt::format("what waits is not known, and nothing was copied for {}",
                       format_duration(static_cast<double>(number_at(tier, "lag_seconds"))));
  if (files == 0) return "nothing waits";
  return fmt::format("{} {}, the oldest for {}", files_text(files, number_at(tier, "bytes_waiting")),
                     one_or_many(files, "waits", "wait"),
                     format_duration(static_cast<double>(number_at(tier, "lag_seconds"))));
}

std::string describe_tier_progress(const Json& tier) {
  const std::string state = text_at(tier, "state", "-");
  if (state == "away" || state == "reading" || state == "restoring") return tier_state_text(tier);
  const std::string waiting = files_text(number_at(tier, "files_waiting"), number_at(tier, "bytes_waiting"));
  const bool has_rate = real_at(tier, "bytes_per_second", 0) > 0;
  return fmt::format("{} to copy{}", waiting, has_rate ? ", " + rate_text(tier) : "");
}

std::string describe_tier(const Json& tier) {
  const std::string state = text_at(tier, "state", "-");
  const uint64_t errors = number_at(tier, "errors");
  if (state == "none" && errors == 0) return "This array copies nowhere (fpfs tier set MOUNTPOINT URL).\n";
  Facts facts;
  facts.add("Store", text_at(tier, "store", "-"));
  facts.add("State", tier_state_text(tier));
  facts.add("Behind", describe_tier_lag(tier));
  facts.add("Rate", rate_text(tier));
  facts.add("Copied", files_text(number_at(tier, "files_copied"), number_at(tier, "bytes_copied")) + " " + kSince);
  if (const Json& restored = object_at(tier, "restored"); number_at(restored, "files") > 0)
    facts.add("Restored", files_text(number_at(restored, "files"), number_at(restored, "bytes")) +
                              ", of which all but small ones come when they are read");
  if (const uint64_t left = number_at(tier, "files_left"); left > 0 || text_at(tier, "keep", "all") != "all")
    facts.add("Left the drives",
              fmt::format("{} {}, to be in the store only (tier_keep={})",
                          files_text(left, number_at(tier, "bytes_left")), kSince, text_at(tier, "keep", "all")));
  if (const uint64_t pinned = number_at(tier, "files_pinned"); pinned > 0)
    facts.add("Pinned", files_text(pinned, number_at(tier, "bytes_pinned")) + ", which do not leave: fpfs tier pins");
  const uint64_t shared = number_at(tier, "files_shared"), conflicts = number_at(tier, "conflicts");
  if (shared > 0 || conflicts > 0)
    facts.add("Of others", fmt::format("{} shown {}, {}", format_count(shared, "file"), kSince,
                                       format_count(conflicts, "conflict")));
  if (const uint64_t refused = number_at(tier, "files_refused"); refused > 0)
    facts.add("Cannot be", fmt::format("{}; fpfs sync --tier MOUNTPOINT names them", format_count(refused, "path")));
  if (const uint64_t failed = number_at(tier, "files_failed"); failed > 0)
    facts.add("Failing", format_count(failed, "file"));
  facts.add("Errors", fmt::format("{}", errors));
  if (const std::string last = text_at(tier, "last_error"); !last.empty())
    facts.add("Last error", fmt::format("{}, {}", clock_text(number_at(tier, "last_error_at")), last));
  return facts.text();
}

}  // namespace fpfs::tools
