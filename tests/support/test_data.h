// Data that depends on its position, so that bytes in the wrong place show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "engine/base/units.h"

namespace fpfs::test {

// The byte at `position` of the endless stream that `seed` names.
inline std::byte byte_at(uint64_t seed, uint64_t position) {
  uint64_t mixed = (position / 8 + 1) * 0x9E3779B97F4A7C15u ^ (seed + 1) * 0xD1B54A32D192ED03u;
  mixed ^= mixed >> 29;
  mixed *= 0xBF58476D1CE4E5B9u;
  mixed ^= mixed >> 32;
  return static_cast<std::byte>(mixed >> (position % 8 * 8));
}

inline void fill(std::span<std::byte> bytes, uint64_t seed, uint64_t position) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(seed, position + i);
}

// Leaves of each byte so much that a compressor finds something to do, and that bytes in the wrong place still show.
inline void make_shrink(std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte &= std::byte{0x07};
}

// The index of the first byte that is not what fill() wrote there, or bytes.size().
inline size_t first_difference(std::span<const std::byte> bytes, uint64_t seed, uint64_t position) {
  size_t i = 0;
  while (i < bytes.size() && bytes[i] == byte_at(seed, position + i)) ++i;
  return i;
}

// Memory that O_DIRECT takes.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) : size_(size), data_(allocate(size)) {}
  std::byte* data() const { return data_.get(); }
  std::span<std::byte> span() const { return {data_.get(), size_}; }

 private:
  static std::byte* allocate(size_t size) {
    return static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, round_up(size, kIoAlignment)));
  }
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace fpfs::test
