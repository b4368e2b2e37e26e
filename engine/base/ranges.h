// Numbers of chunks and the like, as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fpfs {

// "1, 3-5, 7", of ascending numbers; what goes beyond a line is "...".
std::string format_ranges(const std::vector<uint64_t>& numbers);
// "1 chunk", "2 chunks".
std::string format_chunks(uint64_t count);

}  // namespace fpfs
