#include "engine/io/own_task.h"

#include <utility>

#include "engine/io/thread_executor.h"

namespace fpfs {

thread_local OwnTask* OwnTask::t_current = nullptr;
thread_local bool OwnTask::t_takes = false;

OwnTask::OwnTask(Keeps keeps) : is_inner_(t_current != nullptr), keeps_(keeps) {
  if (is_inner_) return;
  t_current = this;
  t_takes = true;
}

OwnTask::~OwnTask() {
  (void)run();
  if (!is_inner_) t_current = nullptr;
}

bool OwnTask::keep(ThreadExecutor& executor, std::function<void()>& task) {
  if (!std::exchange(t_takes, false)) return false;
  t_current->executor_ = &executor;
  t_current->task_ = std::move(task);
  return true;
}

void OwnTask::pass_on() {
  if (is_inner_ || !task_ || !executor_->is_keeping_up()) return;
  executor_->post(std::exchange(task_, nullptr));
  executor_->kept_task_ended();
}

bool OwnTask::run() {
  if (is_inner_) return false;
  t_takes = false;
  const bool has_task = task_ != nullptr;
  while (task_) {
    ThreadExecutor& executor = *executor_;
    t_takes = keeps_ == Keeps::kEach;
    std::exchange(task_, nullptr)();  // its captures die before it counts as done
    t_takes = false;
    executor.kept_task_ended();
  }
  return has_task;
}

}  // namespace fpfs
