// Compression: how new chunks are stored, as a mount is told by `compress=`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace fpfs {

struct Compression {
  static constexpr int kLevelMin = 1, kLevelMax = 19;
  enum class Mode : uint8_t {
    kOff,
    kAuto,  // chunks that would wait for their drive anyway: it never makes a save slower
    kZstd,  // every chunk that gets smaller by it
  };
  Mode mode = Mode::kOff;
  int level = 1;  // zstd's, for what is no numbers

  bool operator==(const Compression&) const = default;
};

// "off", "auto", "zstd" or "zstd:LEVEL". kInvalidArgument for anything else.
Result<Compression> parse_compression(std::string_view text);
// The reverse.
std::string to_string(const Compression& compression);

}  // namespace fpfs
