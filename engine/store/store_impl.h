// Store's private part: what open files share, the table of open files, background work.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <unordered_map>

#include "engine/store/store.h"

namespace fpfs {

class Store::Impl final : public FileContext {
 public:
  explicit Impl(const StoreOptions& store_options) { options = store_options; }

  // Makes the pool, the chunk descriptors, the queues and the counters. `array` is set.
  Status start();

  // --- FileContext
  // -----------------------------------------------------------------------------------------------------
  void relieve_pressure() override;
  void post(Executor::Task task) override;
  void post_after(std::chrono::milliseconds delay, Executor::Task task);
  void reclaim(std::vector<DoomedObjects> objects, Handle directory) override;
  void post_free(Executor::Task task) override;
  bool finish_frees() override;
  // Waits until nothing waits to be freed, at most this long.
  void wait_for_frees(std::chrono::milliseconds limit);
  void fail_array(const Status& status) override;
  Status array_failure() const override;
  void remember_change_time(uint64_t key, const ChangeTime& time) override;
  ChangeTime recall_change_time(uint64_t key) override;

  // --- open files
  // ------------------------------------------------------------------------------------------------------
  std::shared_ptr<File> find(uint64_t inode);
  void insert(const std::shared_ptr<File>& file);
  std::vector<std::shared_ptr<File>> files();
  // Held while a file is opened, unlinked or replaced, so that its objects are not freed under an opener.
  Mutex& name_lock(uint64_t inode) { return name_locks_[inode % name_locks_.size()]; }

  // --- background work
  // ---------------------------------------------------------------------------------------------------
  unsigned tasks_outstanding() const;
  void wait_for_tasks();  // never in a simulation
  uint64_t pending_frees() const;
  // Some file failed: its uncommitted leftovers are on the members, so the next mount should look for them.
  bool had_failure() const { return had_failure_.load(); }
  void note_failure() override { had_failure_.store(true); }

 private:
  Executor::Task counted(Executor::Task task);
  struct ReclaimBatch {
    std::map<uint64_t, Handle> directories;  // by inode number
    std::vector<DoomedObjects> objects;
    std::vector<Executor::Task> tasks;
    bool is_empty() const { return directories.empty() && objects.empty() && tasks.empty(); }
  };
  // Takes what is queued and frees it; false when there was nothing.
  bool reclaim_queued();
  Status reclaim_batch(ReclaimBatch& batch);
  void start_reclaim() FPFS_REQUIRES(reclaim_mutex_);

  mutable Mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<File>> files_ FPFS_GUARDED_BY(mutex_);
  size_t sweep_at_ FPFS_GUARDED_BY(mutex_) = 64;
  std::array<Mutex, 64> name_locks_;

  // Leaf locks: taken with any other lock held, none taken inside.
  mutable Mutex tasks_mutex_;
  CondVar tasks_done_;
  unsigned tasks_ FPFS_GUARDED_BY(tasks_mutex_) = 0;
  mutable Mutex failure_mutex_;
  Status failure_ FPFS_GUARDED_BY(failure_mutex_);
  std::atomic<bool> failed_{false};
  std::atomic<bool> had_failure_{false};
  std::atomic<bool> relieving_{false};
  mutable Mutex reclaim_mutex_;
  Mutex change_times_mutex_;
  std::unordered_map<uint64_t, ChangeTime> change_times_ FPFS_GUARDED_BY(change_times_mutex_);
  std::deque<uint64_t> change_times_order_ FPFS_GUARDED_BY(change_times_mutex_);  // the oldest goes first
  ReclaimBatch reclaim_queue_ FPFS_GUARDED_BY(reclaim_mutex_);
  bool reclaim_posted_ FPFS_GUARDED_BY(reclaim_mutex_) = false;    // a task will take what is queued
  unsigned reclaims_running_ FPFS_GUARDED_BY(reclaim_mutex_) = 0;  // batches taken and not done
  CondVar reclaim_done_;
};

}  // namespace fpfs
