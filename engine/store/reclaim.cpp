// Freeing the objects of files that were unlinked or replaced, and the places of chunks that were.
//
// An object that is worth it becomes a spare (spare_objects.h) instead of being removed.
//
// Freeing runs in the background, one batch after the other. Whoever finds a drive full first helps: finish_frees()
// takes what is queued and waits for what others took, so that space that was given up counts as free. It waits for
// what it finds when it comes: others may go on removing files for ever.
//
// The order is what matters: the name change must be durable before the first object goes, or a power cut would bring
// back a name whose data is gone. Requests are gathered while a batch runs, so that removing a directory of many files
// costs one fsync of it per batch, not per file.
#include "engine/base/log.h"
#include "engine/store/store_impl.h"

namespace fpfs {

void Store::Impl::reclaim(std::vector<DoomedObjects> objects, ScopedHandle directory) {
  uint64_t inode = 0;
  if (directory.is_open()) {
    Result<struct stat> attributes = storage().fstat(directory.get());
    if (!attributes.is_ok()) {
      // Without the directory its durability cannot be had: the objects stay, fsck will find them.
      log(LogLevel::kWarning, "cannot free {} replaced objects: {}", objects.size(), attributes.status().message());
      return note_failure();
    }
    inode = attributes->st_ino;
  }
  MutexLock lock(reclaim_mutex_);
  if (directory.is_open()) reclaim_queue_.directories.try_emplace(inode, std::move(directory));
  reclaim_queue_.objects.insert(reclaim_queue_.objects.end(), objects.begin(), objects.end());
  start_reclaim();
}

void Store::Impl::post_free(Executor::Task task) {
  MutexLock lock(reclaim_mutex_);
  reclaim_queue_.tasks.push_back(std::move(task));
  start_reclaim();
}

void Store::Impl::start_reclaim() {
  if (reclaim_posted_) return;
  reclaim_posted_ = true;
  post([this] {
    for (;;) {
      while (reclaim_queued()) {
      }
      MutexLock running(reclaim_mutex_);
      if (!reclaim_queue_.is_empty()) continue;
      reclaim_posted_ = false;
      return;
    }
  });
}

bool Store::Impl::reclaim_queued() {
  ReclaimBatch batch;
  uint64_t number = 0;
  {
    MutexLock lock(reclaim_mutex_);
    if (reclaim_queue_.is_empty()) return false;
    std::swap(batch, reclaim_queue_);
    number = reclaims_begun_++;
    reclaims_running_.insert(number);
  }
  const Status status = reclaim_batch(batch);
  if (!status.is_ok()) {
    log(LogLevel::kWarning, "cannot free the objects of removed files: {}; fsck -p will", status.message());
    note_failure();
  }
  batch = ReclaimBatch();  // a task may hold the last reference to a file, which has more to free
  MutexLock lock(reclaim_mutex_);
  reclaims_running_.erase(number);
  reclaim_done_.notify_all();
  return true;
}

void Store::Impl::free_spares() {
  std::vector<DoomedObjects> objects = spares->give_up();
  if (!objects.empty()) reclaim(std::move(objects), {});
}

bool Store::Impl::give_up_old_spares() {
  struct timespec time = environment->now();
  time.tv_sec -= std::chrono::seconds(options.spare_life).count();
  std::vector<DoomedObjects> objects = spares->give_up_kept_before(time);
  if (!objects.empty()) reclaim(std::move(objects), {});
  return !spares->is_empty();
}

// The kernel forgets nearly every file as soon as its last name went, but says so behind the answer to unlink(2).
// On a busy machine that takes a while; nobody waits but who has found a drive full.
constexpr std::chrono::milliseconds kReleaseMax{1000};
// Batches that one waiter sees through: what one frees may hold the last reference to what has more to free.
constexpr unsigned kBatchesMax = 8;

bool Store::Impl::is_release_due(Clock::time_point came) const {
  const auto first = removed_in_order_.lower_bound({Clock::now() - kReleaseMax, 0});
  return first != removed_in_order_.end() && first->first <= came;
}

Store::Removed* Store::Impl::find_removed(uint64_t inode) {
  MutexLock lock(reclaim_mutex_);
  const auto found = removed_.find(inode);
  return found == removed_.end() ? nullptr : found->second.removed;
}

void Store::Impl::insert_removed(uint64_t inode, Removed& removed) {
  MutexLock lock(reclaim_mutex_);
  const Clock::time_point now = Clock::now();
  Kept& kept = removed_[inode];
  removed_in_order_.erase({kept.since, inode});
  kept = {&removed, now};
  removed_in_order_.emplace(now, inode);
}

void Store::Impl::erase_removed(uint64_t inode) {
  MutexLock lock(reclaim_mutex_);
  if (const auto found = removed_.find(inode); found != removed_.end()) {
    removed_in_order_.erase({found->second.since, inode});
    removed_.erase(found);
  }
  reclaim_done_.notify_all();
}

bool Store::Impl::finish_frees() {
  const Clock::time_point came = Clock::now();
  bool freed = false;
  free_spares();
  for (unsigned batch = 0; batch < kBatchesMax; ++batch) {
    bool is_any = reclaim_queued();
    // In a simulation, which has one thread, nothing can be under way here.
    MutexLock lock(reclaim_mutex_);
    const uint64_t begun = reclaims_begun_;
    while (is_reclaiming(begun) || (reclaim_queue_.is_empty() && is_release_due(came))) {
      is_any |= is_reclaiming(begun);
      // What frees may be caught in a call to a member that hangs.
      if (watch != nullptr && watch->is_any_stalled()) return freed || is_any;
      reclaim_done_.wait_for(reclaim_mutex_, kReleaseMax);
    }
    freed |= is_any;
    if (!is_any && reclaim_queue_.is_empty()) break;
  }
  return freed;
}

void Store::Impl::wait_for_frees(std::chrono::milliseconds limit) {
  if (environment->is_simulated()) return;
  const Clock::time_point came = Clock::now();
  uint64_t batches = 0;
  MutexLock lock(reclaim_mutex_);
  for (bool is_due = true;;) {
    if (is_due) {
      is_due = is_release_due(came);
      // What is released goes to the queue, and the queue is the next batch.
      batches = reclaims_begun_ + (reclaim_queue_.is_empty() ? 0 : 1);
    }
    if (!is_due && reclaims_begun_ >= batches && !is_reclaiming(batches)) return;
    const Clock::time_point now = Clock::now();
    if (now >= came + limit) return;
    reclaim_done_.wait_for(reclaim_mutex_, std::min<Clock::duration>(came + limit - now, kReleaseMax));
  }
}

Status Store::Impl::reclaim_batch(ReclaimBatch& batch) {
  for (const Executor::Task& task : batch.tasks) task();
  FPFS_RETURN_IF_ERROR(check_names());
  // After a sync that failed the next one may succeed, and says nothing about the names that the first one lost.
  FPFS_RETURN_IF_ERROR(array_failure());
  Status synced;
  for (const auto& [inode, handle] : batch.directories)
    if (synced.is_ok()) synced = storage().fsync(handle.get());
  if (synced.is_ok() && !batch.directories.empty()) synced = array->check_tree_running();
  if (!synced.is_ok()) {
    count_tree_error();
    fail_array(synced);
    return synced;
  }
  Status first_failure;
  bool has_kept = false;
  for (const DoomedObjects& doomed : batch.objects) {
    const std::string name = Array::object_name(doomed.file, doomed.generation);
    for (MemberIndex m = 0; m < stripes.member_count; ++m) {
      if (spares->keep(m, doomed)) {
        has_kept = true;
        continue;
      }
      const Result<HandleCache::Pin> directory = array->object_directory(m, doomed.file);
      const Status status = directory.is_ok() ? storage().unlink(directory->get(), name) : directory.status();
      if (!status.is_ok() && status.code() != StatusCode::kNotFound && first_failure.is_ok()) first_failure = status;
    }
  }
  if (has_kept) spare_timer_.set();
  return first_failure;
}

uint64_t Store::Impl::pending_frees() const {
  MutexLock lock(reclaim_mutex_);
  return reclaim_queue_.objects.size() + reclaim_queue_.tasks.size() + reclaims_running_.size();
}

}  // namespace fpfs
