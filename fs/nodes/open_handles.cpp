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
  auto open = std::make_shared<OpenFile>();
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

template <typename Open>
std::shared_ptr<Open> OpenHandles::take_out(const Open& open, Set<Open>& set) {
  const auto entry = set.find(&open);
  std::shared_ptr<Open> taken = std::move(entry->second);
  set.erase(entry);
  return taken;
}

std::shared_ptr<OpenFile> OpenHandles::remove(OpenFile& open) {
  open.inode->opens.fetch_sub(1, std::memory_order_relaxed);
  if (open.may_write()) open.inode->writers.fetch_sub(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  return take_out(open, files_);
}

OpenDirectory& OpenHandles::add_directory() {
  auto open = std::make_shared<OpenDirectory>(streams_);
  OpenDirectory& result = *open;
  MutexLock lock(mutex_);
  directories_.emplace(&result, std::move(open));
  return result;
}

std::shared_ptr<OpenDirectory> OpenHandles::remove(OpenDirectory& open) {
  MutexLock lock(mutex_);
  return take_out(open, directories_);
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
