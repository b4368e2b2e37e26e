#include "engine/codec/compression.h"

#include <charconv>

#include <fmt/format.h>

namespace fpfs {

Result<Compression> parse_compression(std::string_view text) {
  constexpr std::string_view kZstd = "zstd", kZstdLevel = "zstd:";
  if (text == "off") return Compression{};
  if (text == "auto") return Compression{.mode = Compression::Mode::kAuto};
  if (text == kZstd) return Compression{.mode = Compression::Mode::kZstd};
  Compression compression{.mode = Compression::Mode::kZstd};
  if (text.starts_with(kZstdLevel)) {
    const std::string_view level = text.substr(kZstdLevel.size());
    const char* const end = level.data() + level.size();
    const auto [rest, error] = std::from_chars(level.data(), end, compression.level);
    if (error == std::errc() && rest == end && compression.level >= Compression::kLevelMin &&
        compression.level <= Compression::kLevelMax)
      return compression;
  }
  return Status::error(
      StatusCode::kInvalidArgument,
      fmt::format("'{}' is no way to compress; use off, auto, zstd or zstd:LEVEL with a level from {} to {}", text,
                  Compression::kLevelMin, Compression::kLevelMax));
}

std::string to_string(const Compression& compression) {
  switch (compression.mode) {
    case Compression::Mode::kOff:
      return "off";
    case Compression::Mode::kAuto:
      return "auto";
    case Compression::Mode::kZstd:
      break;
  }
  return compression.level == Compression().level ? "zstd" : fmt::format("zstd:{}", compression.level);
}

}  // namespace fpfs
