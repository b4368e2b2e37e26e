#include "engine/base/log_repeats.h"
#include "engine/base/ranges.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpfs {

namespace {
// Of what finds no place any more. No line has this key: keys of callers are not empty.
const char* const kOthers = "";
}  // namespace

LogRepeats::Line LogRepeats::Entry::told(uint64_t now_ns) const {
  return {line.level,
          fmt::format("{} ({} more in {} s)", line.text, format_count(count, "time"), (now_ns - told_ns) / kSecondNs)};
}

void LogRepeats::Entry::begin_interval(uint64_t now_ns) {
  told_ns = now_ns;
  count = 0;
  interval_ns = std::min(2 * interval_ns, kIntervalMaxNs);
}

bool LogRepeats::admits(const std::string& key, const Line& line, uint64_t now_ns) {
  auto found = entries_.find(key);
  if (found == entries_.end() && entries_.size() >= kKeysMax) {
    found =
        entries_
            .try_emplace(kOthers,
                         Entry{{line.level, "lines about other things are left out"}, now_ns, now_ns, 0, kIntervalNs})
            .first;
    found->second.line.level = std::max(found->second.line.level, line.level);
  }
  if (found == entries_.end()) {
    entries_.emplace(key, Entry{line, now_ns, now_ns, 0, kIntervalNs});
    next_due_ns_ = std::min(next_due_ns_, now_ns + kIntervalNs);
    return true;
  }
  Entry& entry = found->second;
  entry.last_ns = now_ns;
  if (now_ns - entry.told_ns < entry.interval_ns) {
    ++entry.count;
    next_due_ns_ = std::min(next_due_ns_, entry.told_ns + entry.interval_ns);
    return false;
  }
  entry.begin_interval(now_ns);
  return true;
}

std::vector<LogRepeats::Line> LogRepeats::due(uint64_t now_ns) {
  std::vector<Line> lines;
  if (now_ns < next_due_ns_) return lines;
  next_due_ns_ = UINT64_MAX;
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    const uint64_t quiet_ns = now_ns - entry.told_ns;
    if (entry.has_more() && quiet_ns >= entry.interval_ns) {
      lines.push_back(entry.told(now_ns));
      entry.begin_interval(now_ns);
    } else if (quiet_ns >= 2 * entry.interval_ns) {
      at = entries_.erase(at);
      continue;
    }
    next_due_ns_ = std::min(next_due_ns_, entry.told_ns + (entry.has_more() ? 1 : 2) * entry.interval_ns);
    ++at;
  }
  return lines;
}

std::vector<LogRepeats::Line> LogRepeats::rest(uint64_t now_ns) {
  std::vector<Line> lines;
  for (const auto& [key, entry] : entries_)
    if (entry.has_more()) lines.push_back(entry.told(now_ns));
  entries_.clear();
  next_due_ns_ = UINT64_MAX;
  return lines;
}

}  // namespace fpfs
