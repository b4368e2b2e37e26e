// ReplyWatch: which requests the kernel still waits for, so that none waits for ever when a drive hangs
// (engine/io/stall_watch.h). A process whose request is not answered sits in an uninterruptible sleep.
//
// Requests for file content and commits are answered by the engine, which gives up by itself. All others touch the
// tree, on a worker's thread or behind it; the ones that take too long while a drive hangs are answered with EIO in
// their place, and the answer that may come after all is held back. Until then they are caught
// (fs/nodes/caught_requests.h).
//
// Thread safety: all methods from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "fs/nodes/caught_requests.h"
#include "fs/protocol/fuse_wire.h"
#include "fs/protocol/request_slots.h"
#include "fs/protocol/shared_names.h"

namespace fpfs {

class ReplyWatch {
 public:
  // `caught` outlives it.
  explicit ReplyWatch(CaughtRequests& caught) : caught_(caught) {}
  // A request was received.
  void begin(const wire::RequestFacts& request);
  // An answer to it is about to be sent. False: it was answered in its place, nothing is to be sent.
  bool may_reply(uint64_t unique);
  // The requests that began at or before `since_ns` (monotonic_ns()) and were not answered. The caller
  // answers them; further answers are held back.
  std::vector<uint64_t> give_up(uint64_t since_ns);
  // The same for one whose thread is caught in a call, of any kind. False: nothing is to be sent. That was done before, or
  // the request is never answered, or it is of a kind that is watched and was answered.
  bool give_up_one(const wire::RequestFacts& request);
  // The kernel does not wait for an answer to it any more: it was answered before it was given up, or the answer was on
  // its way meanwhile. No other comes that could be held back.
  void had_answer(uint64_t unique);

 private:
  // A request that is waited for, in the place that its number leads to.
  struct alignas(64) Slot {
    static constexpr uint64_t kFree = 0;
    static constexpr uint64_t kTaken = 1;  // whoever set it owns the slot; no request has this number
    std::atomic<uint64_t> unique{kFree};
    std::atomic<uint64_t> began_ns{0};  // 0: not known yet
    SharedNames names;
    // False: it has another request, or none.
    bool take(uint64_t number);
  };

  // How many of `others_` and `given_up_` there are among the requests of this one's kind: most answers are to requests
  // that are in neither, and need not look.
  std::atomic<unsigned>& known(uint64_t unique) { return known_[unique / 2 % known_.size()]; }
  struct Other {
    uint64_t began_ns = 0;
    wire::Names names{};
  };
  void give_up_locked(uint64_t unique, const wire::Names& names) FPFS_REQUIRES(mutex_);
  bool forget_locked(uint64_t unique) FPFS_REQUIRES(mutex_);
  bool stop_waiting_locked(uint64_t unique) FPFS_REQUIRES(mutex_);

  CaughtRequests& caught_;
  const std::unique_ptr<RequestSlots<Slot>> slots_ = std::make_unique<RequestSlots<Slot>>();
  Mutex mutex_;
  std::unordered_map<uint64_t, Other> others_ FPFS_GUARDED_BY(mutex_);  // whose slot has another
  std::unordered_map<uint64_t, wire::Names> given_up_ FPFS_GUARDED_BY(mutex_);
  std::array<std::atomic<unsigned>, 64> known_{};
};

}  // namespace fpfs
