// AwaitedThread: whether somebody waits for the thread that runs. A member's queue says so of its own (AioQueue): there
// are further completions, or arrivals. What takes long, as copying a chunk to its reader does, is then better handed
// to the executor, so that the copies for many readers go side by side; with nobody waiting the thread does it at once,
// which saves waking another.
//
// Thread safety: it is about the calling thread only.
#pragma once

namespace fpfs {

class AwaitedThread {
 public:
  static bool is_this() { return awaited_; }

  // Says so for a scope.
  class Scope {
   public:
    explicit Scope(bool awaited) { awaited_ = awaited; }
    ~Scope() { awaited_ = false; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  static inline thread_local bool awaited_ = false;
};

}  // namespace fpfs
