// RequestSlots: a table of what is noted of requests under way. Each has its place there by its number, which another may
// have taken already: `Slot` says so, and what finds no place is noted elsewhere.
//
// Thread safety: that of Slot.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace fpfs {

template <typename Slot>
class RequestSlots {
 public:
  // Numbers of /dev/fuse are even and follow each other, those of rings have their entry above the fortieth bit.
  Slot& of(uint64_t unique) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;
    static_assert(std::has_single_bit(kSlots));
    return slots_[unique * kGoldenRatio >> (64 - std::bit_width(kSlots - 1))];
  }
  auto begin() { return slots_.begin(); }
  auto end() { return slots_.end(); }

 private:
  static constexpr size_t kSlots = 1024;
  std::array<Slot, kSlots> slots_;
};

}  // namespace fpfs
