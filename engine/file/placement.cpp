#include "engine/file/placement.h"

#include <algorithm>

namespace fpfs {

namespace {

void sort_unique(std::vector<ChunkIndex>& chunks) {
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
}

}  // namespace

bool Placement::take(MemberIndex member, SlotIndex slot) {
  if (slots_[member].is_taken(slot)) return false;
  slots_[member].take(slot);
  return true;
}

void Placement::release(MemberIndex member, SlotIndex slot) {
  slots_[member].release(slot);
  may_hold_space(member, slot);
}

void Placement::note_written(ChunkIndex chunk, const Extent& extent, uint64_t chunk_size) {
  if (extent.allocated() == chunk_size || (!short_.empty() && short_.back() == chunk)) return;
  if (short_.size() >= short_max_) {
    sort_unique(short_);
    short_max_ = std::max(kShortMin, 2 * short_.size());
  }
  short_.push_back(chunk);
}

void Placement::set_objects(std::shared_ptr<ObjectSet> objects) {
  objects_ = std::move(objects);
  for (const auto& [generation, member, slot] : being_freed_)
    if (generation == objects_->generation() && !slots_[member].is_taken(slot)) slots_[member].take(slot);
}

void Placement::begin_freeing(const std::vector<DeadSlot>& slots) {
  for (const DeadSlot& dead : slots) being_freed_.emplace(dead.objects->generation(), dead.member, dead.slot);
}

void Placement::freed(const DeadSlot& slot) {
  const Generation generation = slot.objects->generation();
  being_freed_.erase({generation, slot.member, slot.slot});
  if (objects_ != nullptr && objects_->generation() == generation) slots_[slot.member].release(slot.slot);
}

bool Placement::start_generation() {
  retired_.slots.clear();
  if (objects_ == nullptr) return false;
  objects_->supersede();
  retired_.objects.push_back(std::exchange(objects_, nullptr));
  slots_.assign(slots_.size(), SlotMap());
  unpunched_from_.assign(slots_.size(), kNoSlot);
  short_.clear();
  may_all_be_short_ = false;
  return true;
}

void Placement::clear() {
  slots_.assign(slots_.size(), SlotMap());
  objects_ = nullptr;
  retired_ = {};
}

void Placement::reinstate(std::shared_ptr<ObjectSet> objects) {
  objects->reinstate();
  for (const MemberIndex m : slots_.indices())
    if (objects->is_touched(m)) may_hold_space(m, SlotIndex(0));
  may_all_be_short_ = true;
  set_objects(std::move(objects));
}

ObjectOffset Placement::needed_end(MemberIndex member, const Extent& last, uint64_t chunk_size) const {
  if (last.is_here() && last.member == member && last.slot + 1 == slots_[member].end())
    return offset_of(last.slot, chunk_size) + last.allocated();
  return offset_of(slots_[member].end(), chunk_size);
}

bool Placement::has_slack(const Extent& last, uint64_t chunk_size) const {
  for (const MemberIndex m : slots_.indices())
    if (unpunched_from_[m] != kNoSlot || objects_->allocated_end(m) > needed_end(m, last, chunk_size) ||
        objects_->is_allocated_ahead(m))
      return true;
  return false;
}

Placement::TrimPlan Placement::plan_trim(const ExtentTable& extents, const Extent& last, uint64_t chunk_size) {
  TrimPlan plan;
  bool is_any = false;
  for (const MemberIndex m : slots_.indices()) {
    plan.ends.push_back(needed_end(m, last, chunk_size));
    if (objects_->is_allocated_ahead(m))
      may_hold_space(m, SlotIndex(objects_->allocated_ahead_from(m).value() / chunk_size));
    is_any |= unpunched_from_[m] != kNoSlot;
  }
  if (!is_any) return plan;
  // What was written and given up before any commit, or allocated ahead of a stream that then jumped: slots below the
  // end that nothing took, and the unused ends of slots whose chunk is not full. A dense file has none.
  for (const MemberIndex m : slots_.indices()) {
    slots_[m].for_each_gap(unpunched_from_[m], [&](SlotIndex slot, uint64_t count) {
      plan.gaps.push_back({m, offset_of(slot, chunk_size), count * chunk_size});
    });
    unpunched_from_[m] = kNoSlot;
  }
  add_ends_of_slots(extents, chunk_size, plan);
  return plan;
}

// The ends of slots that were written since the last plan: those of others are given back, and what is allocated ahead
// lies behind them.
void Placement::add_ends_of_slots(const ExtentTable& extents, uint64_t chunk_size, TrimPlan& plan) {
  const auto add = [&](const Extent& extent) {
    if (!extent.is_here()) return;
    const ObjectOffset used = offset_of(extent.slot, chunk_size) + extent.allocated();
    const ObjectOffset end = offset_of(extent.slot + 1, chunk_size);
    if (used < end && end <= plan.ends[extent.member]) plan.gaps.push_back({extent.member, used, end - used});
  };
  if (std::exchange(may_all_be_short_, false)) {
    extents.for_each(ChunkIndex(0), [&add](ChunkIndex, const Extent& extent) {
      add(extent);
      return true;
    });
  } else {
    sort_unique(short_);
    for (const ChunkIndex chunk : short_) add(extents.get(chunk));
  }
  std::vector<ChunkIndex>().swap(short_);
  short_max_ = kShortMin;
}

}  // namespace fpfs
