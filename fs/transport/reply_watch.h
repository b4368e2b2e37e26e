// ReplyWatch: which requests the kernel still waits for, so that none waits for ever when a drive hangs
// (engine/io/stall_watch.h). A process whose request is not answered sits in an uninterruptible sleep.
//
// Requests for file content and commits are answered by the engine, which gives up by itself. All others touch the
// tree, on a worker's thread or behind it; the ones that take too long while a drive hangs are answered with EIO in
// their place, and the answer that may come after all is held back.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/base/mutex.h"
#include "fs/protocol/request_slots.h"

namespace fpfs {

class ReplyWatch {
 public:
  // A request was received.
  void begin(uint64_t unique, uint32_t opcode);
  // An answer to it is about to be sent. False: it was answered in its place, nothing is to be sent.
  bool may_reply(uint64_t unique);
  // The requests that began at or before `since_ns` (monotonic_ns()) and were not answered. The caller
  // answers them; further answers are held back.
  std::vector<uint64_t> give_up(uint64_t since_ns);
  // The same for one that is not watched here. False: that was done before.
  bool give_up_one(uint64_t unique);

 private:
  // A request that is waited for, in the place that its number leads to.
  struct alignas(64) Slot {
    static constexpr uint64_t kFree = 0;
    static constexpr uint64_t kTaken = 1;  // whoever set it owns the slot; no request has this number
    std::atomic<uint64_t> unique{kFree};
    std::atomic<uint64_t> began_ns{0};  // 0: not known yet
    // False: it has another request, or none.
    bool take(uint64_t number);
  };

  void count() FPFS_REQUIRES(mutex_) { known_.store(others_.size() + given_up_.size(), std::memory_order_relaxed); }

  const std::unique_ptr<RequestSlots<Slot>> slots_ = std::make_unique<RequestSlots<Slot>>();
  Mutex mutex_;
  std::unordered_map<uint64_t, uint64_t> others_ FPFS_GUARDED_BY(mutex_);  // whose slot has another: unique → began
  std::unordered_set<uint64_t> given_up_ FPFS_GUARDED_BY(mutex_);
  std::atomic<size_t> known_{0};  // in either: most answers are to requests that are in neither
};

}  // namespace fpfs
