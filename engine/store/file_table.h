// FileTable: the open files of an array, by the inode number of their sidecars.
//
// Thread safety: all methods from any thread, with any lock but its own held.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/file/file.h"

namespace fpfs {

class FileTable {
 public:
  // Null: nobody has it open.
  std::shared_ptr<File> find(uint64_t inode);
  void insert(const std::shared_ptr<File>& file);
  // Ascending by inode: the order must not depend on hashing (simulations replay).
  std::vector<std::shared_ptr<File>> all();
  // Held while a file is opened, unlinked or replaced, so that its objects are not freed under an opener.
  Mutex& name_lock(uint64_t inode) { return name_locks_[inode % name_locks_.size()]; }

 private:
  Mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<File>> files_ FPFS_GUARDED_BY(mutex_);
  size_t sweep_at_ FPFS_GUARDED_BY(mutex_) = 64;
  std::array<Mutex, 64> name_locks_;
};

}  // namespace fpfs
