#include "tools/fpfs/status_view.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "tools/common/table.h"
#include "tools/fpfs/tier_view.h"

namespace fpfs::tools {

namespace {

// Of the mount, in bytes in its JSON.
constexpr std::string_view kSizeOptions[] = {"buffer_memory", "transfer_size", "tier_rate", "tier_rate_saving",
                                             "tier_memory"};

// Per second; a counter that went back (the array was mounted anew in between) gives 0.
double rate(const Json& now, const Json& before, const char* counter, double seconds) {
  const uint64_t newer = number_at(now, counter), older = number_at(before, counter);
  return seconds <= 0 || newer < older ? 0 : static_cast<double>(newer - older) / seconds;
}

// As the option takes it: "64M".
std::string size_option_text(uint64_t bytes) {
  constexpr std::string_view kLetters = "KMGTP";
  std::string unit;
  for (const char letter : kLetters) {
    if (bytes == 0 || bytes % kKiB != 0) break;
    bytes /= kKiB;
    unit = letter;
  }
  return fmt::format("{}{}", bytes, unit);
}

bool is_size_option(const std::string& name) {
  return std::ranges::find(kSizeOptions, name) != std::end(kSizeOptions);
}

// Those of copies say something only where there is a store.
std::string options_text(const Json& status) {
  std::vector<std::string> parts;
  const bool has_store = !text_at(object_at(status, "tier"), "store").empty();
  for (auto& [name, value] : object_at(status, "options").items()) {
    if (name.starts_with("tier_") && (!has_store || value == -1)) continue;
    if (value.is_string() && value.get_ref<const std::string&>().empty()) continue;
    if (value.is_boolean()) {
      parts.push_back(name + (value.get<bool>() ? "=on" : "=off"));
    } else if (value.is_number_unsigned() && is_size_option(name)) {
      parts.push_back(name + "=" + size_option_text(value.get<uint64_t>()));
    } else {
      parts.push_back(name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string buffers_text(const Json& status) {
  const Json& buffers = object_at(status, "buffers");
  const uint64_t total = number_at(buffers, "total"), free = number_at(buffers, "free"),
                 clean = number_at(buffers, "evictable");
  std::string text =
      fmt::format("{} of {}: {} free, {} clean, {} in use", total, format_size(number_at(buffers, "size")), free, clean,
                  total - std::min(total, free + clean));
  if (uint64_t waiting = number_at(buffers, "waiting"); waiting > 0)
    text += "; " + format_count(waiting, "request waits", "requests wait");
  return text;
}

// "/nvme0/fp (member 0): ok", "/ssd/names: failing, 12 errors"
std::string names_text(const Json& metadata) {
  std::string text = text_at(metadata, "path", "-");
  if (const Json member = metadata.value("member", Json(-1)); member.is_number_unsigned())
    text += fmt::format(" (member {})", member.get<uint64_t>());
  text += ": " + text_at(metadata, "state", "-");
  if (const uint64_t errors = number_at(metadata, "errors"); errors > 0) text += ", " + format_count(errors, "error");
  return text;
}

std::string state_text(const Json& status) {
  const Json& array = object_at(status, "array");
  std::string text = text_at(status, "state", "-");
  if (std::string reason = text_at(array, "read_only_reason"); !reason.empty()) {
    text += ", read-only since: " + reason;
  } else if (flag_at(array, "read_only")) {
    text += ", mounted read-only";
  }
  return text;
}

std::string recovery_text(const Json& recovery) {
  return fmt::format("the array was not unmounted cleanly; {} freed ({}), {} cut",
                     format_count(number_at(recovery, "orphans_removed"), "orphan object"),
                     format_size(number_at(recovery, "bytes_freed")),
                     format_count(number_at(recovery, "torn_tails"), "torn tail"));
}

}  // namespace

uint64_t errors_of(const Json& member) {
  return number_at(member, "read_errors") + number_at(member, "write_errors") + number_at(member, "sync_errors") +
         number_at(member, "checksum_errors");
}

void add_rates(Json& now, const Json& before, double seconds) {
  double read = 0, written = 0;
  const Json& members_before = array_at(before, "members");
  if (now.contains("members") && now["members"].is_array()) {
    for (size_t i = 0; i < now["members"].size(); ++i) {
      Json& member = now["members"][i];
      if (!member.is_object() || i >= members_before.size()) continue;
      member["read_bytes_per_second"] = rate(member, members_before[i], "bytes_read", seconds);
      member["write_bytes_per_second"] = rate(member, members_before[i], "bytes_written", seconds);
      read += real_at(member, "read_bytes_per_second");
      written += real_at(member, "write_bytes_per_second");
    }
  }
  now["rates"] = {
      {"seconds", seconds},
      {"read_bytes_per_second", read},
      {"write_bytes_per_second", written},
      {"commits_per_second", rate(object_at(now, "files"), object_at(before, "files"), "commits", seconds)}};
}

std::string size_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? "-" : format_size(number_at(object, key));
}

std::string describe_array(const Json& status, size_t columns, ArrayFacts which) {
  const Json& array = object_at(status, "array");
  const Json& space = object_at(status, "space");
  const Json& files = object_at(status, "files");
  const Json& rates = object_at(status, "rates");
  Facts facts;
  const std::string label = text_at(array, "label");
  facts.add("Array", text_at(array, "id", "-") + (label.empty() ? "" : fmt::format(" \"{}\"", label)));
  facts.add("Mounted", fmt::format("{}, process {}, for {}", text_at(status, "mountpoint", "-"),
                                   number_at(status, "pid"), format_duration(real_at(status, "uptime_seconds"))));
  facts.add("State", state_text(status));
  facts.add("Space", number_at(space, "total") == 0
                         ? std::string("not known: a member does not answer")
                         : fmt::format("{}, {} free", size_text(space, "total"), size_text(space, "free")));
  if (const Json& metadata = object_at(status, "metadata"); !metadata.empty()) facts.add("Names", names_text(metadata));
  if (which == ArrayFacts::kAll) {
    facts.add("Chunk size", format_size(number_at(array, "chunk_size")));
    facts.add("Options", options_text(status));
  }
  facts.add("Buffers", buffers_text(status));
  facts.add("Files", fmt::format("{} open, {} not committed; {} so far", number_at(files, "open"),
                                 number_at(files, "dirty"), format_count(number_at(files, "commits"), "commit")));
  facts.add("Rates", fmt::format("{} read, {} written", format_rate(real_at(rates, "read_bytes_per_second")),
                                 format_rate(real_at(rates, "write_bytes_per_second"))));
  if (const Json& tier = object_at(status, "tier"); !text_at(tier, "store").empty())
    facts.add("Copies",
              fmt::format("{}: {}, {}", text_at(tier, "store"), text_at(tier, "state"), describe_tier_lag(tier)));
  const Json& recovery = object_at(status, "recovery");
  if (flag_at(recovery, "was_dirty")) facts.add("At mount", recovery_text(recovery));
  return facts.text(columns);
}

std::string describe_members(const Json& status, size_t columns) {
  using Fit = Table::Fit;
  Table table;
  table.add_column("MEMBER", Table::Align::kRight);
  table.add_column("PATH", Table::Align::kLeft, Fit::kShortened);
  table.add_column("STATE", Table::Align::kLeft);
  for (const auto& [heading, fit] :
       {std::pair{"SIZE", Fit::kOmitted}, std::pair{"FREE", Fit::kKept}, std::pair{"SPARE", Fit::kOmitted},
        std::pair{"READ", Fit::kOmitted}, std::pair{"WRITTEN", Fit::kOmitted}, std::pair{"READ/S", Fit::kOmittedLast},
        std::pair{"WRITTEN/S", Fit::kOmittedLast}, std::pair{"ERRORS", Fit::kKept}})
    table.add_column(heading, Table::Align::kRight, fit);
  size_t position = 0;
  for (const Json& member : array_at(status, "members")) {
    const std::string path = text_at(member, "path");
    table.add_row({fmt::format("{}", number_at(member, "index", position++)), path.empty() ? "-" : path,
                   text_at(member, "state", "-"), size_text(member, "space_total"), size_text(member, "space_free"),
                   format_size(number_at(member, "space_spare")), format_size(number_at(member, "bytes_read")),
                   format_size(number_at(member, "bytes_written")),
                   format_rate(real_at(member, "read_bytes_per_second")),
                   format_rate(real_at(member, "write_bytes_per_second")), fmt::format("{}", errors_of(member))});
  }
  return table.text(columns);
}

std::string describe_errors(const Json& status) {
  uint64_t errors = number_at(object_at(status, "metadata"), "errors");
  for (const Json& member : array_at(status, "members")) errors += errors_of(member);
  if (errors == 0) return "";
  return "\nERRORS counts each failure: a damaged chunk counts each time it is read; Names\n"
         "has those of names and indexes. The log has what failed, fpfs scrub what is\n"
         "damaged.\n";
}

std::string describe_open_files(const Json& status, const Json& before, double seconds, size_t columns) {
  struct Use {
    uint64_t size = 0;
    double read = 0, written = 0;
    bool writing = false;
  };
  // One file may be open many times, and handles come and go: the sums by path are what compares.
  const auto totals_of = [](const Json& report) {
    std::map<std::string, Use> totals;
    for (const Json& file : array_at(report, "open_files")) {
      Use& use = totals[text_at(file, "path", "-")];
      use.size = number_at(file, "size");
      use.read += static_cast<double>(number_at(file, "bytes_read"));
      use.written += static_cast<double>(number_at(file, "bytes_written"));
      use.writing = use.writing || flag_at(file, "writing");
    }
    return totals;
  };
  const std::map<std::string, Use> earlier = totals_of(before);
  std::vector<std::pair<std::string, Use>> lines;
  for (auto& [path, use] : totals_of(status)) {
    auto found = earlier.find(path);
    const Use then = found == earlier.end() ? Use() : found->second;
    Use line = use;
    line.read = seconds > 0 ? std::max(0.0, use.read - then.read) / seconds : 0;
    line.written = seconds > 0 ? std::max(0.0, use.written - then.written) / seconds : 0;
    lines.emplace_back(path, line);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return a.second.read + a.second.written > b.second.read + b.second.written;
  });
  Table table;
  for (const char* heading : {"SIZE", "READ/S", "WRITTEN/S"}) table.add_column(heading, Table::Align::kRight);
  table.add_column("OPEN FOR", Table::Align::kLeft);
  table.add_column("FILE", Table::Align::kLeft, Table::Fit::kShortened);
  for (const auto& [path, use] : lines)
    table.add_row({format_size(use.size), format_rate(use.read), format_rate(use.written),
                   use.writing ? "writing" : "reading", path});
  const uint64_t omitted = number_at(status, "open_files_omitted");
  if (omitted > 0 && flag_at(status, "paths_hidden"))
    return format_count(omitted, "open file") + ": only root and who mounted the array are shown which\n";
  return table.text(columns) + (omitted > 0 ? fmt::format("... and {}\n", format_count(omitted, "less busy one")) : "");
}

}  // namespace fpfs::tools
