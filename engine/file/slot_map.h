// Which slots of one object are taken. A slot is taken from the moment a write is prepared for it until the commit that
// makes it unreachable is durable, so nothing that a crash could bring back is ever overwritten.
//
// Kept as runs of taken slots: what it costs goes with the number of extents, whatever slot numbers a sidecar names.
//
// Thread safety: none; guarded by File::mutex_.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {

class SlotMap {
 public:
  // Takes `natural` (where RAID-0 arithmetic puts the chunk) when it is free and not absurdly far beyond the object's
  // end (a sparse file's high chunks would otherwise exceed the member filesystem's file size limit, 16 TiB on ext4);
  // else the lowest free slot.
  SlotIndex allocate(SlotIndex natural) {
    SlotIndex slot = natural;
    if (is_taken(natural) || natural > end() + kNaturalGapMax) slot = lowest_free();
    take(slot);
    return slot;
  }
  void take(SlotIndex slot) {
    FPFS_CHECK(!is_taken(slot), "a slot is taken once");
    const auto behind = runs_.upper_bound(slot);
    const bool joins_behind = behind != runs_.end() && behind->first == slot + 1;
    const SlotIndex stop = joins_behind ? behind->second : slot + 1;
    if (behind != runs_.begin() && std::prev(behind)->second == slot)
      std::prev(behind)->second = stop;
    else
      runs_.emplace_hint(behind, slot, stop);
    if (joins_behind) runs_.erase(behind);
  }
  void release(SlotIndex slot) {
    FPFS_CHECK(is_taken(slot), "only a taken slot is released");
    const auto run = std::prev(runs_.upper_bound(slot));
    const SlotIndex stop = run->second;
    if (slot + 1 < stop) runs_.emplace_hint(std::next(run), slot + 1, stop);
    if (run->first == slot)
      runs_.erase(run);
    else
      run->second = slot;
  }
  bool is_taken(SlotIndex slot) const {
    const auto behind = runs_.upper_bound(slot);
    return behind != runs_.begin() && slot < std::prev(behind)->second;
  }
  // The runs of free slots from `first` on and below end(): visit(first slot, count). What lies before costs nothing.
  template <typename Visit>
  void for_each_gap(SlotIndex first, Visit visit) const {
    SlotIndex gap = first;
    auto run = runs_.upper_bound(first);
    if (run != runs_.begin()) gap = std::max(first, std::prev(run)->second);
    for (; run != runs_.end(); ++run) {
      if (run->first > gap) visit(gap, run->first - gap);
      gap = run->second;
    }
  }
  // One past the highest taken slot.
  SlotIndex end() const { return runs_.empty() ? SlotIndex() : std::prev(runs_.end())->second; }

 private:
  // Streams of several writers and read-ahead distance stay well below this many chunks per member.
  static constexpr uint64_t kNaturalGapMax = 1024;

  SlotIndex lowest_free() const {
    return runs_.empty() || runs_.begin()->first > SlotIndex() ? SlotIndex() : runs_.begin()->second;
  }

  std::map<SlotIndex, SlotIndex> runs_;  // first slot: one past the last; runs do not touch
};

}  // namespace fpfs
