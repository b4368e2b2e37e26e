// Placement: where the chunks of an open file lie on the members: the objects of its content, which of their slots are
// taken, what only an older record names and is freed behind the next commit, and what space is left over.
//
// An object is the file on one member that holds the file's chunks there. It is divided into *slots*, each as long as a
// chunk. The objects of one content, one on each member, are an ObjectSet; content that is replaced as a whole gets
// another one, of the next *generation*.
//
//   free ──allocate()──→ taken ──a commit names it──→ named ──its chunk goes: retire()──→ retired
//    ↑                     │                                                               │ a commit that does not
//    ├──────release()──────┘                                                               │ name it is durable
//    └──freed(): its space was given back── being freed ←──begin_freeing()─────────────────┘
//
// So a slot that a record names is never overwritten, as long as a crash can bring that record back. One that no record
// names is free at once.
//
// Thread safety: none; the file's lock. No I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/file/object_set.h"
#include "engine/file/slot_map.h"
#include "engine/index/extent_table.h"

namespace fpfs {

class Placement {
 public:
  struct DeadSlot {
    std::shared_ptr<ObjectSet> objects;
    MemberIndex member;
    SlotIndex slot;
  };
  // What only records before name: to be freed once they do not count any more.
  struct Retired {
    std::vector<DeadSlot> slots;
    std::vector<std::shared_ptr<ObjectSet>> objects;  // whole generations
    bool is_empty() const { return slots.empty() && objects.empty(); }
  };
  // Bytes of an object that hold space and are not needed, below its end.
  struct Gap {
    MemberIndex member;
    ObjectOffset offset;
    uint64_t length = 0;
  };
  struct TrimPlan {
    PerMember<ObjectOffset> ends;  // empty: nothing is trimmed
    std::vector<Gap> gaps;
  };

  explicit Placement(uint16_t members) : slots_(members), unpunched_from_(members, kNoSlot) {}

  // Of the content as it is; null: nothing of it is on the members.
  const std::shared_ptr<ObjectSet>& objects() const { return objects_; }
  void set_objects(std::shared_ptr<ObjectSet> objects);

  // A free slot, `natural` when it can be; it is taken.
  SlotIndex allocate(MemberIndex member, SlotIndex natural) { return slots_[member].allocate(natural); }
  // For a chunk that a record names. False: another one has it.
  bool take(MemberIndex member, SlotIndex slot);
  // No record names it: it is free, and may hold space.
  void release(MemberIndex member, SlotIndex slot);
  // The chunk was written to its slot, and may leave the end of it unused.
  void note_written(ChunkIndex chunk, const Extent& extent, uint64_t chunk_size);
  // No chunk of the content lies on the member, and none of a record that counts.
  bool holds_nothing_on(MemberIndex member) const { return slots_[member].end() == SlotIndex(); }
  // A record names it.
  void retire(MemberIndex member, SlotIndex slot) { retired_.slots.push_back({objects_, member, slot}); }
  DeadSlot dead_slot(MemberIndex member, SlotIndex slot) const { return {objects_, member, slot}; }
  // Retired ones, which no record names any more: their space is about to be given back. They stay taken until it was,
  // also when the file goes back to a committed content meanwhile.
  void begin_freeing(const std::vector<DeadSlot>& slots);
  void freed(const DeadSlot& slot);

  // The content is replaced as a whole: it gets other objects, and those that there were are retired. False: there were
  // none.
  bool start_generation();
  const Retired& retired() const { return retired_; }
  Retired take_retired() { return std::exchange(retired_, {}); }
  // The file goes back to a content that was committed, whose objects and slots are set again: first the slots that
  // records name, then the objects.
  void clear();
  // The objects of that content, which were retired meanwhile: what else was written to them holds space.
  void reinstate(std::shared_ptr<ObjectSet> objects);

  // Where an object ends once preallocated space is given back: after its last taken slot, whose tail is not needed
  // when it holds the end of the file. `last`: the extent there.
  ObjectOffset needed_end(MemberIndex member, const Extent& last, uint64_t chunk_size) const;
  // Space is left over (there are objects).
  bool has_slack(const Extent& last, uint64_t chunk_size) const;
  // All of it, given what is used: ends and gaps. From then on it counts as given back. Looks at what was written,
  // released and allocated ahead since the last plan, and not at the rest of the content.
  TrimPlan plan_trim(const ExtentTable& extents, const Extent& last, uint64_t chunk_size);

 private:
  static constexpr SlotIndex kNoSlot{UINT64_MAX};
  static constexpr size_t kShortMin = 1024;

  void may_hold_space(MemberIndex member, SlotIndex from) {
    unpunched_from_[member] = std::min(unpunched_from_[member], from);
  }
  void add_ends_of_slots(const ExtentTable& extents, uint64_t chunk_size, TrimPlan& plan);

  std::shared_ptr<ObjectSet> objects_;
  PerMember<SlotMap> slots_;
  // Since the last plan, or, where there was nothing to plan, the one before:
  PerMember<SlotIndex> unpunched_from_;  // free slots from here on may hold space
  std::vector<ChunkIndex> short_;        // written, with less than their slots; some repeatedly
  size_t short_max_ = kShortMin;         // then the repeated ones go
  bool may_all_be_short_ = false;        // all extents, not only those of short_
  Retired retired_;                      // since the last consistent point
  std::set<std::tuple<Generation, MemberIndex, SlotIndex>> being_freed_;
};

}  // namespace fpfs
