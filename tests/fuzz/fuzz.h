// What the fuzzers share. Each is a function over bytes: built with FPFS_FUZZ it is driven by libFuzzer (clang),
// otherwise by replay.cpp, which runs what is kept in corpus/ under any compiler and sanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

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

// Damage in a few places, and an end that is missing, as an input says; most have neither.
class Damage {
 public:
  explicit Damage(Input& input) : count_(input.byte() % kPlacesMax) {
    for (Place& place : places_) place = {input.number(3), static_cast<std::byte>(input.byte())};
    cut_ = input.byte() < 230 ? 0 : input.number(2);
  }

  void apply(std::vector<std::byte>& bytes) const {
    for (size_t i = 0; i < count_; ++i) bytes[places_[i].at % bytes.size()] ^= places_[i].mask;
    bytes.resize(bytes.size() - std::min(cut_, bytes.size()));
  }

 private:
  static constexpr size_t kPlacesMax = 4;
  struct Place {
    size_t at;
    std::byte mask;
  };

  size_t count_;  // fewer than kPlacesMax
  Place places_[kPlacesMax - 1];
  size_t cut_;
};

}  // namespace fpfs::fuzz
