// ChangeTimes: the change times of files that nobody has open any more, for the next look at them. In memory only:
// after a remount a file changed when it was committed.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <cstdint>

#include "engine/base/fifo_map.h"
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
    times_.set(key, time);
  }
  ChangeTime recall(uint64_t key) {
    MutexLock lock(mutex_);
    const ChangeTime* const found = times_.find(key);
    return found == nullptr ? ChangeTime() : *found;
  }

 private:
  Mutex mutex_;
  FifoMap<uint64_t, ChangeTime, kFilesMax> times_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
