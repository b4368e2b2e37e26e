// CaughtRequests: that what the kernel lets go of stays while a request may still use it.
//
// The kernel keeps a node and a handle as long as a request that names them is unanswered. A request that is answered in
// its place, because a call of its own does not come back from a drive that hangs (fs/transport/reply_watch.h), goes on
// when the drive does, and the process that was told may have closed and forgotten everything by then. So what FORGET,
// RELEASE and RELEASEDIR let go of, which nobody waits for, goes when no such request names it any more. Until then a
// handle has ended in every other way: its writer is detached, and what such a request still writes nobody commits.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {

class CaughtRequests {
 public:
  using Task = std::function<void()>;
  // `run_in_background`: runs what was put off, which may take locks that an answer is given under.
  explicit CaughtRequests(std::function<void(Task)> run_in_background)
      : run_in_background_(std::move(run_in_background)) {}

  // A request that names these is about to be answered in its place.
  void begin(const wire::Names& names);
  // It has ended, and uses nothing of what it named any more.
  void end(const wire::Names& names);
  // Calls `let_go`, which ends what the kernel knows as `name` (a node or a handle): at once, or, while caught requests
  // name it, in the background once none does.
  template <typename LetGo>
  void when_unused(uint64_t name, LetGo let_go) {
    if (is_any_.load()) return put_off(name, std::move(let_go));
    let_go();
  }

 private:
  struct Use {
    unsigned requests = 0;
    std::vector<Task> put_off;
  };
  void put_off(uint64_t name, Task let_go);

  const std::function<void(Task)> run_in_background_;
  std::atomic<bool> is_any_{false};  // whether uses_ has something; changed with it
  Mutex mutex_;
  std::unordered_map<uint64_t, Use> uses_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
