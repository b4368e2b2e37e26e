#include "engine/io/thread_executor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/io/named_thread.h"
#include "engine/io/own_task.h"

namespace fpfs {

ThreadExecutor::ThreadExecutor(unsigned threads, std::string name) : name_(std::move(name)) {
  FPFS_CHECK(threads > 0, "an executor needs a thread");
  {
    MutexLock lock(mutex_);
    for (unsigned i = 0; i < threads; ++i) start_worker();
  }
  timer_thread_ = start_thread("fpfs-timer", [this] { run_timer(); });
}

// True when the timer has to be woken, to look whether the busy threads ever come back.
bool ThreadExecutor::want_watch() {
  return all_are_busy() && !std::exchange(is_watched_, true);
}

void ThreadExecutor::start_worker() {
  threads_.push_back(start_thread(fmt::format("{}-{}", name_, workers_), [this] { run_tasks(); }));
  ++workers_;
}

ThreadExecutor::~ThreadExecutor() {
  stop();
}

void ThreadExecutor::post(Task task) {
  bool wake_timer = false;
  {
    MutexLock lock(mutex_);
    FPFS_CHECK(!stopped_, "nothing is posted to a stopped executor");
    if (OwnTask::keep(*this, task)) {
      ++kept_;
      return;
    }
    tasks_.push_back(std::move(task));
    wake_timer = want_watch();
  }
  work_.notify_one();
  if (wake_timer) timer_.notify_one();
}

void ThreadExecutor::post_after(std::chrono::milliseconds delay, Task task) {
  const Clock::time_point due = Clock::now() + delay;
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    const auto position = delayed_.emplace(due, std::move(task));
    is_first = position == delayed_.begin();
  }
  if (is_first) timer_.notify_one();
}

void ThreadExecutor::stop() {
  std::multimap<Clock::time_point, Task> dropped;  // destroyed without the lock: captures may call back
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(delayed_);
  }
  timer_.notify_all();
  work_.notify_all();
  if (timer_thread_.joinable()) timer_thread_.join();
  std::vector<std::thread> threads;  // no more are started now
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(mutex_);
  stopped_ = true;
}

void ThreadExecutor::run_tasks() {
  for (;;) {
    Task task;
    bool wake_timer = false;
    {
      MutexLock lock(mutex_);
      // While stopping, a thread without work waits for the running tasks too: they may still post.
      while (tasks_.empty() && !(stopping_ && running_ == 0 && kept_ == 0)) work_.wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      ++running_;
      last_start_ = Clock::now();
      wake_timer = want_watch();
    }
    if (wake_timer) timer_.notify_one();
    task();
    task = nullptr;  // captures die before the task counts as done
    bool is_last = false;
    {
      MutexLock lock(mutex_);
      is_last = --running_ == 0 && kept_ == 0 && stopping_ && tasks_.empty();
    }
    if (is_last) work_.notify_all();
  }
}

bool ThreadExecutor::is_keeping_up() {
  MutexLock lock(mutex_);
  return tasks_.size() < workers_;
}

void ThreadExecutor::kept_task_ended() {
  MutexLock lock(mutex_);
  // Under the lock: this is no thread that stop() joins.
  if (--kept_ == 0 && running_ == 0 && stopping_ && tasks_.empty()) work_.notify_all();
}

void ThreadExecutor::run_timer() {
  for (;;) {
    Task due;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      const Clock::time_point now = Clock::now();
      is_watched_ = all_are_busy() && workers_ < kThreadsMax;
      if (is_watched_ && now - last_start_ >= kStuckAfter) {
        last_start_ = now;
        start_worker();
      }
      const Clock::duration rest = delayed_.empty() ? Clock::duration::max() : delayed_.begin()->first - now;
      if (rest > Clock::duration::zero()) {
        if (is_watched_)
          timer_.wait_for(mutex_, std::min<Clock::duration>(rest, kStuckAfter));
        else if (delayed_.empty())
          timer_.wait(mutex_);
        else
          timer_.wait_for(mutex_, rest);
        continue;
      }
      due = std::move(delayed_.begin()->second);
      delayed_.erase(delayed_.begin());
      tasks_.push_back(std::move(due));
    }
    work_.notify_one();
  }
}

}  // namespace fpfs
