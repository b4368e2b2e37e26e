// BufferPool: the one fixed allotment of memory that file content passes through (promise P5).
//
// One anonymous mapping (huge pages where the system gives them) cut into buffers of chunk_size, each with a Buffer
// descriptor. A buffer is free, or owned by a file as one of its chunks (see engine/file). Owners mark clean, idle
// buffers evictable; they stay findable by their owner until the pool takes them for someone else, oldest first. The
// mapping is left out of core dumps and of forked children (a fork would make pages under O_DIRECT copy-on-write).
//
// acquire() hands out all the buffers that a request needs or none, so two requests can never hold half of what the
// other needs. A request that gets none is queued (Waiter) and called back in order of arrival; while one is queued,
// later ones queue behind it.
//
// Eviction needs the owner's lock while the pool's is held, against the lock order; it uses try_lock and passes over an
// owner that is busy.
//
// Who calls the waiters. release() and make_evictable() are called with owners' locks held, and a waiter's callback
// takes such locks, so they never call it. Instead
// - an owner calls run_waiters() after it has dropped its locks: the prompt way, nothing but an atomic load when nobody
//   waits;
// - whenever waiters could go on, in case that the owner never does, and whenever an eviction failed on a busy owner (which
//   need not ever touch the pool again), the RetryHook is asked for a call of retry_waiters(): the safe way, so that no
//   wake-up is ever lost.
//
// Thread safety: all methods from any thread. Waiter callbacks run one at a time, without any lock of the caller's or
// the pool's held, on the thread that called run_waiters() or retry_waiters(), and must be quick: when others could go
// on as well, that thread is an AwaitedThread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/intrusive_list.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace fpfs {

class BufferOwner;

struct Buffer {
  std::byte* data = nullptr;     // chunk_size bytes, aligned to kIoAlignment
  BufferOwner* owner = nullptr;  // guarded by the pool
  uint32_t index = 0;            // 0 .. total() - 1, fixed: owners keep a descriptor per buffer in a table
  // Of the free or evictable list; the pool's.
  ListLink<Buffer> link;
  enum class List : uint8_t { kNone, kFree, kEvictable } list = List::kNone;
  bool cold = false;     // of an evictable one
  bool touched = false;  // was in use: its memory is there, and may be in a cache
  bool ahead = false;    // acquired ahead of its reader, who has not come yet; also guarded by its owner's lock
};

class BufferOwner {
 public:
  virtual ~BufferOwner() = default;
  // Called by the pool with its lock held to take an evictable buffer back. Try-locks the owner; forgets the buffer and
  // returns true, or returns false when the owner is locked or the buffer no longer idle.
  virtual bool try_evict(Buffer& buffer) = 0;
  // The same for an owner that called acquire() with its own lock held: forgets the buffer.
  virtual void evict_locked(Buffer& buffer) = 0;
};

class BufferPool {
 public:
  struct Waiter {
    ListLink<Waiter> link;
    unsigned count = 0;
    // Runs when `count` buffers may be available; the callee calls acquire() again (and may have to wait again, keeping
    // its place at the head).
    void (*ready)(Waiter& waiter) = nullptr;
    void* owner = nullptr;
    // Set by expire_waiters(), which calls `ready` then: no buffer will come; the callee gives up.
    bool expired = false;
    uint64_t since_ns = 0;  // monotonic_ns() when it was queued
  };
  // What who gives up says.
  static Status no_buffer_comes();
  struct Counters {
    uint64_t total = 0, free = 0, evictable = 0, waiting = 0;
    uint64_t waits = 0, evictions = 0;
  };
  // Called when a request had to wait because buffers are short: owners of dirty, partly filled buffers should write
  // them out. Locks of acquire()'s caller are held: post, do not do it here.
  using PressureHook = void (*)(void* context);
  // Must arrange for one call of retry_waiters(delay) after `delay`, on an executor. Locks of the caller may be held.
  using RetryHook = void (*)(void* context, std::chrono::milliseconds delay);
  // For an owner who is busy; and in case that run_waiters() is not called, which it is, nearly always, and at once.
  static constexpr std::chrono::milliseconds kRetryBusy{1}, kRetryInCase{10};

  // kInvalidArgument when `bytes` holds fewer than kBuffersMin buffers or `buffer_size` is no multiple of kIoAlignment;
  // kSystem when the mapping fails.
  static Result<std::unique_ptr<BufferPool>> create(uint64_t bytes, uint32_t buffer_size);
  static constexpr unsigned kBuffersMin = 16;
  ~BufferPool();  // waiters that are still queued are never called

