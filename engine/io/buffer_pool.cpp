#include "engine/io/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "engine/io/awaited_thread.h"
#include "engine/io/stall_watch.h"

namespace fpfs {
namespace {

constexpr size_t kHugePage = 2 * kMiB;

// `bytes` (a multiple of kHugePage) of zeroed memory at a multiple of kHugePage; nullptr with errno on failure.
std::byte* map_aligned(size_t bytes) {
  void* mapped =
      ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(start);
  const size_t before = round_up(address, kHugePage) - address;
  const size_t after = kHugePage - before;
  if (before > 0) ::munmap(start, before);
  if (after > 0) ::munmap(start + before + bytes, after);
  // All three are wishes: a kernel without huge pages, or with them switched off, gives small ones.
  (void)::madvise(start + before, bytes, MADV_HUGEPAGE);
  (void)::madvise(start + before, bytes, MADV_DONTFORK);
  (void)::madvise(start + before, bytes, MADV_DONTDUMP);
  return start + before;
}

}  // namespace

// --- life ------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<BufferPool>> BufferPool::create(uint64_t bytes, uint32_t buffer_size) {
  if (buffer_size == 0 || buffer_size % kIoAlignment != 0)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("buffers of {} bytes: not a multiple of {}", buffer_size, kIoAlignment));
  const uint64_t count = bytes / buffer_size;
  if (count < kBuffersMin)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("buffer memory of {} holds {} of {}; give it at least {}", format_size(bytes),
                                     format_count(count, "chunk"), format_size(buffer_size),
                                     format_size(uint64_t{kBuffersMin} * buffer_size)));
  if (count > UINT32_MAX)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("buffer memory of {} is more than any machine has", format_size(bytes)));
  const size_t mapping_bytes = round_up(count * buffer_size, kHugePage);
  std::byte* mapping = map_aligned(mapping_bytes);
  if (mapping == nullptr)
    return Status::from_errno(errno, fmt::format("map {} of buffer memory", format_size(mapping_bytes)));
  return std::unique_ptr<BufferPool>(new BufferPool(mapping, mapping_bytes, buffer_size, static_cast<unsigned>(count)));
}

BufferPool::BufferPool(std::byte* mapping, size_t mapping_bytes, uint32_t buffer_size, unsigned count)
    : mapping_(mapping), mapping_bytes_(mapping_bytes), buffer_size_(buffer_size), buffers_(count) {
  MutexLock lock(mutex_);
  for (unsigned i = 0; i < count; ++i) {
    buffers_[i].data = mapping_ + size_t{i} * buffer_size_;
    buffers_[i].index = i;
    push(buffers_[i], Buffer::List::kFree, false);
  }
}

BufferPool::~BufferPool() {
  ::munmap(mapping_, mapping_bytes_);
}

bool BufferPool::populate_some() {
  const size_t length = std::min(mapping_bytes_ - populated_, kPopulatedAtOnce);
  if (length == 0 || ::madvise(mapping_ + populated_, length, MADV_POPULATE_WRITE) != 0) return false;
  populated_ += length;
  return true;
}

// --- lists -----------------------------------------------------------------------------------------------------------

BufferPool::List& BufferPool::list_of(const Buffer& buffer) {
  return buffer.list == Buffer::List::kFree ? free_ : evictable_;
}

void BufferPool::push(Buffer& buffer, Buffer::List to, bool front) {
  FPFS_CHECK(buffer.list == Buffer::List::kNone && to != Buffer::List::kNone, "a buffer is on one list at a time");
  buffer.list = to;
  List& list = list_of(buffer);
  front ? list.push_front(buffer) : list.push_back(buffer);
  if (to == Buffer::List::kFree && buffer.touched) ++touched_free_;
}

void BufferPool::remove(Buffer& buffer) {
  FPFS_CHECK(buffer.list != Buffer::List::kNone, "a buffer is taken off the list that it is on");
  List& list = list_of(buffer);
  if (buffer.list == Buffer::List::kFree && buffer.touched) --touched_free_;
  list.remove(buffer);
  buffer.list = Buffer::List::kNone;
}

// --- taking ----------------------------------------------------------------------------------------------------------

