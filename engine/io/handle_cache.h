// HandleCache: handles that can be opened again, so many of them open at a time. Of each member its objects and their
// directories are kept open this way: a file that is open may have one on every member, and files may be many.
//
// Who wants such a handle has a Slot for it, empty at first. A handle that was put into its slot stays there until it
// must make room for another: the one that was not used for the longest time, and never one that somebody has pinned.
// When all are pinned there are more than agreed for a while. What is pinned is bounded by the transfers under way.
//
// Thread safety: all methods from any thread; a slot outlives its pins. Nothing is closed under the cache's lock.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

class HandleCache {
 public:
  class Slot {
   public:
    Slot() = default;
    virtual ~Slot() = default;
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   protected:
    // Its handle is closed to make room when this returns; who wants the slot meanwhile waits. For what an owner would
    // miss afterwards.
    virtual void before_close(Handle handle) { static_cast<void>(handle); }
    // Whether before_close() takes long: others go first.
    virtual bool is_slow_to_close() const { return false; }

   private:
    friend class HandleCache;
    // Guarded by the cache.
    ScopedHandle handle_;
    unsigned pins_ = 0;
    bool closing_ = false;
    Slot* older_ = nullptr;
    Slot* newer_ = nullptr;
  };

  // Keeps a slot's handle open while it exists.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept : cache_(other.cache_), slot_(std::exchange(other.slot_, nullptr)) {}
    Pin& operator=(Pin&& other) noexcept {
      if (this != &other) {
        reset();
        cache_ = other.cache_;
        slot_ = std::exchange(other.slot_, nullptr);
      }
      return *this;
    }
    ~Pin() { reset(); }

    bool is_set() const { return slot_ != nullptr; }
    Handle get() const { return slot_->handle_.get(); }  // does not change while pinned
    void reset() {
      if (slot_ != nullptr) cache_->unpin(*std::exchange(slot_, nullptr));
    }

   private:
    friend class HandleCache;
    Pin(HandleCache& cache, Slot& slot) : cache_(&cache), slot_(&slot) {}

    HandleCache* cache_ = nullptr;
    Slot* slot_ = nullptr;
  };

  // Keeps `handles_max` handles at most, but for what is pinned.
  explicit HandleCache(size_t handles_max) : handles_max_(handles_max) {}
  HandleCache(const HandleCache&) = delete;
  HandleCache& operator=(const HandleCache&) = delete;

  // Not set when the slot is empty.
  Pin find(Slot& slot);
  // Puts a handle into a slot. Another that came there first stays, and this one is closed.
  Pin insert(Slot& slot, ScopedHandle handle);
  // Closes a slot's handle, if it has one. Nobody has it pinned, or wants it any more.
  void remove(Slot& slot);
  // Closes a slot's handle, if it has one. False: somebody has it pinned.
  bool close(Slot& slot);
  // Closes some that nobody uses: the process has no descriptors left. False: there are none.
  bool make_room();
  size_t size() const;

 private:
  void unpin(Slot& slot);
  void wait_until_closed(Slot& slot) FPFS_REQUIRES(mutex_);
  void push(Slot& slot) FPFS_REQUIRES(mutex_);
  void unlink(Slot& slot) FPFS_REQUIRES(mutex_);
  bool close_one() FPFS_REQUIRES(mutex_);

  const size_t handles_max_;
  mutable Mutex mutex_;
  CondVar closed_;
  size_t size_ FPFS_GUARDED_BY(mutex_) = 0;
  // Those that nobody has pinned, by their last use.
  Slot* oldest_ FPFS_GUARDED_BY(mutex_) = nullptr;
  Slot* newest_ FPFS_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace fpfs
