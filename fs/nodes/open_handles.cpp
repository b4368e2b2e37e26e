#include "fs/nodes/open_handles.h"

namespace fpfs {

void VerifyFaults::add(CheckError error) {
  const MutexLock lock(mutex_);
  errors_.add(std::move(error));
}

void VerifyFaults::log_all() {
  const MutexLock lock(mutex_);
  errors_.log_all("verify");
}

OpenFile& OpenHandles::add(std::shared_ptr<File> file, Inode& inode, std::shared_ptr<Writer> writer) {
  auto open = std::make_unique<OpenFile>();
  open->file = std::move(file);
  open->inode = &inode;
  open->writer = std::move(writer);
  inode.opens.fetch_add(1, std::memory_order_relaxed);
  if (open->may_write()) inode.writers.fetch_add(1);
  OpenFile& result = *open;
  MutexLock lock(mutex_);
  files_.emplace(&result, std::move(open));
  return result;
}

void OpenHandles::remove(OpenFile& open) {
  open.inode->opens.fetch_sub(1, std::memory_order_relaxed);
  if (open.may_write()) open.inode->writers.fetch_sub(1, std::memory_order_relaxed);
  std::unique_ptr<OpenFile> gone;  // destroyed after the lock: the last reference to a File may go with it
  MutexLock lock(mutex_);
  auto entry = files_.find(&open);
  gone = std::move(entry->second);
  files_.erase(entry);
}

OpenDirectory& OpenHandles::add_directory() {
  auto open = std::make_unique<OpenDirectory>(streams_);
  OpenDirectory& result = *open;
  MutexLock lock(mutex_);
  directories_.emplace(&result, std::move(open));
  return result;
}

void OpenHandles::remove(OpenDirectory& open) {
  std::unique_ptr<OpenDirectory> gone;
  MutexLock lock(mutex_);
  auto entry = directories_.find(&open);
  gone = std::move(entry->second);
  directories_.erase(entry);
}

void OpenHandles::for_each_file(const std::function<void(const OpenFile&)>& visit) const {
  MutexLock lock(mutex_);
  for (const auto& [address, open] : files_) visit(*open);
}

void OpenHandles::clear() {
  Set<OpenFile> files;
  Set<OpenDirectory> directories;
  MutexLock lock(mutex_);
  files.swap(files_);
  directories.swap(directories_);
  for (const auto& [address, open] : files)
    if (open->may_write()) open->file->cut_off(*open->writer);
}

}  // namespace fpfs
