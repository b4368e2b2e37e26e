// DirtyFiles: the open files that have chunks in memory to be written. When the pool is full these are looked at, and
// not all that are open: there are never more of them than buffers.
//
// Thread safety: all methods from any thread, with any lock but its own held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace fpfs {

class File;

class DirtyFiles {
 public:
  // `inode`: of its sidecar; no two files have the same.
  void add(uint64_t inode, std::weak_ptr<File> file) {
    MutexLock lock(mutex_);
    files_[inode] = std::move(file);
  }
  void remove(uint64_t inode) {
    MutexLock lock(mutex_);
    files_.erase(inode);
  }
  // Ascending by inode: the order must not depend on hashing (simulations replay).
  std::vector<std::shared_ptr<File>> all() const {
    std::vector<std::shared_ptr<File>> result;
    MutexLock lock(mutex_);
    result.reserve(files_.size());
    for (const auto& [inode, weak] : files_)
      if (auto file = weak.lock()) result.push_back(std::move(file));
    return result;
  }

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<File>> files_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
