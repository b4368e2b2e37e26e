// CallPool: the objects that requests under way are kept in, made once and used again, so that the data path allocates
// nothing; and the count of requests under way, so that a shutdown can wait for them.
//
// Starts with `initial` objects and grows to at most `limit`; beyond that take() waits, which leaves further requests
// in the kernel's queue. Last in, first out.
//
// Thread safety: all methods from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace fpfs {

template <typename Call>
class CallPool {
 public:
  CallPool(size_t initial, size_t limit) : limit_(limit) {
    MutexLock lock(mutex_);
    all_.reserve(limit);
    free_.reserve(limit);
    for (size_t i = 0; i < initial; ++i) {
      all_.push_back(std::make_unique<Call>());
      free_.push_back(all_.back().get());
    }
  }

  Call& take() {
    MutexLock lock(mutex_);
    while (free_.empty() && all_.size() >= limit_) returned_.wait(mutex_);
    if (free_.empty()) {
      all_.push_back(std::make_unique<Call>());
      free_.push_back(all_.back().get());
    }
    Call& call = *free_.back();
    free_.pop_back();
    return call;
  }
  void give_back(Call& call) {
    // Notified under the lock: a waiter in wait_until_idle() may destroy the pool as soon as it runs.
    MutexLock lock(mutex_);
    free_.push_back(&call);
    returned_.notify_all();
  }
  size_t in_use() const {
    MutexLock lock(mutex_);
    return all_.size() - free_.size();
  }
  void wait_until_idle() {
    MutexLock lock(mutex_);
    while (free_.size() != all_.size()) returned_.wait(mutex_);
  }

 private:
  const size_t limit_;
  mutable Mutex mutex_;
  CondVar returned_;
  std::vector<std::unique_ptr<Call>> all_ FPFS_GUARDED_BY(mutex_);
  std::vector<Call*> free_ FPFS_GUARDED_BY(mutex_);
};

// Counts requests under way that have no object in a pool.
class RequestCounter {
 public:
  void begin() {
    MutexLock lock(mutex_);
    ++count_;
  }
  void end() {
    MutexLock lock(mutex_);  // notified under the lock, as in CallPool
    if (--count_ == 0) idle_.notify_all();
  }
  // The task, which counts from now on until what it holds is gone, too.
  std::function<void()> counted(std::function<void()> task) {
    begin();
    return [this, task = std::move(task)]() mutable {
      task();
      task = nullptr;
      end();
    };
  }
  void wait_until_idle() {
    MutexLock lock(mutex_);
    while (count_ > 0) idle_.wait(mutex_);
  }
  bool is_idle() {
    MutexLock lock(mutex_);
    return count_ == 0;
  }

 private:
  Mutex mutex_;
  CondVar idle_;
  size_t count_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
