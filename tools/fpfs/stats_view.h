// What was counted since the mount (keys: fs/report/stats_report.h) as people read it, and what lies between two looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/json_output.h"

namespace fpfs::tools {

// What happened from `before` to `now`: the same keys, every counter and histogram their difference, "seconds" the time
// between. A counter that went back (mounted anew, or cleared) counts from 0.
Json stats_between(const Json& now, const Json& before, double seconds);

// In seconds, within a factor of two: the bound of the bucket that holds the quantile; the longest bound for more than
// that. 0 when there was nothing. `names`: operations that count as one.
struct Latency {
  uint64_t count = 0;
  double mean = 0, p50 = 0, p99 = 0;
};
Latency latency_of(const Json& stats, const std::vector<std::string>& names);

std::string describe_totals(const Json& stats);  // facts, and a table of operations
// One line, and one under it. Of a window that is narrower than all of it (113 columns) they take 80, without means.
std::string interval_heading(size_t columns);
std::string describe_interval(const Json& between, size_t columns);

}  // namespace fpfs::tools
