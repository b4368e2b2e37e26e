// When a call that failed for the moment is tried again: after a pause that doubles from attempt to attempt and is
// drawn at random below that ("full jitter": callers that failed together do not come back together), not before the
// service said (Retry-After), until the call's deadline.
//
// Thread safety: values; a RetryState belongs to one call.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace fpfs {

struct RetryPolicy {
  std::chrono::milliseconds pause_first{100};  // the first pause is drawn from 0 to this
  std::chrono::milliseconds pause_max{20'000};
  std::chrono::milliseconds deadline{300'000};  // from the beginning of the call; no attempt begins after it
};

class RetryState {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // `begin`: the time on any clock that does not go back.
  RetryState(const RetryPolicy& policy, Milliseconds begin) : policy_(policy), begin_(begin) {}

  // The pause before the next attempt; none: the call has failed. `random`: evenly drawn from all values.
  std::optional<Milliseconds> next_pause(Milliseconds now, Milliseconds retry_after, uint64_t random) {
    const int64_t limit = std::min(policy_.pause_max.count(), policy_.pause_first.count() << std::min(attempts_, 20u));
    ++attempts_;
    const Milliseconds drawn(static_cast<int64_t>(random % static_cast<uint64_t>(limit + 1)));
    const Milliseconds pause = std::max(drawn, retry_after);
    if (now - begin_ + pause >= policy_.deadline) return std::nullopt;
    return pause;
  }
  unsigned attempts() const { return attempts_; }  // that failed

 private:
  RetryPolicy policy_;
  Milliseconds begin_;
  unsigned attempts_ = 0;
};

}  // namespace fpfs
