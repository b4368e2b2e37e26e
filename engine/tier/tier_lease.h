// TierLease: whether an array may still change what it has copied to a store. It may while its fence (tier_fence.h) was
// seen to be its own less than `duration` ago; then it is looked at again. Reading is not bound by it.
//
// Stores that have a lease ask it before each attempt of a call that changes something, and about once a second while
// one is on its way, which is given up when the lease has run out (s3_store.h, file_store.h). So whoever takes the
// copies over writes the fence, waits for `duration`, a second and what the service does with what it has received whole
// by then, and is alone: a machine that still runs, comes back from behind a network that was cut, or was suspended,
// replaces nothing.
//
// What has no lease of time: a machine that stood still as a whole (a virtual one whose clock stops with it) between a
// look and the call behind it.
//
// Thread safety: all methods from any thread but a thread of `looks`; what when_known() is given is called on the
// caller's, or on one of those.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/tier/object_store.h"
#include "engine/tier/tier_fence.h"

namespace fpfs {

class TierLease {
 public:
  using Then = std::function<void(const Status&)>;

  // `looks`: the same store once more, for the looks alone, which wait for nothing that is copied. `fences`: tokens that
  // are the array's own; with an empty one among them also none. `array_id` as text.
  TierLease(std::unique_ptr<ObjectStore> looks, std::string array_id, std::chrono::milliseconds duration,
            std::vector<std::string> fences)
      : looks_(std::move(looks)), array_id_(std::move(array_id)), duration_(duration), fences_(std::move(fences)) {}
  ~TierLease() { close(); }
  TierLease(const TierLease&) = delete;
  TierLease& operator=(const TierLease&) = delete;

  // The array's own from now on. Before one of them is written.
  void own(std::vector<std::string> fences);
  // The copies have become another array's.
  bool is_lost() const;

  // Now, without waiting. From a quarter of the time on there is a new look behind it, so that what goes on need not end:
  // also when the store answers slowly, or one answer is lost (`looks` is to give up each attempt after half the time).
  bool holds();
  // Calls `then` once it is known whether something may be changed. kWrongStore: it must not; what could not be found
  // out fails as reading the fence did; kUnreachable also when that took longer than `duration`.
  void when_known(Then then);
  // The same, and blocks until then.
  Status wait();

  // Ends looks under way: who waits gets kCancelled, as everybody from then on does.
  void close();

 private:
  using Time = std::chrono::nanoseconds;  // since the machine has started, also while it was suspended

  void look();
  void was_read(const Result<TierFence>& stored);

  const std::unique_ptr<ObjectStore> looks_;
  const std::string array_id_;
  const std::chrono::milliseconds duration_;
  mutable Mutex mutex_;
  std::vector<std::string> fences_ FPFS_GUARDED_BY(mutex_);
  std::optional<Time> seen_at_ FPFS_GUARDED_BY(mutex_);  // as the array's own, the last time
  Time asked_at_ FPFS_GUARDED_BY(mutex_){};
  bool is_asked_ FPFS_GUARDED_BY(mutex_) = false;
  bool is_lost_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<Then> waiting_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
