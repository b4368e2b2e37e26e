#include "engine/io/thread_executor.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/io/named_thread.h"

namespace fpfs {

ThreadExecutor::ThreadExecutor(unsigned threads) {
  FPFS_CHECK(threads > 0, "an executor needs a thread");
  threads_.reserve(threads + 1);
  for (unsigned i = 0; i < threads; ++i)
    threads_.push_back(start_thread("fpfs-work-" + std::to_string(i), [this] { run_tasks(); }));
  threads_.push_back(start_thread("fpfs-timer", [this] { run_timer(); }));
}

ThreadExecutor::~ThreadExecutor() {
  stop();
}

void ThreadExecutor::post(Task task) {
  {
    MutexLock lock(mutex_);
    FPFS_CHECK(!stopped_, "nothing is posted to a stopped executor");
    tasks_.push_back(std::move(task));
  }
  work_.notify_one();
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
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  MutexLock lock(mutex_);
  stopped_ = true;
}

void ThreadExecutor::run_tasks() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      // While stopping, a thread without work waits for the running tasks too: they may still post.
      while (tasks_.empty() && !(stopping_ && running_ == 0)) work_.wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      ++running_;
    }
    task();
    task = nullptr;  // captures die before the task counts as done
    bool is_last = false;
    {
      MutexLock lock(mutex_);
      is_last = --running_ == 0 && stopping_ && tasks_.empty();
    }
    if (is_last) work_.notify_all();
  }
}

void ThreadExecutor::run_timer() {
  for (;;) {
    Task due;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      if (delayed_.empty()) {
        timer_.wait(mutex_);
        continue;
      }
      const Clock::duration rest = delayed_.begin()->first - Clock::now();
      if (rest > Clock::duration::zero()) {
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
