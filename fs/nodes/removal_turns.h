// RemovalTurns: removing a directory, and closing handles of files that had their names in it, take turns.
//
// Who removes a directory waits in the kernel until nobody is giving up an entry of it: busily, without sleeping
// (shrink_dcache_parent() in fs/dcache.c of Linux 6.18). The last handle of a removed file gives
// its entry up, and may wait for the filesystem meanwhile. With the two on two threads, half of the processor time of rm -r
// of many small files went there. Here both sleep until it is their turn.
//
// It saves time and nothing depends on it: a turn is waited for kWaitMax at most, as the other one may be caught in a
// call to a drive that does not answer.
//
// Thread safety: all methods from any thread, without a lock.
#pragma once

#include <array>
#include <chrono>

#include "engine/base/mutex.h"

namespace fpfs {

class RemovalTurns {
 public:
  static constexpr std::chrono::milliseconds kWaitMax{50};

  // Runs `run`, which closes handles of a removed file.
  template <typename Close>
  void close(Close run) {
    begin(kCloses);
    run();
    end(kCloses);
  }
  // Runs `run`, which removes a directory, and returns what it does.
  template <typename Remove>
  auto remove_directory(Remove run) {
    begin(kDirectories);
    auto outcome = run();
    end(kDirectories);
    return outcome;
  }

 private:
  enum Kind : unsigned { kCloses, kDirectories, kKinds };

  void begin(Kind kind) {
    const Kind other = kind == kCloses ? kDirectories : kCloses;
    MutexLock lock(mutex_);
    if (under_way_[other] > 0) {
      const auto until = std::chrono::steady_clock::now() + kWaitMax;
      for (auto now = until - kWaitMax; under_way_[other] > 0 && now < until; now = std::chrono::steady_clock::now())
        ended_.wait_for(mutex_, until - now);
    }
    ++under_way_[kind];
  }
  void end(Kind kind) {
    MutexLock lock(mutex_);
    if (--under_way_[kind] == 0) ended_.notify_all();
  }

  Mutex mutex_;
  CondVar ended_;
  std::array<unsigned, kKinds> under_way_ FPFS_GUARDED_BY(mutex_){};
};

}  // namespace fpfs
