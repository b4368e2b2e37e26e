// TaskCounter: work on the executor that somebody waits for before it goes.
//
// Thread safety: all methods from any thread, with any lock held, but wait().
#pragma once

#include <chrono>

#include "engine/base/mutex.h"
#include "engine/io/executor.h"

namespace fpfs {

class TaskCounter {
 public:
  // The executor outlives the tasks, and the counter their end.
  explicit TaskCounter(Executor& executor) : executor_(executor) {}

  // A task is outstanding until what it holds is gone, too.
  void post(Executor::Task task) { executor_.post(counted(std::move(task))); }
  void post_after(std::chrono::milliseconds delay, Executor::Task task) {
    executor_.post_after(delay, counted(std::move(task)));
  }
  unsigned outstanding() const;
  void wait();  // never in a simulation, which has one thread

 private:
  Executor::Task counted(Executor::Task task);

  Executor& executor_;
  mutable Mutex mutex_;
  CondVar none_left_;
  unsigned outstanding_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
