// AwaitedThread: whether somebody waits for the thread that runs. A member's queue says so of its own (AioQueue): there
// are further completions, or arrivals. What takes long, as hashing a chunk or copying it to its reader does, is then
// better handed to the workers, so that it goes side by side for many chunks; with nobody waiting the thread does it at
// once, which saves waking another. (Who submits to a queue asks IoQueue::is_idle() instead.)
//
// Thread safety: it is about the calling thread only.
#pragma once

#include <cstdint>

namespace fpfs {

// From so many bytes on, copying or hashing them costs more than having another thread do it.
constexpr uint32_t kHandedOverMin = 64 * 1024;

class AwaitedThread {
 public:
  static bool is_this() { return awaited_; }

  // Says so for a scope.
  class Scope {
   public:
    explicit Scope(bool awaited) : outer_(awaited_) { awaited_ = awaited; }
    ~Scope() { awaited_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const bool outer_;
  };

 private:
  static inline thread_local bool awaited_ = false;
};

}  // namespace fpfs
