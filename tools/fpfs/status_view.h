// The daemon's status as people read it, and rates from two of them.
#pragma once

#include <string>

#include "tools/common/json_output.h"

namespace fpfs::tools {

// Sets "rates" of the array, and "read_bytes_per_second" and "write_bytes_per_second" of each member, from the counters
// of `before` and `now`, taken `seconds` apart.
void add_rates(Json& now, const Json& before, double seconds);

std::string describe_array(const Json& status);                                           // lines of facts
std::string describe_members(const Json& status);                                         // a table
std::string describe_open_files(const Json& status, const Json& before, double seconds);  // a table, busiest first

}  // namespace fpfs::tools