bool BufferPool::acquire(unsigned count, Buffer** out, Waiter* waiter, BufferOwner* held) {
  FPFS_CHECK(count <= total() / 2, "a request may take at most half of the pool, or it could wait for ever");
  bool is_short = false;
  bool ask_retry = false;
  {
    MutexLock lock(mutex_);
    // The first acquire() of a waiter's callback is the waiter's turn. Anybody else stands behind those who wait, among
    // whom is, for other threads, the one that is being called just now.
    const bool in_callback = waking_ && waking_thread_ == std::this_thread::get_id();
    const bool has_turn = in_callback && !turn_taken_;
    if (has_turn) turn_taken_ = true;
    const bool must_queue = !has_turn && (!waiters_.is_empty() || (waking_ && !in_callback));
    bool was_busy = false;
    if (!must_queue && gather(count, held, &was_busy)) {
      for (unsigned i = 0; i < count; ++i) {
        out[i] = free_.front();
        remove(*out[i]);
        out[i]->touched = true;
      }
      return true;
    }
    if (waiter == nullptr) return false;
    FPFS_CHECK(retry_hook_ != nullptr, "a pool whose users wait needs a retry hook");
    is_short = !waiters_.is_empty() || free_.count() + evictable_.count() < count;
    waiter->count = count;
    enqueue(*waiter, has_turn);
    if (has_turn)
      turn_failed_ = was_busy;  // wake() asks for the retry, when it stops
    else
      ask_retry = was_busy && !std::exchange(busy_retry_wanted_, true);
  }
  if (ask_retry) retry_hook_(retry_context_, kRetryBusy);
  if (is_short && pressure_hook_ != nullptr) pressure_hook_(pressure_context_);
  return false;
}

bool BufferPool::acquire_ahead(Buffer** out, BufferOwner* held) {
  {
    const MutexLock lock(mutex_);
    if (2 * ahead_ >= free_.count() + evictable_.count()) return false;
  }
  if (!acquire(1, out, nullptr, held)) return false;
  const MutexLock lock(mutex_);
  (*out)->ahead = true;
  ++ahead_;
  return true;
}

void BufferPool::forget_ahead(Buffer& buffer) {
  if (std::exchange(buffer.ahead, false)) --ahead_;
}

// Brings the free list to at least `count`, and what was used before to its head, by evictions. On failure what was
// evicted stays free.
bool BufferPool::gather(unsigned count, BufferOwner* held, bool* was_busy) {
  if (free_.count() + evictable_.count() < count) return false;
  for (Buffer* buffer = evictable_.front(); buffer != nullptr;) {
    const bool enough = buffer->cold ? touched_free_ >= count : free_.count() >= count;
    if (enough) break;
    Buffer* const next = List::next(*buffer);
    if (!evict(*buffer, held)) {
      *was_busy = true;
      if (free_.count() >= count) break;
    }
    buffer = next;
  }
  return free_.count() >= count;
}

bool BufferPool::evict(Buffer& buffer, BufferOwner* held) {
  if (buffer.owner == held)
    held->evict_locked(buffer);
  else if (!buffer.owner->try_evict(buffer))
    return false;
  remove(buffer);
  forget_ahead(buffer);
  buffer.owner = nullptr;
  push(buffer, Buffer::List::kFree, true);
  ++counters_.evictions;
  return true;
}

// --- giving back -----------------------------------------------------------------------------------------------------

void BufferPool::release(Buffer& buffer) {
  freed(buffer, Buffer::List::kFree, true);
}

void BufferPool::make_evictable(Buffer& buffer, bool cold) {
  freed(buffer, Buffer::List::kEvictable, cold);
}

void BufferPool::freed(Buffer& buffer, Buffer::List to, bool front) {
  bool ask_retry = false;
  {
    MutexLock lock(mutex_);
    if (buffer.list == Buffer::List::kEvictable) remove(buffer);
    if (to == Buffer::List::kFree) {
      buffer.owner = nullptr;
      forget_ahead(buffer);
    }
    FPFS_CHECK(to == Buffer::List::kFree || buffer.owner != nullptr, "an evictable buffer has an owner to ask");
    buffer.cold = to == Buffer::List::kEvictable && front;
    push(buffer, to, front);
    // A thread that is calling waiters looks again before it stops.
    ask_retry = head_may_go_on() && !waking_ && !std::exchange(retry_in_case_wanted_, true);
  }
  if (ask_retry) retry_hook_(retry_context_, kRetryInCase);
}

