#include "engine/base/ranges.h"

#include <cstddef>

#include <fmt/format.h>

namespace fpfs {

std::string format_ranges(const std::vector<uint64_t>& numbers) {
  constexpr size_t kRangesMax = 16;
  std::vector<std::string> ranges;
  for (size_t i = 0; i < numbers.size();) {
    const uint64_t first = numbers[i];
    uint64_t last = first;
    while (++i < numbers.size() && numbers[i] == last + 1) ++last;
    if (ranges.size() == kRangesMax) {
      ranges.emplace_back("...");
      break;
    }
    ranges.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

std::string format_count(uint64_t count, std::string_view one, std::string_view many) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, many);
}

}  // namespace fpfs
