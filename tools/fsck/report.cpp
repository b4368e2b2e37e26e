#include "tools/fsck/report.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "engine/check/error_lines.h"
#include "engine/check/inspect.h"
#include "tools/common/json_output.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

// What became of an error, at the end of its line.
const char* outcome_of(const CheckError& error) {
  return error.set_aside ? " (set aside, not restored)" : error.repaired ? " (repaired)" : "";
}

// Beside the objects. In the tree it has a name, which may have been a file's.
bool is_stray(const CheckError& error) {
  return error.kind == "foreign" && error.path.empty();
}

bool has_uncorrected(const CheckReport& report) {
  return report.errors_omitted > 0 ||
         std::any_of(report.errors.begin(), report.errors.end(), [](const CheckError& e) { return !e.repaired; });
}

// Nothing is known to be wrong with what it has there.
bool is_of_missing_member(const CheckError& error) {
  return error.kind == "missing-member" && !error.path.empty();
}

// "checksum: ... (lost) (repaired)"
std::string what_of(const ErrorGroup& group) {
  return kind_and_detail(group) + outcome_of(*group.front());
}

// Of two objects that no file is known to have had, the same is to be said.
bool are_alike(const CheckError& a, const CheckError& b) {
  return a.path.empty() && b.path.empty() && a.kind == b.kind && a.repaired == b.repaired &&
         (a.kind == "orphan" || a.kind == "leftover-space" || a.kind == "foreign");
}

// A line for each error; for a file with many damaged chunks one that sums up, for each kind of damage. None for files
// that have something on a member that is not there: they are counted. Of the objects of no file the first few, and how
// many more.
void print_errors(const CheckReport& report) {
  constexpr size_t kAlikeTold = 5;
  const std::vector<ErrorGroup> groups = group_errors(report.errors);
  for (size_t i = 0; i < groups.size(); ++i) {
    const CheckError& error = *groups[i].front();
    if (is_of_missing_member(error)) continue;
    fmt::print("{}\n", describe_errors(groups[i], what_of(groups[i])));
    size_t alike = 1;
    while (i + 1 < groups.size() && are_alike(error, *groups[i + 1].front())) {
      ++i;
      if (++alike <= kAlikeTold) fmt::print("{}\n", describe_errors(groups[i], what_of(groups[i])));
    }
    if (alike > kAlikeTold)
      fmt::print("... and {} more of kind {}{} (--json lists each)\n", alike - kAlikeTold, error.kind,
                 outcome_of(error));
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
      ranges.push_back("and " + format_count(aside.surviving.size() - kRangesMax, "more range"));
      break;
    }
    ranges.push_back(fmt::format("{}-{}", range.offset, range.offset + range.length - 1));
  }
  if (aside.is_index_lost)
    return one_line(fmt::format("{}: set aside as {}; its index cannot be read, so no byte of it can be placed",
                                aside.path, aside.moved_to));
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

std::string verdict(const CheckReport& report, Repair repair) {
  if (report.cancelled)
    return report.clean() ? "cancelled; nothing wrong in what was checked" : "cancelled; what was checked has errors";
  if (report.clean()) return "clean";
  uint64_t damage = report.errors_omitted, leftovers = 0, nobodys = 0, foreign = 0, repaired = 0, aside = 0;
  uint64_t pending = 0, missing = 0, older = 0, of_older = 0, not_its_own = 0;
  for (const CheckError& error : report.errors) {
    if (error.kind == "missing-member")
      missing += error.path.empty() ? 1 : 0;
    else if (error.kind == "older-member")
      ++older;
    else if (error.kind == "foreign-member" || error.kind == "duplicate-member")
      ++not_its_own;
    else if (error.repaired)
      ++(error.set_aside ? aside : repaired);
    else if (error.of_older_member)
      ++of_older;
    else if (error.kind == "pending-commit")
      ++pending;
    else if (report.after_crash && !is_damage(error.kind))
      ++leftovers;
    else
      ++(error.is_nobodys ? nobodys : is_stray(error) ? foreign : damage);
  }
  std::vector<std::string> parts;
  if (damage > 0) parts.push_back("DAMAGED: " + format_count(damage, "error"));
  if (missing > 0)
    parts.push_back(fmt::format("INCOMPLETE: {} missing, and what is on {} was not checked",
                                format_count(missing, "member is", "members are"), one_or_many(missing, "it", "them")));
  if (older > 0)
    parts.push_back(
        fmt::format("INCOMPLETE: {} older than the others{}: bring back the right {}",
                    format_count(older, "member is", "members are"),
                    of_older > 0 ? ", of which " + format_count(of_older, "error") + " may come" : std::string(),
                    one_or_many(older, "one", "ones")) +
        (report.names_in.empty() ? "" : ", or the right names (--meta-dir)"));
  if (not_its_own > 0)
    parts.push_back(fmt::format("WRONG LIST: {} not to be given; give each directory of one array once",
                                format_count(not_its_own, "directory is", "directories are")));
  if (!report.was_checked) parts.emplace_back("nothing else was checked, and no file repaired");
  if (pending > 0)
    parts.push_back(
        fmt::format("{} saved before a crash {} in the commit log: mounting the array puts {} where {}, as "
                    "does -p",
                    format_count(pending, "small file"), pending == 1 ? "is" : "are",
                    one_or_many(pending, "it", "them"), one_or_many(pending, "it belongs", "they belong")));
  if (leftovers > 0)
    parts.push_back(fmt::format("{} of a crash, which no file needs: mounting the array removes {}, as does -p",
                                format_count(leftovers, "leftover"), one_or_many(leftovers, "it", "them")));
  if (nobodys > 0)
    parts.push_back(fmt::format("{} of files that are gone; look whether a checkpoint is missing before -p removes {}",
                                format_count(nobodys, "leftover"), one_or_many(nobodys, "it", "them")));
  if (foreign > 0)
    parts.push_back(fmt::format("{} not the array's; no file is harmed: move {} elsewhere",
                                format_count(foreign, "entry of a member is", "entries of members are"),
                                one_or_many(foreign, "it", "them")));
  const size_t files_aside = report.set_aside.size();
  if (aside > 0)
    parts.push_back(fmt::format("{} set aside and NOT restored: bring {} back from a copy",
                                format_count(files_aside, "damaged file was", "damaged files were"),
                                one_or_many(files_aside, "it", "them")));
  if (repaired > 0) parts.push_back(format_count(repaired, "error") + " repaired");
  if (damage > 0 && !report.was_checked)
    parts.emplace_back("do what is said above, then check again");
  else if (damage > 0 && repaired + aside == 0)
    parts.emplace_back(repair == Repair::kYes
                           ? "-y cannot mend it: bring back from a copy what is named"
                           : "bring back from a copy what is named, or have -y repair what it can and set aside the "
                             "rest");
  return fmt::format("{}", fmt::join(parts, "; "));
}

