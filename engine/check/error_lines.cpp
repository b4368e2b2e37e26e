#include "engine/check/error_lines.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/one_line.h"
#include "engine/base/ranges.h"

namespace fpfs {

namespace {

constexpr size_t kMembersTold = 4;

bool is_of_a_chunk(const CheckError& error) {
  return error.chunk >= 0 && !error.path.empty();
}

bool is_missing_member(const CheckError& error) {
  return error.kind == "missing-member" && error.path.empty();
}

// "chunk 5, member 1, object offset 1048576"
std::string place_of(const CheckError& error) {
  std::vector<std::string> place;
  if (error.chunk >= 0) place.push_back(fmt::format("chunk {}", error.chunk));
  if (error.member >= 0) place.push_back(fmt::format("member {}", error.member));
  if (error.object_offset >= 0) place.push_back(fmt::format("object offset {}", error.object_offset));
  return fmt::format("{}", fmt::join(place, ", "));
}

// "21 chunks (1, 3-5, 7) on members 0, 2"
std::string place_of(const ErrorGroup& group) {
  if (group.size() == 1) return place_of(*group.front());
  std::vector<uint64_t> chunks;
  std::set<int> members;
  for (const CheckError* error : group) {
    if (error->chunk >= 0) chunks.push_back(static_cast<uint64_t>(error->chunk));
    if (error->member >= 0) members.insert(error->member);
  }
  if (chunks.empty()) return fmt::format("members {}", fmt::join(members, ", "));
  std::string place = fmt::format("{} ({})", format_count(chunks.size(), "chunk"), format_ranges(chunks));
  if (!members.empty())
    place += fmt::format(" on {} {}", one_or_many(members.size(), "member", "members"), fmt::join(members, ", "));
  return place;
}

}  // namespace

std::vector<ErrorGroup> group_errors(const std::vector<CheckError>& errors) {
  std::vector<ErrorGroup> groups;
  for (size_t i = 0; i < errors.size();) {
    const CheckError& first = errors[i];
    if (is_missing_member(first) && !groups.empty() && is_missing_member(*groups.back().front())) {
      groups.back().push_back(&first);
      ++i;
      continue;
    }
    std::vector<ErrorGroup> of_file(1, {&first});
    while (++i < errors.size() && is_of_a_chunk(first)) {
      const CheckError& error = errors[i];
      if (error.path != first.path || !is_of_a_chunk(error)) break;
      const auto same = std::find_if(of_file.begin(), of_file.end(), [&](const ErrorGroup& group) {
        const CheckError& one = *group.front();
        return one.kind == error.kind && one.healing == error.healing && one.repaired == error.repaired;
      });
      if (same != of_file.end())
        same->push_back(&error);
      else
        of_file.push_back({&error});
    }
    std::move(of_file.begin(), of_file.end(), std::back_inserter(groups));
  }
  return groups;
}

std::string join_details(const std::vector<std::pair<int, std::string>>& member_and_detail) {
  std::set<int> told, members;
  std::set<std::string_view> details;
  std::string text;
  for (const auto& [member, detail] : member_and_detail) {
    members.insert(member);
    if (told.size() == kMembersTold || told.contains(member)) continue;
    told.insert(member);
    if (details.insert(detail).second) text += (text.empty() ? "" : "; ") + detail;
  }
  const size_t more = members.size() - told.size();
  if (more == 0 || details.size() < told.size()) return text;
  return text + "; and " + format_count(more, "more member");
}

std::string kind_and_detail(const ErrorGroup& group) {
  const CheckError& first = *group.front();
  std::vector<std::pair<int, std::string>> details;
  for (const CheckError* error : group) details.emplace_back(error->member, error->detail);
  return fmt::format("{}: {}{}", first.kind, join_details(details),
                     first.healing.empty() ? "" : " (" + first.healing + ")");
}

std::string describe_errors(const ErrorGroup& group, const std::string& what) {
  const std::string& path = group.front()->path;
  const std::string place = place_of(group);
  return one_line(fmt::format("{}{}{}", path.empty() ? "" : path + ": ", place.empty() ? "" : place + ": ", what));
}

void FileErrors::add(CheckError error) {
  constexpr size_t kErrorsOfFileMax = 1024;
  const auto is_same = [&error](const CheckError& known) {
    return known.chunk == error.chunk && known.kind == error.kind;
  };
  if (error.chunk >= 0 && std::any_of(errors_.begin(), errors_.end(), is_same)) return;
  if (errors_.size() < kErrorsOfFileMax)
    errors_.push_back(std::move(error));
  else
    ++more_;
}

void FileErrors::log_all(const char* who) {
  std::stable_sort(errors_.begin(), errors_.end(),
                   [](const CheckError& a, const CheckError& b) { return a.chunk < b.chunk; });
  for (const ErrorGroup& group : group_errors(errors_))
    log(group.front()->repaired ? LogLevel::kWarning : LogLevel::kError, "{}: {}", who,
        describe_errors(group, kind_and_detail(group)));
  if (more_ > 0) log(LogLevel::kError, "{}: {}: {} more", who, errors_.front().path, format_count(more_, "chunk"));
  errors_.clear();
  more_ = 0;
}

}  // namespace fpfs
