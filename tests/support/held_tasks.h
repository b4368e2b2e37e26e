// HeldTasks: an executor that runs its tasks when the test says so, on the thread of the test.
#pragma once

#include <deque>
#include <utility>

#include "engine/io/executor.h"

namespace fpfs::test {

class HeldTasks : public Executor {
 public:
  void post(Task task) override { tasks_.push_back(std::move(task)); }
  void post_after(std::chrono::milliseconds, Task task) override { post(std::move(task)); }
  size_t count() const { return tasks_.size(); }
  void run() {
    while (!tasks_.empty()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Task> tasks_;
};

}  // namespace fpfs::test
