// The daemon's status as people read it, and rates from two of them.
#pragma once

#include <cstdint>
#include <string>

#include "tools/common/json_output.h"

namespace fpfs::tools {

// Bytes of a report in words; "-" where they are null or absent: not known.
std::string size_text(const Json& object, const char* key);

// Sets "rates" of the array, and "read_bytes_per_second" and "write_bytes_per_second" of each member, from the counters
// of `before` and `now`, taken `seconds` apart.
void add_rates(Json& now, const Json& before, double seconds);

uint64_t errors_of(const Json& member);  // of all kinds, since the mount or fpfs clear

enum class ArrayFacts : uint8_t {
  kAll,
  kChanging  // without what stays as it is while the array is mounted
};
// Lines of facts, and tables, for a window of so many columns; open files: the busiest first.
std::string describe_array(const Json& status, size_t columns = SIZE_MAX, ArrayFacts which = ArrayFacts::kAll);
std::string describe_members(const Json& status, size_t columns = SIZE_MAX);
// What the errors of members count, where there are any.
std::string describe_errors(const Json& status);
std::string describe_open_files(const Json& status, const Json& before, double seconds, size_t columns = SIZE_MAX);

}  // namespace fpfs::tools
