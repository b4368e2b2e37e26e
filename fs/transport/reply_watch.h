// ReplyWatch: which requests the kernel still waits for, so that none waits for ever when a drive hangs
// (engine/io/stall_watch.h). A process whose request is not answered sits in an uninterruptible sleep.
//
// Requests for file content and commits are answered by the engine, which gives up by itself. All others touch the
// tree, on a worker's thread or behind it; the ones that take too long while a drive hangs are answered with EIO in
// their place, and the answer that may come after all is held back.
//
// Thread safety: all methods from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/base/mutex.h"

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
  // Requests that come side by side do not wait for each other here.
  struct alignas(64) Shard {
    void count() FPFS_REQUIRES(mutex) { known.store(waiting.size() + given_up.size(), std::memory_order_relaxed); }

    Mutex mutex;
    std::unordered_map<uint64_t, uint64_t> waiting FPFS_GUARDED_BY(mutex);  // unique → began
    std::unordered_set<uint64_t> given_up FPFS_GUARDED_BY(mutex);
    std::atomic<size_t> known{0};  // in either: most answers are to requests that are in neither
  };
  static constexpr size_t kShards = 64;
  // The kernel counts requests by two (FUSE_REQ_ID_STEP).
  Shard& shard_of(uint64_t unique) { return shards_[unique / 2 % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace fpfs
