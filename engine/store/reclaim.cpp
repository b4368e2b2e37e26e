// Freeing the objects of files that were unlinked or replaced.
//
// The order is what matters: the name change must be durable before the first object goes, or a power cut would bring
// back a name whose data is gone. Requests are gathered while a batch runs, so that removing a directory of many files
// costs one fsync of it per batch, not per file.
#include "engine/base/log.h"
#include "engine/store/store_impl.h"

namespace fpfs {

void Store::Impl::reclaim(std::vector<DoomedObjects> objects, Handle directory) {
  uint64_t inode = 0;
  if (directory != kNoHandle) {
    Result<struct stat> attributes = storage().fstat(directory);
    if (!attributes.is_ok()) {
      // Without the directory its durability cannot be had: the objects stay, fsck will find them.
      log(LogLevel::kWarning, "cannot free {} replaced objects: {}", objects.size(), attributes.status().message());
      storage().close(directory);
      return note_failure();
    }
    inode = attributes->st_ino;
  }
  {
    MutexLock lock(reclaim_mutex_);
    if (directory != kNoHandle && !reclaim_queue_.directories.emplace(inode, directory).second)
      storage().close(directory);
    reclaim_queue_.objects.insert(reclaim_queue_.objects.end(), objects.begin(), objects.end());
    if (reclaim_running_) return;
    reclaim_running_ = true;
  }
  post([this] { run_reclaim(); });
}

void Store::Impl::run_reclaim() {
  for (;;) {
    ReclaimBatch batch;
    {
      MutexLock lock(reclaim_mutex_);
      if (reclaim_queue_.objects.empty() && reclaim_queue_.directories.empty()) {
        reclaim_running_ = false;
        return;
      }
      std::swap(batch, reclaim_queue_);
    }
    const Status status = reclaim_batch(batch);
    for (const auto& [inode, handle] : batch.directories) storage().close(handle);
    if (!status.is_ok()) {
      log(LogLevel::kWarning, "cannot free the objects of removed files: {}; fsck -p will", status.message());
      note_failure();
    }
  }
}

Status Store::Impl::reclaim_batch(ReclaimBatch& batch) {
  for (const auto& [inode, handle] : batch.directories) {
    const Status synced = storage().fsync(handle);
    if (!synced.is_ok()) {
      fail_array(synced);
      return synced;
    }
  }
  Status first_failure;
  for (const DoomedObjects& doomed : batch.objects) {
    const std::string name = Array::object_name(doomed.file, doomed.generation);
    for (MemberIndex m = 0; m < stripes.member_count; ++m) {
      Result<Handle> directory = array->object_directory(m, doomed.file);
      const Status status = directory.is_ok() ? storage().unlink(*directory, name) : directory.status();
      if (!status.is_ok() && status.code() != StatusCode::kNotFound && first_failure.is_ok()) first_failure = status;
    }
  }
  return first_failure;
}

uint64_t Store::Impl::pending_frees() const {
  MutexLock lock(reclaim_mutex_);
  return reclaim_queue_.objects.size();
}

}  // namespace fpfs
