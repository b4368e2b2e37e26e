#include "engine/file/reclaimer.h"

#include <fcntl.h>

#include <algorithm>

#include "engine/base/log.h"

namespace fpfs {

namespace {
// How long the release of what was kept is waited for: on a busy machine it takes a while, and nobody waits but who has
// found a drive full.
constexpr std::chrono::milliseconds kReleaseMax{1000};
// Batches that one waiter sees through: what one frees may hold the last reference to what has more to free.
constexpr unsigned kBatchesMax = 8;
}  // namespace

Reclaimer::Reclaimer(const Parts& parts, std::chrono::minutes spare_life) : parts_(parts), spare_life_(spare_life) {
  spare_timer_.open(parts.environment.executor(), spare_life, [this] { return release_old_spares(); });
}

void Reclaimer::reclaim(std::vector<DoomedObjects> objects, ScopedHandle directory) {
  uint64_t inode = 0;
  if (directory.is_open()) {
    Result<struct stat> attributes = parts_.environment.storage().fstat(directory.get());
    if (!attributes.is_ok()) {
      // Without the directory its durability cannot be had: the objects stay, fsck will find them.
      log(LogLevel::kWarning, "cannot free {} replaced objects: {}", objects.size(), attributes.status().message());
      return parts_.health.note_not_freed();
    }
    inode = attributes->st_ino;
  }
  MutexLock lock(mutex_);
  if (directory.is_open()) queue_.directories.try_emplace(inode, std::move(directory));
  queue_.objects.insert(queue_.objects.end(), objects.begin(), objects.end());
  start();
}

void Reclaimer::note_name_removed() {
  MutexLock lock(mutex_);
  is_name_unsynced_ = true;
}

// A batch that was taken before may not have come to its sync yet.
void Reclaimer::take_names_to_sync(Batch& batch, uint64_t number) {
  if (batch.objects.empty()) return;
  batch.syncs_all_names = std::exchange(is_name_unsynced_, false) || !syncing_all_.empty();
  if (batch.syncs_all_names) syncing_all_.insert(number);
}

void Reclaimer::post(Executor::Task task) {
  MutexLock lock(mutex_);
  queue_.tasks.push_back(std::move(task));
  start();
}

void Reclaimer::start() {
  if (is_posted_) return;
  is_posted_ = true;
  parts_.tasks.post([this] {
    for (;;) {
      while (run_queued()) {
      }
      MutexLock running(mutex_);
      if (!queue_.is_empty()) continue;
      is_posted_ = false;
      return;
    }
  });
}

bool Reclaimer::run_queued() {
  Batch batch;
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (queue_.is_empty()) return false;
    std::swap(batch, queue_);
    number = begun_++;
    running_.insert(number);
    take_names_to_sync(batch, number);
  }
  const Status status = run(batch);
  if (!status.is_ok()) {
    log(LogLevel::kWarning, "cannot free the objects of removed files: {}; fsck -p will", status.message());
    parts_.health.note_not_freed();
  }
  const bool syncs_again = batch.syncs_all_names && !status.is_ok();  // it may not have come to that
  batch = Batch();  // a task may hold the last reference to a file, which has more to free
  MutexLock lock(mutex_);
  running_.erase(number);
  syncing_all_.erase(number);
  is_name_unsynced_ |= syncs_again;
  changed_.notify_all();
  return true;
}

void Reclaimer::free_spares() {
  std::vector<DoomedObjects> objects = parts_.spares.release_all();
  if (!objects.empty()) reclaim(std::move(objects), {});
}

bool Reclaimer::release_old_spares() {
  struct timespec time = parts_.environment.now();
  time.tv_sec -= std::chrono::seconds(spare_life_).count();
  std::vector<DoomedObjects> objects = parts_.spares.release_kept_before(time);
  if (!objects.empty()) reclaim(std::move(objects), {});
  return !parts_.spares.is_empty();
}

bool Reclaimer::is_release_due(Clock::time_point came) const {
  const auto first = kept_in_order_.lower_bound({Clock::now() - kReleaseMax, 0});
  return first != kept_in_order_.end() && first->first <= came;
}

void Reclaimer::note_kept(uint64_t inode) {
  MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  Clock::time_point& since = kept_[inode];
  kept_in_order_.erase({since, inode});
  since = now;
  kept_in_order_.emplace(now, inode);
}

void Reclaimer::note_released(uint64_t inode) {
  MutexLock lock(mutex_);
  if (const auto found = kept_.find(inode); found != kept_.end()) {
    kept_in_order_.erase({found->second, inode});
    kept_.erase(found);
  }
  changed_.notify_all();
}

