// ThreadExecutor: an Executor with a number of threads, and one more that keeps time for delayed tasks.
//
// Tasks start in the order of post(), but for one that its thread keeps (engine/io/own_task.h), or passes on later. They
// may block; as many may block as there are threads before others wait. When all are blocked and none has come back for
// kStuckAfter, one more thread is started, up to kThreadsMax: tasks that wait for one drive that hangs must not keep the
// others from theirs.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/io/executor.h"

namespace fpfs {

class ThreadExecutor final : public Executor {
 public:
  static constexpr std::chrono::milliseconds kStuckAfter{1000};
  static constexpr size_t kThreadsMax = 128;
  // `name`: what its threads are called, with their number; at most 12 characters.
  explicit ThreadExecutor(unsigned threads, std::string name = "fpfs-call");
  ~ThreadExecutor() override;  // stops
  void post(Task task) override;
  void post_after(std::chrono::milliseconds delay, Task task) override;
  // Drops delayed tasks that are not due, runs everything else, also what running tasks still post, and ends the
  // threads. After it post() aborts and post_after() drops. Not from a task. Calling it again does nothing.
  void stop();

 private:
  friend class OwnTask;
  using Clock = std::chrono::steady_clock;
  void kept_task_ended();
  bool is_keeping_up();  // fewer tasks wait than there are threads
  void run_tasks();
  void run_timer();
  void start_worker() FPFS_REQUIRES(mutex_);
  bool want_watch() FPFS_REQUIRES(mutex_);
  bool all_are_busy() const FPFS_REQUIRES(mutex_) { return running_ == workers_ && !tasks_.empty(); }

  const std::string name_;
  Mutex mutex_;
  CondVar work_;
  CondVar timer_;
  std::deque<Task> tasks_ FPFS_GUARDED_BY(mutex_);
  std::multimap<Clock::time_point, Task> delayed_ FPFS_GUARDED_BY(mutex_);
  unsigned running_ FPFS_GUARDED_BY(mutex_) = 0;  // tasks that run now
  unsigned kept_ FPFS_GUARDED_BY(mutex_) = 0;     // tasks that threads of others run or will run
  unsigned workers_ FPFS_GUARDED_BY(mutex_) = 0;
  Clock::time_point last_start_ FPFS_GUARDED_BY(mutex_);  // of a task
  bool is_watched_ FPFS_GUARDED_BY(mutex_) = false;       // the timer looks whether busy threads come back
  bool stopping_ FPFS_GUARDED_BY(mutex_) = false;
  bool stopped_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ FPFS_GUARDED_BY(mutex_);
  std::thread timer_thread_;
};

}  // namespace fpfs
