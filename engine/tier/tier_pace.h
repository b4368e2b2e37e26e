// TierPace: holds what is sent to a rate (a token bucket that is full after a second without use).
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "engine/base/mutex.h"

namespace fpfs {

class TierPace {
 public:
  static constexpr uint64_t kBurst_ns = 1'000'000'000;

  // Bytes per second, 0: any.
  explicit TierPace(uint64_t rate) : rate_(rate) {}

  // What was sent ahead of the rate stays so.
  void set_rate(uint64_t rate) {
    const MutexLock lock(mutex_);
    const uint64_t ahead_ns = due_ns_ - std::min(due_ns_, last_ns_);
    const double factor = rate == 0 ? 0 : static_cast<double>(rate_) / static_cast<double>(rate);
    if (ahead_ns > 0) due_ns_ = last_ns_ + static_cast<uint64_t>(static_cast<double>(ahead_ns) * factor);
    rate_ = rate;
  }
  // For so many bytes: how long to wait before they are sent. They count as sent. `now_ns`: by any clock; one that was
  // set back or forward costs a second at most.
  std::chrono::milliseconds send(uint64_t bytes, uint64_t now_ns) {
    const MutexLock lock(mutex_);
    if (rate_ == 0) return std::chrono::milliseconds(0);
    if (now_ns < last_ns_) due_ns_ = now_ns;
    last_ns_ = now_ns;
    due_ns_ = std::max(due_ns_, now_ns - std::min(now_ns, kBurst_ns));
    const uint64_t wait_ns = due_ns_ > now_ns ? due_ns_ - now_ns : 0;
    due_ns_ += static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_));
    return std::chrono::milliseconds((wait_ns + 999'999) / 1'000'000);
  }

 private:
  Mutex mutex_;
  uint64_t rate_ FPFS_GUARDED_BY(mutex_);
  uint64_t due_ns_ FPFS_GUARDED_BY(mutex_) = 0;   // when the next byte may go
  uint64_t last_ns_ FPFS_GUARDED_BY(mutex_) = 0;  // of the call before
};

}  // namespace fpfs
