// BufferPool: the one fixed allotment of memory that file content passes through (promise P5).
//
// One anonymous mapping (huge pages where the system gives them) cut into buffers of chunk_size, each with a Buffer
// descriptor. A buffer is free, or owned by a file as one of its chunks (see engine/file). Owners mark clean, idle
// buffers evictable; they stay findable by their owner until the pool takes them for someone else, oldest first.
//
// acquire() hands out all the buffers that a request needs or none, so two requests can never hold half of what the
// other needs. A request that gets none is queued (Waiter) and called back in order of arrival when buffers are free.
//
// Eviction needs the owner's lock while the pool's is held, against the lock order; it uses try_lock and passes over an
// owner that is busy. Owners call release()/make_evictable() with or without their own lock held.
//
// Thread safety: all methods from any thread. Waiter callbacks run without any lock held, on the thread that freed the
// buffers, and must be quick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace fpfs {

class BufferOwner;

struct Buffer {
  std::byte* data = nullptr;  // chunk_size bytes, aligned to kIoAlignment
  BufferOwner* owner = nullptr;  // guarded by the pool
  uint32_t index = 0;            // 0 .. total() - 1, fixed: owners keep a descriptor per buffer in a table
  // Links of the free or evictable list; the pool's.
  Buffer* previous = nullptr;
  Buffer* next = nullptr;
  enum class List : uint8_t { kNone, kFree, kEvictable } list = List::kNone;
};

class BufferOwner {
 public:
  virtual ~BufferOwner() = default;
  // Called by the pool with its lock held to take an evictable buffer back. Try-locks the owner; forgets the buffer and
  // returns true, or returns false when the owner is locked or the buffer no longer idle.
  virtual bool try_evict(Buffer& buffer) = 0;
};

class BufferPool {
 public:
  struct Waiter {
    Waiter* next = nullptr;
    unsigned count = 0;
    // Runs when `count` buffers may be available; the callee calls acquire() again (and may have to wait again, keeping
    // its place at the head).
    void (*ready)(Waiter& waiter) = nullptr;
    void* owner = nullptr;
  };
  struct Counters {
    uint64_t total = 0, free = 0, evictable = 0, waiting = 0;
    uint64_t waits = 0, evictions = 0;
  };
  // Called (without locks) when a request had to wait: owners of dirty, partly filled buffers should write them out.
  using PressureHook = void (*)(void* context);

  // kInvalidArgument when `bytes` holds fewer than kBuffersMin buffers; kSystem when the mapping fails.
  static Result<std::unique_ptr<BufferPool>> create(uint64_t bytes, uint32_t buffer_size);
  static constexpr unsigned kBuffersMin = 16;
  ~BufferPool();

  // Takes `count` buffers into `out` and returns true; or, when they are not there, queues `waiter` (count set from
  // `count`) and returns false. With waiter == nullptr it only tries. `count` at most total()/2.
  bool acquire(unsigned count, Buffer** out, Waiter* waiter);
  // Gives buffers back; their content is gone.
  void release(Buffer& buffer);
  // The buffer is clean and idle: it may be taken while its owner still knows it. `cold`: first in line (content that
  // nobody is likely to read again).
  void make_evictable(Buffer& buffer, bool cold);
  // The owner wants an evictable buffer back for use. Called with the owner's lock held, which is what excludes eviction.
  void make_busy(Buffer& buffer);

  void set_pressure_hook(PressureHook hook, void* context);
  // Fewer than a quarter of the buffers are free or evictable.
  bool is_low() const;
  uint32_t buffer_size() const { return buffer_size_; }
  unsigned total() const { return static_cast<unsigned>(buffers_.size()); }
  Counters counters() const;

 private:
  BufferPool(std::byte* mapping, size_t mapping_bytes, uint32_t buffer_size, unsigned count);
  struct List {
    Buffer* head = nullptr;
    Buffer* tail = nullptr;
    unsigned count = 0;
  };
  void push(List& list, Buffer& buffer, bool front);
  void remove(List& list, Buffer& buffer);
  unsigned take_locked(unsigned count, Buffer** out) FPFS_REQUIRES(mutex_);
  void wake_waiters();

  mutable Mutex mutex_;
  List free_ FPFS_GUARDED_BY(mutex_);
  List evictable_ FPFS_GUARDED_BY(mutex_);
  Waiter* waiters_head_ FPFS_GUARDED_BY(mutex_) = nullptr;
  Waiter* waiters_tail_ FPFS_GUARDED_BY(mutex_) = nullptr;
  Counters counters_ FPFS_GUARDED_BY(mutex_);
  bool waking_ FPFS_GUARDED_BY(mutex_) = false;
  PressureHook pressure_hook_ = nullptr;
  void* pressure_context_ = nullptr;
  std::byte* mapping_;
  size_t mapping_bytes_;
  uint32_t buffer_size_;
  std::vector<Buffer> buffers_;
};

}  // namespace fpfs
