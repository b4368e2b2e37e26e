// Which slots of one object are taken. A slot is taken from the moment a write is prepared for it until the commit that
// makes it unreachable is durable, so nothing that a crash could bring back is ever overwritten.
//
// Thread safety: none; guarded by File::mutex_.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {

class SlotMap {
 public:
  // Takes `natural` (where RAID-0 arithmetic puts the chunk) when it is free and not absurdly far beyond the object's
  // end (a sparse file's high chunks would otherwise exceed the member filesystem's file size limit, 16 TiB on ext4),
  // nor so far that the map would take much more memory than what it describes; else the lowest free slot.
  SlotIndex allocate(SlotIndex natural) {
    SlotIndex slot = natural;
    const bool is_far = natural > end() + kNaturalGapMax || natural > kSpreadLeast + taken_ * kSpreadMax;
    if (is_taken(natural) || is_far) slot = lowest_free();
    take(slot);
    return slot;
  }
  void take(SlotIndex slot) {
    if (slot / 64 >= words_.size()) words_.resize(std::max<size_t>(slot / 64 + 1, words_.size() * 2), 0);
    FPFS_CHECK(!is_taken(slot), "a slot is taken once");
    words_[slot / 64] |= uint64_t{1} << (slot % 64);
    ++taken_;
    end_ = std::max(end_, slot + 1);
  }
  void release(SlotIndex slot) {
    FPFS_CHECK(is_taken(slot), "only a taken slot is released");
    words_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
    --taken_;
    hint_ = std::min(hint_, slot / 64);
    while (end_ > 0 && !is_taken(end_ - 1)) --end_;
  }
  bool is_taken(SlotIndex slot) const {
    return slot / 64 < words_.size() && (words_[slot / 64] >> (slot % 64) & 1) != 0;
  }
  // The runs of free slots below end(): visit(first slot, count).
  template <typename Visit>
  void for_each_gap(Visit visit) const {
    for (SlotIndex slot = 0; slot < end_;) {
      SlotIndex stop = slot;
      while (stop < end_ && !is_taken(stop)) ++stop;
      if (stop > slot) visit(slot, stop - slot);
      slot = stop + 1;
    }
  }
  // One past the highest taken slot.
  SlotIndex end() const { return end_; }

 private:
  // Streams of several writers and read-ahead distance stay well below this many chunks per member.
  static constexpr SlotIndex kNaturalGapMax = 1024;
  // Slots for each that is taken: at most 8 bytes of the map, which may be twice as long as it has to be.
  static constexpr SlotIndex kSpreadMax = 64;
  static constexpr SlotIndex kSpreadLeast = 64 * 1024;

  SlotIndex lowest_free() {
    while (hint_ < words_.size() && words_[hint_] == ~uint64_t{0}) ++hint_;
    if (hint_ >= words_.size()) return hint_ * 64;
    return hint_ * 64 + static_cast<SlotIndex>(__builtin_ctzll(~words_[hint_]));
  }

  std::vector<uint64_t> words_;
  SlotIndex end_ = 0;
  uint64_t taken_ = 0;
  uint64_t hint_ = 0;  // no word before it has a free slot
};

}  // namespace fpfs
