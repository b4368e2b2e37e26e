// What the fuzzers share. Each is a function over bytes: built with FPFS_FUZZ it is driven by libFuzzer (clang),
// otherwise by replay.cpp, which runs what is kept in corpus/ under any compiler and sanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fpfs::fuzz {

// What must hold for every input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// Takes an input apart from the front. Behind its end there are zeros.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> rest() const { return rest_; }
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && !rest_.empty(); ++i, rest_ = rest_.subspan(1))
      value |= std::to_integer<uint64_t>(rest_[0]) << (8 * i);
    return value;
  }
  uint8_t byte() { return static_cast<uint8_t>(number(1)); }
  // A number of which small ones and those at the edges are as likely as all others together.
  uint64_t size_like() {
    const uint8_t how = byte();
    if (how < 128) return how;
    if (how < 192) return (uint64_t{1} << (how & 63)) + number(1) - 128;
    return number(8);
  }
  std::span<const std::byte> bytes(size_t count) {
    const std::span<const std::byte> taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace fpfs::fuzz
