// SpareObjects: objects that no file needs any more, kept to be written over by the next file instead of being freed.
//
// Checkpoints are rotated: what one save frees, the next one wants. To free an object and to allocate it again is work
// for the drive's filesystem, and on many for the drive too (discard), just while the next save is written; blocks that
// were written before are also written faster than new ones (docs/benchmarks/row10.md).
//
// A spare keeps the name that it had. Whatever looks at the array from outside (fsck, recovery after a crash) finds an
// orphan: an object that was about to be freed. So an object may become a spare exactly when it may be unlinked: when
// the removal of what named it is durable. What it holds reaches no reader: a chunk is read by its extent only, and
// verified with a seed that has file and generation in it.
//
// Spares count as free space (Room::add_spare). They are given up when a drive runs short, when they were not wanted
// for StoreOptions::spare_life, and at unmount. Only what the next file can write over in place is kept: objects of
// some length that are mostly allocated and share no blocks (chunk_sharer.h), on filesystems that overwrite in place.
// Holes (chunks that are stored in less than their slots leave them) are filled when the object is used again.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/array/array_health.h"
#include "engine/base/mutex.h"
#include "engine/file/object_set.h"
#include "engine/file/room.h"
#include "engine/io/environment.h"

namespace fpfs {

// The objects of one generation of one file, which no sidecar will name once a name change is durable.
struct DoomedObjects {
  static DoomedObjects of(const std::shared_ptr<ObjectSet>& objects, bool may_be_spare);

  FileId file;
  Generation generation;
  // Who may still read or write them. Unlinked objects stay until the last of these is gone; nobody may write over
  // them before.
  std::weak_ptr<const ObjectSet> users;
  // False: to be freed at once. What failed is: a drive may fail at the same place again.
  bool may_be_spare = true;
};

class SpareObjects {
 public:
  // All of them outlive it. `least`: objects of fewer bytes are not kept (StoreOptions::spare_least).
  SpareObjects(Environment& environment, Array& array, Room& room, ArrayHealth& health, uint64_t least);
  void add_member(MemberIndex member);
  // Nothing becomes a spare on the member any more; what there is goes with release_all().
  void refuse_member(MemberIndex member) { overwrites_in_place_[member].store(false); }

  // The object of `member` becomes a spare. False: it is not fit for it, or there is none; the caller frees it.
  bool keep(MemberIndex member, const DoomedObjects& doomed);
  struct Taken {
    ScopedHandle handle;
    uint64_t length = 0;  // bytes, all of them allocated
  };
  // A spare of the member, opened with `flags` and moved to `name` in `directory`, over what has that name; durable
  // once `directory` was synced. Nothing: there is none.
  std::optional<Taken> take(MemberIndex member, Handle directory, const std::string& name, int flags);
  // All of them, or those that became spares before a time of Environment::now(), are spares no more. The caller frees
  // them.
  std::vector<DoomedObjects> release_all();
  std::vector<DoomedObjects> release_kept_before(const struct timespec& time);
  // What they take of the member.
  uint64_t bytes(MemberIndex member) const;
  bool is_empty() const;

 private:
  struct Spare {
    DoomedObjects objects;
    uint64_t allocated = 0;  // bytes
    struct timespec since {};
  };
  bool shares_blocks(Handle directory, const std::string& name) const;
  Status make_whole(Handle object, uint64_t allocated, uint64_t length) const;
  std::vector<DoomedObjects> release_if(const std::function<bool(const Spare&)>& chosen);

  Environment& environment_;
  Array& array_;
  Room& room_;
  ArrayHealth& health_;
  const uint64_t least_;
  PerMember<std::atomic<bool>> overwrites_in_place_;
  mutable Mutex mutex_;
  // By length, the shortest first, so that a small file does not take what a large one could have used.
  PerMember<std::multimap<uint64_t, Spare>> spares_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
