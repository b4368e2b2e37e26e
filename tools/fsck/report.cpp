#include "tools/fsck/report.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/units.h"
#include "engine/check/inspect.h"
#include "tools/common/json_output.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

// Of a file that -y moved away, which is not the same as being whole again.
bool is_set_aside(const CheckReport& report, const CheckError& error) {
  return error.repaired && !error.path.empty() && is_damage(error.kind) &&
         std::any_of(report.set_aside.begin(), report.set_aside.end(),
                     [&error](const FileSetAside& aside) { return aside.path == error.path; });
}

// What became of an error, at the end of its line.
const char* outcome_of(const CheckReport& report, const CheckError& error) {
  return is_set_aside(report, error) ? " (set aside, not restored)" : error.repaired ? " (repaired)" : "";
}

bool has_uncorrected(const CheckReport& report) {
  return report.errors_omitted > 0 ||
         std::any_of(report.errors.begin(), report.errors.end(), [](const CheckError& e) { return !e.repaired; });
}

// "checksum: ... (lost) (repaired)"
std::string what_of(const CheckReport& report, const CheckError& error) {
  std::string text = error.kind + ": " + error.detail;
  if (!error.healing.empty()) text += " (" + error.healing + ")";
  return text + outcome_of(report, error);
}

// "/run1/a.pt: chunk 5, member 1, object offset 1048576: checksum: ... (repaired)"
std::string line_of(const CheckReport& report, const CheckError& error) {
  std::vector<std::string> place;
  if (error.chunk >= 0) place.push_back(fmt::format("chunk {}", error.chunk));
  if (error.member >= 0) place.push_back(fmt::format("member {}", error.member));
  if (error.object_offset >= 0) place.push_back(fmt::format("object offset {}", error.object_offset));
  std::string line;
  if (!error.path.empty()) line += error.path + ": ";
  if (!place.empty()) line += fmt::format("{}: ", fmt::join(place, ", "));
  return one_line(std::move(line) + what_of(report, error));
}

// Several chunks of one file, in ascending order, of which the same is to be said:
// "/run1/a.pt: 21 chunks (1, 3-5, 7) on members 0, 2: checksum: ...", as of the first.
std::string line_of(const CheckReport& report, const std::vector<const CheckError*>& errors) {
  const CheckError& first = *errors.front();
  if (errors.size() == 1) return line_of(report, first);
  std::vector<uint64_t> chunks;
  std::set<int> members;
  for (const CheckError* error : errors) {
    chunks.push_back(static_cast<uint64_t>(error->chunk));
    if (error->member >= 0) members.insert(error->member);
  }
  std::string place = fmt::format("{} chunks ({})", chunks.size(), format_ranges(chunks));
  if (!members.empty())
    place += fmt::format(" on member{} {}", members.size() == 1 ? "" : "s", fmt::join(members, ", "));
  return one_line(fmt::format("{}: {}: {}", first.path, place, what_of(report, first)));
}

// A line for each error; for a file with many damaged chunks one that sums up, for each kind of damage.
void print_errors(const CheckReport& report) {
  const auto is_of_a_chunk = [](const CheckError& error) { return error.chunk >= 0 && !error.path.empty(); };
  for (size_t i = 0; i < report.errors.size();) {
    const CheckError& first = report.errors[i];
    std::vector<std::vector<const CheckError*>> groups(1, {&first});
    while (++i < report.errors.size() && is_of_a_chunk(first)) {
      const CheckError& error = report.errors[i];
      if (error.path != first.path || !is_of_a_chunk(error)) break;
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
        const CheckError& one = *group.front();
        return one.kind == error.kind && one.healing == error.healing && one.repaired == error.repaired;
      });
      if (same != groups.end())
        same->push_back(&error);
      else
        groups.push_back({&error});
    }
    for (const auto& group : groups) fmt::print("{}\n", line_of(report, group));
  }
}

Json json_of(const FileSetAside& aside) {
  Json surviving = Json::array();
  for (const FileSetAside::Range& range : aside.surviving)
    surviving.push_back({{"offset", range.offset.value()}, {"length", range.length}});
  return {{"path", aside.path}, {"moved_to", aside.moved_to}, {"size", aside.size}, {"surviving", surviving}};
}

// "/run1/a.pt: set aside as lost+found/...; of 1000 bytes survive: 0-499, 600-999".
std::string line_of(const FileSetAside& aside) {
  constexpr size_t kRangesMax = 8;
  std::vector<std::string> ranges;
  for (const FileSetAside::Range& range : aside.surviving) {
    if (ranges.size() == kRangesMax) {
      ranges.push_back(fmt::format("and {} more ranges", aside.surviving.size() - kRangesMax));
      break;
    }
    ranges.push_back(fmt::format("{}-{}", range.offset, range.offset + range.length - 1));
  }
  return one_line(fmt::format("{}: set aside as {}; of its {} bytes survive: {}", aside.path, aside.moved_to,
                              aside.size,
                              ranges.empty() ? "none that can be placed" : fmt::format("{}", fmt::join(ranges, ", "))));
}

