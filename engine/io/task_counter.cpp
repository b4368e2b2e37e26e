#include "engine/io/task_counter.h"

#include <utility>

namespace fpfs {

Executor::Task TaskCounter::counted(Executor::Task task) {
  MutexLock lock(mutex_);
  ++outstanding_;
  return [this, task = std::move(task)]() mutable {
    task();
    task = nullptr;
    MutexLock done_lock(mutex_);
    if (--outstanding_ == 0) none_left_.notify_all();
  };
}

unsigned TaskCounter::outstanding() const {
  MutexLock lock(mutex_);
  return outstanding_;
}

void TaskCounter::wait() {
  MutexLock lock(mutex_);
  while (outstanding_ > 0) none_left_.wait(mutex_);
}

}  // namespace fpfs
