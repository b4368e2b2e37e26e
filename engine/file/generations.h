// Generations: of objects that were made and are not recorded by a commit, the newest of each file. Such objects may be
// waiting to be freed, by their names, so no others may get them.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "engine/base/mutex.h"
#include "engine/base/units.h"

namespace fpfs {

class Generations {
 public:
  // The generation that objects about to be made get: `wanted`, or a later one when this mount has made objects of that
  // generation which no commit recorded.
  Generation claim(FileId file, Generation wanted) {
    MutexLock lock(mutex_);
    const auto [claim, is_first] = claimed_.try_emplace(file, wanted);
    if (!is_first) claim->second = std::max(claim->second + 1, wanted);
    return claim->second;
  }
  // The claims up to `generation` are over: a commit recorded the last of them, or the file is gone.
  void end_claim(FileId file, Generation generation) {
    MutexLock lock(mutex_);
    const auto claim = claimed_.find(file);
    if (claim != claimed_.end() && claim->second <= generation) claimed_.erase(claim);
  }

 private:
  Mutex mutex_;
  std::unordered_map<FileId, Generation> claimed_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
