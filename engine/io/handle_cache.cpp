#include "engine/io/handle_cache.h"

#include "engine/base/check.h"

namespace fpfs {

namespace {
// How many slots that are slow to close are passed over for one that is not.
constexpr unsigned kPassedOverMax = 16;
// That go at once when the process has no descriptors left.
constexpr unsigned kClosedAtOnce = 8;
}  // namespace

HandleCache::Pin HandleCache::find(Slot& slot) {
  MutexLock lock(mutex_);
  wait_until_closed(slot);
  if (!slot.handle_.is_open()) return {};
  if (slot.pins_++ == 0) unlink(slot);
  return {*this, slot};
}

// What is not wanted is closed behind the lock.
HandleCache::Pin HandleCache::insert(Slot& slot, ScopedHandle handle) {
  MutexLock lock(mutex_);
  wait_until_closed(slot);
  if (!slot.handle_.is_open()) {
    slot.handle_ = std::move(handle);
    slot.pins_ = 1;
    ++size_;
    while (size_ > handles_max_ && close_one()) {
    }
  } else if (slot.pins_++ == 0) {
    unlink(slot);
  }
  return {*this, slot};
}

void HandleCache::remove(Slot& slot) {
  FPFS_CHECK(close(slot), "a slot that somebody uses is not removed");
}

bool HandleCache::close(Slot& slot) {
  ScopedHandle handle;  // closed behind the lock
  MutexLock lock(mutex_);
  wait_until_closed(slot);
  if (slot.pins_ > 0) return false;
  if (!slot.handle_.is_open()) return true;
  unlink(slot);
  handle = std::move(slot.handle_);
  --size_;
  return true;
}

bool HandleCache::make_room() {
  MutexLock lock(mutex_);
  unsigned closed = 0;
  while (closed < kClosedAtOnce && close_one()) ++closed;
  return closed > 0;
}

size_t HandleCache::size() const {
  MutexLock lock(mutex_);
  return size_;
}

void HandleCache::unpin(Slot& slot) {
  MutexLock lock(mutex_);
  if (--slot.pins_ > 0) return;
  push(slot);
  while (size_ > handles_max_ && close_one()) {
  }
}

void HandleCache::wait_until_closed(Slot& slot) {
  while (slot.closing_) closed_.wait(mutex_);
}

void HandleCache::push(Slot& slot) {
  slot.older_ = newest_;
  slot.newer_ = nullptr;
  (newest_ != nullptr ? newest_->newer_ : oldest_) = &slot;
  newest_ = &slot;
}

void HandleCache::unlink(Slot& slot) {
  (slot.older_ != nullptr ? slot.older_->newer_ : oldest_) = slot.newer_;
  (slot.newer_ != nullptr ? slot.newer_->older_ : newest_) = slot.older_;
  slot.older_ = slot.newer_ = nullptr;
}

// Gives the lock up while it closes.
bool HandleCache::close_one() {
  if (oldest_ == nullptr) return false;
  Slot* chosen = oldest_;
  unsigned passed_over = 0;
  for (Slot* slot = oldest_; slot != nullptr && passed_over < kPassedOverMax; slot = slot->newer_, ++passed_over) {
    if (slot->is_slow_to_close()) continue;
    chosen = slot;
    break;
  }
  unlink(*chosen);
  chosen->closing_ = true;
  ScopedHandle handle = std::move(chosen->handle_);
  --size_;
  mutex_.unlock();
  chosen->before_close(handle.get());
  handle.reset();
  mutex_.lock();
  chosen->closing_ = false;
  closed_.notify_all();
  return true;
}

}  // namespace fpfs