// Where files that were set aside are, now or before; empty when there are none.
std::string lost_and_found(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    const std::filesystem::path place = std::filesystem::path(directory) / "lost+found";
    std::error_code error;
    if (std::filesystem::is_directory(place, error) && !std::filesystem::is_empty(place, error) && !error)
      return place.string();
  }
  return "";
}

std::string verdict(const CheckReport& report) {
  if (report.cancelled)
    return report.clean() ? "cancelled; nothing wrong in what was checked" : "cancelled; what was checked has errors";
  if (report.clean()) return "clean";
  uint64_t damage = report.errors_omitted, leftovers = 0, repaired = 0, aside = 0;
  for (const CheckError& error : report.errors) {
    if (error.repaired)
      ++(is_set_aside(report, error) ? aside : repaired);
    else
      ++(report.after_crash && !is_damage(error.kind) ? leftovers : damage);
  }
  std::vector<std::string> parts;
  if (damage > 0) parts.push_back(fmt::format("DAMAGED: {} {}", damage, damage == 1 ? "error" : "errors"));
  if (leftovers > 0)
    parts.push_back(fmt::format("{} {} of a crash, which no file needs: mounting the array removes {}, as does -p",
                                leftovers, leftovers == 1 ? "leftover" : "leftovers", leftovers == 1 ? "it" : "them"));
  if (aside > 0)
    parts.push_back(fmt::format("{} damaged {} set aside and NOT restored: bring {} back from a copy",
                                report.set_aside.size(), report.set_aside.size() == 1 ? "file was" : "files were",
                                report.set_aside.size() == 1 ? "it" : "them"));
  if (repaired > 0) parts.push_back(fmt::format("{} {} repaired", repaired, repaired == 1 ? "error" : "errors"));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

int fsck_exit_code(const CheckReport& report) {
  int code = kFsckClean;
  if (report.cancelled) code |= kFsckCancelled;
  if (std::any_of(report.errors.begin(), report.errors.end(), [](const CheckError& e) { return e.repaired; }))
    code |= kFsckCorrected;
  if (has_uncorrected(report)) code |= kFsckUncorrected;
  return code;
}

void print_report_json(const CheckReport& report) {
  Json errors = Json::array();
  for (const CheckError& error : report.errors) {
    errors.push_back({{"path", error.path},
                      {"chunk", error.chunk},
                      {"member", error.member},
                      {"object_offset", error.object_offset},
                      {"kind", error.kind},
                      {"detail", error.detail + outcome_of(report, error)}});
    if (!error.healing.empty()) errors.back()["healing"] = error.healing;
  }
  if (report.errors_omitted > 0)
    errors.push_back({{"path", ""},
                      {"chunk", -1},
                      {"member", -1},
                      {"object_offset", -1},
                      {"kind", "omitted"},
                      {"detail", fmt::format("{} more errors are not listed", report.errors_omitted)}});
  Json set_aside = Json::array();
  for (const FileSetAside& aside : report.set_aside) set_aside.push_back(json_of(aside));
  print_json({{"clean", report.clean() && !report.cancelled},
              {"files", report.files},
              {"chunks", report.chunks},
              {"bytes_stored", report.bytes_stored},
              {"bytes_verified", report.bytes_verified},
              {"seconds", report.seconds},
              {"orphans", report.orphans},
              {"errors", errors},
              {"repaired", report.repaired},
              {"set_aside", set_aside}});
}

void print_report(const CheckReport& report, const std::vector<std::string>& directories, bool verified_data) {
  print_errors(report);
  if (report.errors_omitted > 0) fmt::print("... and {} more errors\n", report.errors_omitted);
  for (const FileSetAside& aside : report.set_aside) fmt::print("{}\n", line_of(aside));
  Facts facts;
  facts.add("Array", fmt::format("{}", fmt::join(directories, ":")));
  facts.add("Files", fmt::format("{}", report.files));
  facts.add("Chunks", fmt::format("{}, {} stored", report.chunks, format_size(report.bytes_stored)));
  if (report.chunks_away > 0)
    facts.add("Of these",
              fmt::format("{} in the store of the copies only, which is not looked at", report.chunks_away));
  facts.add("Data verified",
            verified_data
                ? fmt::format(
                      "{}, {}", format_size(report.bytes_verified),
                      format_rate(report.seconds > 0 ? static_cast<double>(report.bytes_verified) / report.seconds : 0))
                : std::string("no (--verify-data reads every chunk)"));
  if (report.orphans > 0) facts.add("Orphan objects", fmt::format("{}", report.orphans));
  if (report.repaired > 0) facts.add("Repaired", fmt::format("{}", report.repaired));
  if (std::string place = lost_and_found(directories); !place.empty())
    facts.add("Set aside", place + " (each file with a text that says which bytes survive)");
  facts.add("Time", format_duration(report.seconds));
  facts.add("Result", verdict(report));
  fmt::print("{}", facts.text());
}

}  // namespace fpfs::tools