void BufferPool::make_busy(Buffer& buffer) {
  MutexLock lock(mutex_);
  FPFS_CHECK(buffer.list != Buffer::List::kFree, "a free buffer is acquired, not made busy");
  forget_ahead(buffer);
  if (buffer.list == Buffer::List::kEvictable) remove(buffer);
}

// --- waiting ---------------------------------------------------------------------------------------------------------

void BufferPool::enqueue(Waiter& waiter, bool at_head) {
  at_head ? waiters_.push_front(waiter) : waiters_.push_back(waiter);
  waiter.expired = false;
  if (!at_head) waiter.since_ns = monotonic_ns();
  waiting_.fetch_add(1);
  if (!at_head) ++counters_.waits;
}

bool BufferPool::head_may_go_on() const {
  return !waiters_.is_empty() && free_.count() + evictable_.count() >= waiters_.front()->count;
}

// Once this one, who has its turn, has what it waits for.
bool BufferPool::others_may_go_on(const Waiter& first) const {
  return !waiters_.is_empty() && free_.count() + evictable_.count() >= first.count + waiters_.front()->count;
}

void BufferPool::run_waiters() {
  // A waiter that is queued while this reads zero saw, under the lock, everything that the caller had freed before.
  if (waiting_.load() > 0) wake();
}

void BufferPool::retry_waiters(std::chrono::milliseconds delay) {
  {
    const MutexLock lock(mutex_);
    (delay == kRetryBusy ? busy_retry_wanted_ : retry_in_case_wanted_) = false;
  }
  wake();
}

void BufferPool::expire_waiters(uint64_t since_ns) {
  IntrusiveList<Waiter, &Waiter::link> expired;
  {
    MutexLock lock(mutex_);
    waiters_.for_each([&](Waiter& waiter) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      if (waiter.since_ns > since_ns) return;
      waiters_.remove(waiter);
      waiting_.fetch_sub(1);
      waiter.expired = true;
      expired.push_front(waiter);
    });
  }
  while (Waiter* const waiter = expired.pop_front()) waiter->ready(*waiter);
  run_waiters();
}

void BufferPool::wake() {
  bool ask_retry = false;
  mutex_.lock();
  // One thread at a time, and no recursion: the running one sees what the other has freed, since it looks at the lists
  // again, under the lock, before it stops.
  if (!waking_) {
    waking_ = true;
    waking_thread_ = std::this_thread::get_id();
    turn_failed_ = false;
    while (head_may_go_on() && !turn_failed_) {
      Waiter* const waiter = waiters_.pop_front();
      waiting_.fetch_sub(1);
      turn_taken_ = false;
      const bool others_wait = others_may_go_on(*waiter);
      mutex_.unlock();
      {
        const AwaitedThread::Scope awaited(AwaitedThread::is_this() || others_wait);
        waiter->ready(*waiter);  // may be gone when this returns, or queued again at the head
      }
      mutex_.lock();
    }
    waking_ = false;
    // Buffers are there, but their owner was busy. It may never come back to the pool, so somebody must look again.
    ask_retry = turn_failed_ && head_may_go_on() && !std::exchange(busy_retry_wanted_, true);
  }
  mutex_.unlock();
  if (ask_retry) retry_hook_(retry_context_, kRetryBusy);
}

// --- state -----------------------------------------------------------------------------------------------------------

void BufferPool::set_pressure_hook(PressureHook hook, void* context) {
  pressure_hook_ = hook;
  pressure_context_ = context;
}

void BufferPool::set_retry_hook(RetryHook hook, void* context) {
  retry_hook_ = hook;
  retry_context_ = context;
}

bool BufferPool::is_low() const {
  MutexLock lock(mutex_);
  return free_.count() + evictable_.count() < total() / 4;
}

BufferPool::Counters BufferPool::counters() const {
  MutexLock lock(mutex_);
  Counters counters = counters_;
  counters.total = total();
  counters.free = free_.count();
  counters.evictable = evictable_.count();
  counters.waiting = waiting_.load();
  return counters;
}

Status BufferPool::no_buffer_comes() {
  return Status::error(StatusCode::kIoError,
                       "no buffer came free: a member that does not answer keeps them (fpfs status says which)");
}

}  // namespace fpfs
