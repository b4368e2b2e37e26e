// ChangeTimes: the change times of files that nobody has open any more, for the next look at them. In memory only:
// after a remount a file changed when it was committed.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "engine/base/mutex.h"
#include "engine/file/content.h"

namespace fpfs {

class ChangeTimes {
 public:
  static constexpr size_t kFilesMax = 65536;  // some 6 MiB at most; the oldest goes first

  // `key`: inode of the sidecar.
  void remember(uint64_t key, const ChangeTime& time) {
    if (time.own.tv_sec == 0 && time.own.tv_nsec == 0) return;  // nothing was committed
    MutexLock lock(mutex_);
    if (times_.insert_or_assign(key, time).second) order_.push_back(key);
    if (order_.size() <= kFilesMax) return;
    times_.erase(order_.front());
    order_.pop_front();
  }
  ChangeTime recall(uint64_t key) {
    MutexLock lock(mutex_);
    const auto found = times_.find(key);
    return found == times_.end() ? ChangeTime() : found->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<uint64_t, ChangeTime> times_ FPFS_GUARDED_BY(mutex_);
  std::deque<uint64_t> order_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