void add_counts(Facts& facts, const CheckReport& report, bool verified_data) {
  facts.add("Files", fmt::format("{}", report.files));
  facts.add("Chunks", fmt::format("{}, {} stored", report.chunks, format_size(report.bytes_stored)));
  if (report.chunks_away > 0)
    facts.add("Of these",
              fmt::format("{} in the store of the copies only, which is not looked at", report.chunks_away));
  if (report.chunks_missing > 0)
    facts.add("Of these",
              fmt::format("{} of {} on members that are missing (--json names the files)",
                          format_count(report.chunks_missing, "chunk"), format_count(report.files_missing, "file")));
  facts.add("Data verified",
            verified_data
                ? fmt::format(
                      "{}, {}", format_size(report.bytes_verified),
                      format_rate(report.seconds > 0 ? static_cast<double>(report.bytes_verified) / report.seconds : 0))
                : std::string("no (--verify-data reads every chunk)"));
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
                      {"detail", error.detail + outcome_of(error)}});
    if (!error.healing.empty()) errors.back()["healing"] = error.healing;
  }
  if (report.errors_omitted > 0)
    errors.push_back(
        {{"path", ""},
         {"chunk", -1},
         {"member", -1},
         {"object_offset", -1},
         {"kind", "omitted"},
         {"detail", format_count(report.errors_omitted, "more error is not listed", "more errors are not listed")}});
  Json set_aside = Json::array();
  for (const FileSetAside& aside : report.set_aside) set_aside.push_back(json_of(aside));
  print_json({{"clean", report.clean() && !report.cancelled},
              {"files", report.files},
              {"chunks", report.chunks},
              {"bytes_stored", report.bytes_stored},
              {"bytes_verified", report.bytes_verified},
              {"seconds", report.seconds},
              {"orphans", report.orphans},
              {"meta_dir", report.names_in.empty() ? Json() : Json(report.names_in)},
              {"errors", errors},
              {"repaired", report.repaired},
              {"set_aside", set_aside},
              {"empty_files", report.empty_files}});
}

void print_report(const CheckReport& report, const std::vector<std::string>& directories, Repair repair,
                  bool verified_data) {
  print_errors(report);
  if (report.errors_omitted > 0) fmt::print("... and {}\n", format_count(report.errors_omitted, "more error"));
  for (const FileSetAside& aside : report.set_aside) fmt::print("{}\n", line_of(aside));
  Facts facts;
  facts.add("Array", fmt::format("{}", fmt::join(directories, ":")));
  if (!report.names_in.empty()) facts.add("Names kept in", report.names_in + " (--meta-dir names another)");
  if (report.was_checked)
    add_counts(facts, report, verified_data);
  else
    facts.add("Files", "not looked at");
  if (report.orphans > 0) facts.add("Orphan objects", fmt::format("{}", report.orphans));
  if (report.repaired > 0) facts.add("Repaired", fmt::format("{}", report.repaired));
  if (std::string place = lost_and_found(directories); !place.empty())
    facts.add("Set aside", place + " (each file with a text that says which bytes survive)");
  facts.add("Time", format_duration(report.seconds));
  facts.add("Result", verdict(report, repair));
  fmt::print("{}", facts.text());
}

}  // namespace fpfs::tools
