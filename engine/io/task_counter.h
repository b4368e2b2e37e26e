// TaskCounter: tasks, on the executor or on the workers, that somebody waits for before it goes.
//
// Thread safety: all methods from any thread, with any lock held, but wait().
#pragma once

#include <chrono>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/io/executor.h"

namespace fpfs {

class TaskCounter {
 public:
  // Environment::executor() and workers(). They outlive the tasks, and the counter their end.
  TaskCounter(Executor& executor, Executor& workers) : executor_(executor), workers_(workers) {}

  // A task is outstanding until what it holds is gone, too.
  void post(Executor::Task task) { executor_.post(counted(std::move(task))); }
  // One that computes and never waits for a drive.
  void post_work(Executor::Task task) { workers_.post(counted(std::move(task))); }
  void post_after(std::chrono::milliseconds delay, Executor::Task task) {
    executor_.post_after(delay, counted(std::move(task)));
  }
  unsigned outstanding() const;
  void wait();  // never in a simulation, which has one thread

 private:
  Executor::Task counted(Executor::Task task);

  Executor& executor_;
  Executor& workers_;
  mutable Mutex mutex_;
  CondVar none_left_;
  unsigned outstanding_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
