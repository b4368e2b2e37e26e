// LateCloses: removed files that the kernel has forgotten, whose handles are closed together, behind what it asks for.
//
// Closing the last handle of a removed file makes its filesystem give the inode up, which takes as long as half the
// removal did. The kernel forgets such a file beside the caller's next request, so who serves that caller alone would
// let it wait meanwhile. So they are gathered, and closed every kGathered by a thread that nobody waits for.
//
// What it brings: docs/benchmarks/row09.md ("ls, rm").
//
// Thread safety: all methods from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace fpfs {

// `Node`: what closes its handles when it is destroyed.
template <typename Node>
class LateCloses {
 public:
  static constexpr std::chrono::milliseconds kGathered{2};
  // More than these are not kept open: whoever brings them closes them.
  static constexpr size_t kMax = 256;

  // `run_later`: runs a task once on another thread, kGathered from now; whoever destroys this has waited for those.
  // `close`: clears what it is given. `has_room`: whether the filesystem has enough for what may be made meanwhile, as what
  // is open still takes room; asked for the first of those that are closed together. Without `run_later` nothing is taken.
  using RunLater = std::function<void(std::function<void()>)>;
  using Nodes = std::vector<std::unique_ptr<Node>>;
  using Close = std::function<void(Nodes&)>;
  using HasRoom = std::function<bool()>;
  LateCloses(RunLater run_later, Close close, HasRoom has_room)
      : run_later_(std::move(run_later)), close_(std::move(close)), has_room_(std::move(has_room)) {}
  LateCloses(const LateCloses&) = delete;
  LateCloses& operator=(const LateCloses&) = delete;

  // False: `node` is left to its owner, to be closed now.
  bool take(std::unique_ptr<Node>& node) {
    if (run_later_ == nullptr || (is_empty() && !has_room_())) return false;
    {
      const MutexLock lock(mutex_);
      if (has_ended_ || gathered_.size() >= kMax) return false;
      gathered_.push_back(std::move(node));
      if (gathered_.size() > 1) return true;  // somebody comes for it already
    }
    run_later_([this] { close_all(); });
    return true;
  }
  // Takes nothing from now on. What was taken is still closed later.
  void end() {
    const MutexLock lock(mutex_);
    has_ended_ = true;
  }

 private:
  bool is_empty() {
    const MutexLock lock(mutex_);
    return gathered_.empty();
  }
  void close_all() {
    Nodes nodes;
    {
      const MutexLock lock(mutex_);
      nodes.swap(gathered_);
    }
    close_(nodes);
  }

  const RunLater run_later_;
  const Close close_;
  const HasRoom has_room_;
  Mutex mutex_;
  bool has_ended_ FPFS_GUARDED_BY(mutex_) = false;
  Nodes gathered_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