  // Takes `count` buffers into `out` and returns true; or, when they are not there, queues `waiter` (count set from
  // `count`) and returns false. With waiter == nullptr it only tries. `count` at most total()/2. `held`: the owner
  // whose lock the caller holds, if any; its buffers are evicted by evict_locked(). First go free buffers that were
  // used before and cold ones, the latest first: a stream that its drives keep up with goes through few buffers, which
  // stay in the processor's cache. Then free ones never used, then evictable ones, the oldest first. Waiting needs a
  // RetryHook.
  bool acquire(unsigned count, Buffer** out, Waiter* waiter, BufferOwner* held = nullptr);
  // One buffer for what a reader is expected to ask for; it only tries. No more are held so than half of what is free
  // or evictable: else they would be taken for others before they are read, and read twice. A buffer counts until
  // make_busy().
  bool acquire_ahead(Buffer** out, BufferOwner* held);
  // Gives buffers back; their content is gone.
  void release(Buffer& buffer);
  // The buffer is clean and idle: it may be taken while its owner still knows it. `cold`: first in line (content that
  // nobody is likely to read again).
  void make_evictable(Buffer& buffer, bool cold);
  // The owner wants an evictable buffer back for use, or a reader came for what was acquired ahead. Called with the owner's lock held, which is what excludes
  // eviction.
  void make_busy(Buffer& buffer);

  // Makes the next kPopulatedAtOnce of the pool's memory resident, which is done else where a buffer is first used: the
  // kernel clears pages, 0.1 s per GiB, and 3 s where a virtual machine's host has to give them first. Whoever maps memory
  // waits meanwhile. False when all are, or the kernel cannot. One caller at a time.
  bool populate_some();
  static constexpr size_t kPopulatedAtOnce = size_t{4} << 20;

  // Calls the waiters that can go on, until the first that cannot. Call it without locks after having freed something.
  void run_waiters();
  // The same, as the answer to a RetryHook.
  void retry_waiters(std::chrono::milliseconds delay);
  // Calls every waiter that was queued at or before `since_ns`, marked as expired: when transfers that hang keep the
  // buffers, waiting has to end.
  void expire_waiters(uint64_t since_ns);

  // Before the first use.
  void set_pressure_hook(PressureHook hook, void* context);
  void set_retry_hook(RetryHook hook, void* context);
  // Somebody waits for buffers.
  bool has_waiters() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  // Fewer than a quarter of the buffers are free or evictable.
  bool is_low() const;
  uint32_t buffer_size() const { return buffer_size_; }
  unsigned total() const { return static_cast<unsigned>(buffers_.size()); }
  Counters counters() const;

 private:
  BufferPool(std::byte* mapping, size_t mapping_bytes, uint32_t buffer_size, unsigned count);
  using List = IntrusiveList<Buffer, &Buffer::link>;
  List& list_of(const Buffer& buffer) FPFS_REQUIRES(mutex_);
  void push(Buffer& buffer, Buffer::List to, bool front) FPFS_REQUIRES(mutex_);
  void remove(Buffer& buffer) FPFS_REQUIRES(mutex_);
  bool gather(unsigned count, BufferOwner* held, bool* was_busy) FPFS_REQUIRES(mutex_);
  bool evict(Buffer& buffer, BufferOwner* held) FPFS_REQUIRES(mutex_);
  void enqueue(Waiter& waiter, bool at_head) FPFS_REQUIRES(mutex_);
  void forget_ahead(Buffer& buffer) FPFS_REQUIRES(mutex_);
  bool head_may_go_on() const FPFS_REQUIRES(mutex_);
  bool others_may_go_on(const Waiter& first) const FPFS_REQUIRES(mutex_);
  void freed(Buffer& buffer, Buffer::List to, bool front);
  void wake();

  mutable Mutex mutex_;
  unsigned ahead_ FPFS_GUARDED_BY(mutex_) = 0;
  List free_ FPFS_GUARDED_BY(mutex_);
  List evictable_ FPFS_GUARDED_BY(mutex_);             // cold ones first
  unsigned touched_free_ FPFS_GUARDED_BY(mutex_) = 0;  // at the head of free_
  IntrusiveList<Waiter, &Waiter::link> waiters_ FPFS_GUARDED_BY(mutex_);
  Counters counters_ FPFS_GUARDED_BY(mutex_);  // the sums; the rest is in the lists
  std::atomic<unsigned> waiting_{0};           // length of the waiters' list; written under mutex_
  // The hook was called so, and retry_waiters() not yet.
  bool busy_retry_wanted_ FPFS_GUARDED_BY(mutex_) = false;
  bool retry_in_case_wanted_ FPFS_GUARDED_BY(mutex_) = false;
  // A thread is calling waiters; which one, and what came of the callback that it is in.
  bool waking_ FPFS_GUARDED_BY(mutex_) = false;
  std::thread::id waking_thread_ FPFS_GUARDED_BY(mutex_);
  bool turn_taken_ FPFS_GUARDED_BY(mutex_) = false;   // the callback has made its acquire() at the head
  bool turn_failed_ FPFS_GUARDED_BY(mutex_) = false;  // ... which found owners busy
  PressureHook pressure_hook_ = nullptr;
  void* pressure_context_ = nullptr;
  RetryHook retry_hook_ = nullptr;
  void* retry_context_ = nullptr;
  std::byte* mapping_;
  size_t mapping_bytes_;
  size_t populated_ = 0;  // bytes, by populate_some()
  uint32_t buffer_size_;
  std::vector<Buffer> buffers_;
};

}  // namespace fpfs
