#include "tools/fpfs/scrub_view.h"

#include <ctime>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "engine/check/error_lines.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

std::string time_text(uint64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  struct tm local {};
  if (::localtime_r(&time, &local) == nullptr) return fmt::format("{}", seconds);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

int64_t signed_at(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_integer() ? object[key].get<int64_t>()
                                                                                       : -1;
}

// As the fsck of these files would say it.
std::string damage_lines(const Json& scrub) {
  std::vector<CheckError> errors;
  for (const Json& damage : array_at(scrub, "damage")) {
    CheckError& error = errors.emplace_back();
    error.path = text_at(damage, "path", "-");
    error.chunk = signed_at(damage, "chunk");
    error.member = static_cast<int>(signed_at(damage, "member"));
    error.object_offset = signed_at(damage, "object_offset");
    error.kind = text_at(damage, "kind", "-");
    error.detail = text_at(damage, "detail");
    error.healing = text_at(damage, "healing");
  }
  std::string lines;
  for (const ErrorGroup& group : group_errors(errors)) lines += describe_errors(group, kind_and_detail(group)) + "\n";
  return lines;
}

}  // namespace

std::string describe_scrub_progress(const Json& scrub) {
  const uint64_t done = number_at(scrub, "bytes_done"), total = number_at(scrub, "bytes_total");
  const bool is_short = text_at(scrub, "state") == "finished" && done < total;
  std::string text =
      total == 0 ? fmt::format("{}", format_size(done))
      : is_short ? fmt::format(
                       "{} of {}; the others are in files that cannot be opened, or that changed "
                       "meanwhile",
                       format_size(done), format_size(total))
                 : fmt::format("{} of {} ({})", format_size(done), format_size(total), format_percent(done, total));
  if (text_at(scrub, "state") != "running") return text;
  // The first look comes before anything was read.
  if (const double rate = real_at(scrub, "bytes_per_second", 0); rate > 0 || real_at(scrub, "seconds", 0) > 1)
    text += ", " + format_rate(rate);
  if (const double eta = real_at(scrub, "eta_seconds", -1); eta >= 0)
    text += fmt::format(", {} left", format_duration(eta));
  if (const uint64_t errors = number_at(scrub, "errors"); errors > 0) text += ", " + format_count(errors, "error");
  return text;
}

std::string describe_scrub(const Json& scrub) {
  const std::string state = text_at(scrub, "state", "-");
  if (state == "none") return "No scrub was started on this array.\n";
  Facts facts;
  const std::string note = text_at(scrub, "note");
  facts.add("State", note.empty() ? state : fmt::format("{}: {}", state, note));
  facts.add("Started", time_text(number_at(scrub, "started")));
  if (const uint64_t ended = number_at(scrub, "ended"); ended != 0) facts.add("Ended", time_text(ended));
  const uint64_t limit = number_at(scrub, "limit");
  facts.add("Limit", limit == 0 ? std::string("none") : format_rate(static_cast<double>(limit)));
  facts.add("Progress", describe_scrub_progress(scrub));
  facts.add("Files", fmt::format("{}, {}", number_at(scrub, "files_done"),
                                 format_count(number_at(scrub, "chunks_done"), "chunk")));
  if (const uint64_t away = number_at(scrub, "chunks_away"); away > 0)
    facts.add("Not looked at", fmt::format("{} in the store of the copies only", format_count(away, "chunk")));
  if (const uint64_t failed = number_at(scrub, "failed_saves"); failed > 0)
    facts.add("Not looked at", fmt::format("{} of which a save has failed and that {} open; scrub again when closed",
                                           format_count(failed, "file"), one_or_many(failed, "is", "are")));
  facts.add("Time", format_duration(real_at(scrub, "seconds", 0)));
  const uint64_t healed = number_at(scrub, "healed");
  facts.add("Errors",
            fmt::format("{}{}", number_at(scrub, "errors"),
                        healed > 0 ? fmt::format(", of which {} healed from copies", format_count(healed, "is", "are"))
                                   : std::string()));
  std::string text = facts.text();
  text += damage_lines(scrub);
  const uint64_t omitted = number_at(scrub, "damage_omitted");
  if (omitted > 0 && flag_at(scrub, "paths_hidden"))
    text += "Only root and who mounted the array are shown in which files they are.\n";
  else if (omitted > 0)
    text += fmt::format("... and {} more; the log and fsck.fastpersistfs --verify-data name all\n", omitted);
  return text;
}

}  // namespace fpfs::tools
