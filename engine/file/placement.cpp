#include "engine/file/placement.h"

namespace fpfs {

bool Placement::take(MemberIndex member, SlotIndex slot) {
  if (slots_[member].is_taken(slot)) return false;
  slots_[member].take(slot);
  return true;
}

void Placement::release(MemberIndex member, SlotIndex slot) {
  slots_[member].release(slot);
  has_unpunched_ = true;
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
  return true;
}

void Placement::clear() {
  slots_.assign(slots_.size(), SlotMap());
  objects_ = nullptr;
  retired_ = {};
}

void Placement::reinstate(std::shared_ptr<ObjectSet> objects) {
  objects->reinstate();
  for (const MemberIndex m : slots_.indices()) has_unpunched_ |= objects->is_touched(m);
  set_objects(std::move(objects));
}

ObjectOffset Placement::needed_end(MemberIndex member, const Extent& last, uint64_t chunk_size) const {
  if (last.exists() && last.member == member && last.slot + 1 == slots_[member].end())
    return offset_of(last.slot, chunk_size) + last.allocated();
  return offset_of(slots_[member].end(), chunk_size);
}

bool Placement::has_slack(const Extent& last, uint64_t chunk_size) const {
  if (has_unpunched_) return true;
  for (const MemberIndex m : slots_.indices())
    if (objects_->allocated_end(m) > needed_end(m, last, chunk_size) || objects_->is_allocated_ahead(m)) return true;
  return false;
}

Placement::TrimPlan Placement::plan_trim(const ExtentTable& extents, const Extent& last, uint64_t chunk_size) {
  TrimPlan plan;
  bool may_hold_space = std::exchange(has_unpunched_, false);
  for (const MemberIndex m : slots_.indices()) {
    plan.ends.push_back(needed_end(m, last, chunk_size));
    may_hold_space |= objects_->is_allocated_ahead(m);
  }
  if (!may_hold_space) return plan;
  // What was written and given up before any commit, or allocated ahead of a stream that then jumped: slots below the
  // end that nothing took, and the unused ends of slots whose chunk is not full. A dense file has none.
  for (const MemberIndex m : slots_.indices())
    slots_[m].for_each_gap([&](SlotIndex slot, uint64_t count) {
      plan.gaps.push_back({m, offset_of(slot, chunk_size), count * chunk_size});
    });
  extents.for_each(ChunkIndex(0), [&](ChunkIndex, const Extent& extent) {
    const ObjectOffset used = offset_of(extent.slot, chunk_size) + extent.allocated();
    const ObjectOffset end = offset_of(extent.slot + 1, chunk_size);
    if (used < end && end <= plan.ends[extent.member]) plan.gaps.push_back({extent.member, used, end - used});
    return true;
  });
  return plan;
}

}  // namespace fpfs
