#include "engine/base/units.h"

#include <charconv>

#include <fmt/format.h>

namespace fpfs {
namespace {

constexpr std::string_view kUnitLetters = "KMGTPE";

// The power of 1024 that "K", "kB", "KiB" ... stand for; -1 for anything else.
int exponent_of(std::string_view suffix) {
  if (suffix.empty()) return 0;
  const char letter = suffix[0] >= 'a' && suffix[0] <= 'z' ? static_cast<char>(suffix[0] - 'a' + 'A') : suffix[0];
  const size_t position = kUnitLetters.find(letter);
  if (position == std::string_view::npos) return -1;
  std::string_view rest = suffix.substr(1);
  if (rest.size() == 2 && (rest[0] == 'i' || rest[0] == 'I'))
    rest.remove_prefix(1);
  else if (rest.size() > 1)
    return -1;
  if (!rest.empty() && rest != "B" && rest != "b") return -1;
  return static_cast<int>(position) + 1;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);  // takes no sign and no space
  const int exponent = error == std::errc() ? exponent_of(std::string_view(rest, static_cast<size_t>(end - rest))) : -1;
  if (error == std::errc::result_out_of_range || (exponent > 0 && value > (UINT64_MAX >> (10 * exponent))))
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("'{}' is too large for a size; the most is 16777215T", text));
  if (exponent < 0)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("'{}' is no size; write bytes, or a number and K, M, G or T, like 200M", text));
  return value << (10 * exponent);
}

std::string format_size(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  // Rounded to tenths first, so that what rounds up to 1024 of a unit is said as 1 of the next.
  for (size_t i = 0;; ++i) {
    const uint64_t unit = uint64_t{1} << (10 * (i + 1));
    const uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
    if (tenths >= 10240 && i + 1 < kUnitLetters.size()) continue;
    if (tenths % 10 == 0) return fmt::format("{} {}iB", tenths / 10, kUnitLetters[i]);
    return fmt::format("{}.{} {}iB", tenths / 10, tenths % 10, kUnitLetters[i]);
  }
}

}  // namespace fpfs
