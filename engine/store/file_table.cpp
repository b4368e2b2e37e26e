#include "engine/store/file_table.h"

#include <algorithm>

namespace fpfs {

std::shared_ptr<File> FileTable::find(uint64_t inode) {
  MutexLock lock(mutex_);
  const auto found = files_.find(inode);
  return found == files_.end() ? nullptr : found->second.lock();
}

void FileTable::insert(const std::shared_ptr<File>& file) {
  MutexLock lock(mutex_);
  if (files_.size() >= sweep_at_) {
    std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<size_t>(64, 2 * files_.size());
  }
  files_[file->inode()] = file;
}

std::vector<std::shared_ptr<File>> FileTable::all() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<File>> result;
  for (const auto& [inode, weak] : files_)
    if (auto file = weak.lock()) result.push_back(std::move(file));
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a->inode() < b->inode(); });
  return result;
}

}  // namespace fpfs
