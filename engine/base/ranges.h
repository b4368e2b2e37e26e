// Numbers of chunks and the like, as people read them: what is said with a count has its noun from here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fpfs {

// "1, 3-5, 7", of ascending numbers; what goes beyond a line is "...".
std::string format_ranges(const std::vector<uint64_t>& numbers);
// "1 chunk", "2 chunks". `many` is the noun's plural where that is not one with an s: "1 file was", "2 files were".
std::string format_count(uint64_t count, std::string_view one, std::string_view many = {});
// The word that goes with so many: one_or_many(count, "it", "them").
constexpr const char* one_or_many(uint64_t count, const char* one, const char* many) {
  return count == 1 ? one : many;
}

}  // namespace fpfs
