// Executor: where tasks run, so that nobody who has others waiting does them. An environment has two: one for blocking
// calls that are no bulk transfers (fdatasync, sidecar appends, object removal), so that no FUSE worker waits for a
// drive; and the workers, for what takes a processor long (hashing, encoding, copying), so that no member's thread does
// it for all of its chunks. ThreadExecutor has threads; the simulation runs tasks one at a time in seeded order.
//
// Thread safety: post() from any thread, also from inside a task, also while holding locks: the task never runs inside
// post(). Tasks posted before stop() run; stop() waits for them.
#pragma once

#include <chrono>
#include <functional>

namespace fpfs {

class Executor {
 public:
  using Task = std::function<void()>;
  virtual ~Executor() = default;
  virtual void post(Task task) = 0;
  // Runs `task` once, no earlier than after `delay` (the simulation: at some later step). Pending delayed tasks are
  // dropped by stop().
  virtual void post_after(std::chrono::milliseconds delay, Task task) = 0;
};

}  // namespace fpfs
