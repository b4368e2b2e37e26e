// ObjectSet: the objects of one generation of one file, at most one per member, opened when first used. An object is
// the file on a member that holds a file's chunks there; a file whose content is replaced as a whole gets objects of
// the next generation.
//
// Their handles are kept in the members' caches (Array::handles()): one that nobody uses may be closed to make room for
// another, and is opened again by the object's name. What is not synced by then is synced before, so that what a sync
// has to report is not lost with the handle; sync() tells it.
//
// Thread safety: preallocate() of a member runs only on that member's queue thread (inside IoRequest::prepare); trim()
// only while the file has no write in flight; open_for_transfer(), sync() and the rest from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/io/storage.h"

namespace fpfs {

class SpareObjects;

class ObjectSet {
 public:
  // `spares` may be null. `may_exist`: a commit recorded this generation, so its objects are opened before they are
  // created. Otherwise an object found under this name is the leftover of a crash and is replaced.
  // Of the first `members` members.
  ObjectSet(Storage& storage, Array& array, SpareObjects* spares, uint16_t members, FileId file, Generation generation,
            bool may_exist);
  ~ObjectSet();  // closes handles
  ObjectSet(const ObjectSet&) = delete;
  ObjectSet& operator=(const ObjectSet&) = delete;

  MemberRange members() const { return objects_.indices(); }
  FileId file() const { return file_; }
  Generation generation() const { return generation_; }

  enum class Use : uint8_t {
    kRead,
    kWrite,   // makes the object when there is none
    kStream,  // the same, and much may follow: a spare object is taken for it when there is one
  };
  // The object's handle, pinned; opened when this is the first use. kNotFound: no such object to read.
  Result<HandleCache::Pin> open_for_transfer(MemberIndex member, Use use);
  // Makes sure that bytes [begin, end) of the object, open as `handle`, are allocated and within its size, so that a
  // direct write there does not extend the file (which would make io_submit synchronous on ext4 and XFS). When more
  // will follow, space is allocated ahead in growing steps of at most `ahead_max` bytes. What lies before `begin` is
  // left as it is: a sparse file's gap stays a hole.
  Status preallocate(MemberIndex member, Handle handle, ObjectOffset begin, ObjectOffset end, uint64_t ahead_max);
  // Something was allocated ahead since the last trim(): free slots may hold space.
  bool is_allocated_ahead(MemberIndex member) const { return allocated_ahead_from(member) != kNotAhead; }
  // Where the first of that lay. Space before it was not allocated ahead.
  ObjectOffset allocated_ahead_from(MemberIndex member) const {
    return objects_[member].ahead_from.load(std::memory_order_relaxed);
  }
  // Gives back what preallocation took beyond `end` (a multiple of kIoAlignment).
  Status trim(MemberIndex member, ObjectOffset end);
  // fdatasync (and, when the object is new, fsync of its directory): durable on return. Of an object that was used; one
  // that was not changed since it was synced is not opened for that. A failure leaves unknown what is on the drive: it is
  // told to everybody who comes behind it, and not tried again.
  Status sync(MemberIndex member);
  // What was written to the objects by now is nobody's content, or durable: whether a sync failed concerns nobody.
  void forget_failures();
  // Up to where the object is known to be allocated; 0 when it was not used.
  ObjectOffset allocated_end(MemberIndex member) const {
    const Object& object = objects_[member];
    return std::max(object.allocated_end.load(std::memory_order_relaxed),
                    object.shared_end.load(std::memory_order_relaxed));
  }
  // Bytes up to `end` share blocks now, of the object of a member. What lies before them was not allocated for it.
  void note_shared(MemberIndex member, ObjectOffset end);
  // Unlinks the object, which holds nothing; nobody is about to write to it. False: somebody has it pinned.
  Result<bool> drop(MemberIndex member);
  // Makes [offset, offset + length) a hole.
  Status punch(MemberIndex member, ObjectOffset offset, uint64_t length);
  // The object was changed. Of a write said at its completion: one that is still on the drive is not covered by a sync
  // that begins meanwhile.
  void touch(MemberIndex member) {
    objects_[member].changes.fetch_add(1);
    objects_[member].touched.store(true, std::memory_order_release);
  }
  // Written since the last clear.
  bool is_touched(MemberIndex member) const { return objects_[member].touched.load(std::memory_order_acquire); }
  // A commit recorded this generation, or may have: its objects must stay until another commit or the removal of the
  // file's name is durable.
  bool is_recorded() const { return recorded_.load(std::memory_order_acquire); }
  void set_recorded() { recorded_.store(true, std::memory_order_release); }
  // Its file has other objects now, and those that there are may be freed at any moment: none is made any more. A write
  // that is on its way and would be the first of its object fails instead, with kNotFound; it is nobody's content.
  void supersede() { superseded_.store(true); }
  bool is_superseded() const { return superseded_.load(); }
  // It has these again, while nothing is on its way to them.
  void reinstate() { superseded_.store(false); }
  void clear_touched(MemberIndex member) { objects_[member].touched.store(false, std::memory_order_release); }

 private:
  Result<ScopedHandle> make(MemberIndex member, Handle directory, const std::string& name, int flags, Use use);
  Result<ScopedHandle> open(MemberIndex member, Use use);
  Result<ScopedHandle> open_existing(MemberIndex member, Handle directory, const std::string& name, int flags,
                                     bool for_write);
  // A handle of an object that was used before; not set: it was dropped.
  Result<HandleCache::Pin> open_again(MemberIndex member);
  Status sync_alone(MemberIndex member);

  static constexpr ObjectOffset kNotAhead{UINT64_MAX};

  struct Object : HandleCache::Slot {
    void before_close(Handle handle) override;
    bool is_slow_to_close() const override { return has_unsynced(); }
    // False: what its content was by now is durable, or `sync_failure` says why not.
    bool has_unsynced() const { return synced.load() != changes.load(); }
    // A failure stays with the object: who syncs it by ObjectSet::sync() is told, and nobody else.
    void sync(Handle handle);

    Storage* storage = nullptr;
    std::atomic<bool> exists{false};   // it was opened, or made, once
    std::atomic<bool> dropped{false};  // it was, and is no more: there is nothing to sync or to trim
    std::atomic<uint64_t> changes{0};  // counted up by each
    std::atomic<uint64_t> synced{0};   // how many there were when the last sync that has ended began
    Mutex syncing;
    Mutex mutex;
    Status sync_failure FPFS_GUARDED_BY(mutex);
    std::atomic<bool> touched{false};
    std::atomic<uint64_t> new_name{0};  // Array::note_new_name(), until that is durable
    std::atomic<ObjectOffset> ahead_from{kNotAhead};
    std::atomic<ObjectOffset> allocated_end{ObjectOffset()};
    std::atomic<ObjectOffset> shared_end{ObjectOffset()};
    Mutex opening;  // whoever opens it first makes it
  };
  Storage& storage_;
  Array& array_;
  SpareObjects* const spares_;
  const FileId file_;
  const Generation generation_;
  const bool may_exist_;
  std::atomic<bool> recorded_;
  std::atomic<bool> superseded_{false};
  PerMember<Object> objects_;
};

}  // namespace fpfs
