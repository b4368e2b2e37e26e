// What people see of the JSON of fs/report/tier_report.h.
#pragma once

#include <string>

#include "tools/common/json_output.h"

namespace fpfs::tools {

std::string describe_tier(const Json& tier);
// One line: "3 files (1.2 GiB) wait, the oldest for 12 s".
std::string describe_tier_lag(const Json& tier);
// "3 files (1.2 GiB) to copy, 400 MiB/s, 12 s left", without a rate until there is one; while nothing is copied, why.
std::string describe_tier_progress(const Json& tier);

}  // namespace fpfs::tools
