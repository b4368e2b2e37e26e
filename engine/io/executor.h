// Executor: where blocking work that is not a bulk transfer runs (fdatasync, sidecar appends, object removal,
// background commits), so that no FUSE worker waits for a drive. ThreadExecutor has threads; the simulation runs tasks
// one at a time in seeded order.
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