bool Reclaimer::finish() {
  const Clock::time_point came = Clock::now();
  bool freed = false;
  free_spares();
  for (unsigned batch = 0; batch < kBatchesMax; ++batch) {
    bool is_any = run_queued();
    MutexLock lock(mutex_);
    uint64_t begun = begun_;
    // In a simulation, which has one thread, nothing can be under way here, and nothing comes while this waits.
    for (bool is_due = !parts_.environment.is_simulated();;) {
      if (is_due) {
        is_due = queue_.is_empty() && is_release_due(came);
        // What was released meanwhile may have been taken by another, and be done.
        is_any |= begun_ > begun;
        begun = begun_;
      }
      if (!is_due && !is_running(begun)) break;
      is_any |= is_running(begun);
      // What frees may be caught in a call to a member that hangs.
      if (const StallWatch* watch = parts_.environment.watch(); watch != nullptr && watch->is_any_stalled())
        return freed || is_any;
      changed_.wait_for(mutex_, kReleaseMax);
    }
    freed |= is_any;
    if (!is_any && queue_.is_empty()) break;
  }
  return freed;
}

void Reclaimer::wait(std::chrono::milliseconds limit) {
  if (parts_.environment.is_simulated()) return;
  const Clock::time_point came = Clock::now();
  uint64_t batches = 0;
  MutexLock lock(mutex_);
  for (bool is_due = true;;) {
    if (is_due) {
      is_due = is_release_due(came);
      // What is released goes to the queue, and the queue is the next batch.
      batches = begun_ + (queue_.is_empty() ? 0 : 1);
    }
    if (!is_due && begun_ >= batches && !is_running(batches)) return;
    const Clock::time_point now = Clock::now();
    if (now >= came + limit) return;
    changed_.wait_for(mutex_, std::min<Clock::duration>(came + limit - now, kReleaseMax));
  }
}

// `tree`: when all names are to be synced.
Status Reclaimer::sync_names(const Batch& batch, const ScopedHandle& tree) {
  Storage& storage = parts_.environment.storage();
  if (tree.is_open()) FPFS_RETURN_IF_ERROR(storage.sync_filesystem(tree.get()));
  for (const auto& [inode, handle] : batch.directories) FPFS_RETURN_IF_ERROR(storage.fsync(handle.get()));
  return tree.is_open() || !batch.directories.empty() ? parts_.array.check_tree_running() : Status::ok();
}

Status Reclaimer::run(Batch& batch) {
  for (const Executor::Task& task : batch.tasks) task();
  // What was never begun leaves nothing unknown.
  if (StallWatch* const watch = parts_.environment.watch(); watch != nullptr)
    FPFS_RETURN_IF_ERROR(watch->check(kTreeDomain));
  // After a sync that failed the next one may succeed, and says nothing about the names that the first one lost.
  FPFS_RETURN_IF_ERROR(parts_.health.failure());
  ScopedHandle tree;
  if (batch.syncs_all_names) {
    // Its own: a failure is told once through each, and whoever syncs everything waits for that of theirs.
    const Result<Handle> own = parts_.environment.storage().reopen(parts_.array.tree(), O_RDONLY | O_DIRECTORY);
    if (!own.is_ok()) return own.status();
    tree = ScopedHandle(parts_.environment.storage(), *own);
  }
  if (const Status synced = sync_names(batch, tree); !synced.is_ok()) {
    parts_.counters.count_tree_error();
    parts_.health.fail(synced);
    return synced;
  }
  Status first_failure;
  bool has_kept = false;
  for (const DoomedObjects& doomed : batch.objects) {
    const std::string name = Array::object_name(doomed.file, doomed.generation);
    for (const MemberIndex m : parts_.array.members()) {
      if (parts_.array.is_removed(m)) continue;
      if (parts_.spares.keep(m, doomed)) {
        has_kept = true;
        continue;
      }
      const Result<HandleCache::Pin> directory = parts_.array.object_directory(m, doomed.file);
      const Status status =
          directory.is_ok() ? parts_.environment.storage().unlink(directory->get(), name) : directory.status();
      if (!status.is_ok() && status.code() != StatusCode::kNotFound && first_failure.is_ok()) first_failure = status;
    }
  }
  if (has_kept) spare_timer_.set();
  return first_failure;
}

uint64_t Reclaimer::pending() const {
  MutexLock lock(mutex_);
  return queue_.objects.size() + queue_.tasks.size() + running_.size();
}

}  // namespace fpfs
