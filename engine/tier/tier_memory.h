// TierMemory: the one fixed allotment of memory that copies pass through, and how many parts of files are on their way
// at a time. Whoever finds it used up is called when it is his turn, in the order of asking, so that a large part is
// not passed by small ones for ever.
//
// Thread safety: all methods from any thread, with any lock held that `ready` does not take. `ready` is called from
// take(), give_back() or close(), without the lock of this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/mutex.h"

namespace fpfs {

class TierMemory {
 public:
  // Empty: nothing will come any more.
  using Ready = std::function<void(std::span<std::byte>)>;

  // `bytes` in all, in multiples of `unit`, a power of two from kIoAlignment on; `pieces_max` of them in use at a time.
  // Takes the addresses at once and memory as it is first used.
  TierMemory(uint64_t bytes, uint32_t unit, unsigned pieces_max);
  TierMemory(const TierMemory&) = delete;
  TierMemory& operator=(const TierMemory&) = delete;
  ~TierMemory();

  // Calls `ready` once, now or later, with `bytes` of memory aligned to kIoAlignment, and as much behind them as makes
  // whole units. At most largest().
  void take(size_t bytes, Ready ready);
  void give_back(std::span<std::byte> piece);
  // Whoever waits gets nothing, as does whoever asks later.
  void close();
  // Nobody is called any more.
  void abandon();
  // What one may ask for: half of all, so that one part is read while another one is on its way.
  size_t largest() const { return largest_; }
  uint64_t in_use() const;

 private:
  struct Waiter {
    size_t bytes = 0;
    Ready ready;
  };
  // The first unit of so many that are free behind each other; units_.size(): there are none.
  size_t find(size_t units) const FPFS_REQUIRES(mutex_);
  std::span<std::byte> try_take(size_t bytes) FPFS_REQUIRES(mutex_);

  const uint32_t unit_;
  const unsigned pieces_max_;
  size_t largest_ = 0;
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;

  mutable Mutex mutex_;
  std::vector<bool> used_ FPFS_GUARDED_BY(mutex_);  // of each unit
  unsigned pieces_ FPFS_GUARDED_BY(mutex_) = 0;
  bool closed_ FPFS_GUARDED_BY(mutex_) = false;
  std::deque<Waiter> waiters_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
