// What fpfs tune says of what it found: tables, JSON, the profile, a chart.
#pragma once

#include <string>
#include <vector>

#include "tools/common/json_output.h"
#include "tools/fpfs/tune_search.h"

namespace fpfs::tools {

// "default" or the settings that differ, with both rates, a row each: the finalists, then what was only searched.
std::string tune_table(const TuneOutcome& outcome);
// {"settings", "write": {"bytes_per_second" (median), "low", "high", "runs", "given_up"} or null, "read": the
// same}
Json tune_result_json(const TuneResult& result);
// The text of a profile (fs/interface/profile.h), with what it gains in remarks. `about` says where and when.
std::string tune_profile(const TuneOutcome& outcome, const std::string& about);

// Horizontal bars in groups, as those of docs/benchmarks: the median, and a line over a bar's end for its spread.
struct ChartBar {
  std::string label;
  double median = 0, low = 0, high = 0;
};
struct ChartGroup {
  std::string name;
  std::vector<ChartBar> bars;
};
std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<ChartGroup>& groups);
// Of everything that was measured, in MB/s.
std::string tune_chart(const TuneOutcome& outcome, const std::string& about);

}  // namespace fpfs::tools
