// Store's private part: what open files share, the table of open files, background work.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/store/store.h"
#include "engine/store/store_timer.h"

namespace fpfs {

class Store::Impl final : public FileContext {
 public:
  explicit Impl(const StoreOptions& store_options) { options = store_options; }

  // Makes the pool, the chunk descriptors, the queues and the counters. `array` is set.
  Status start();
  // The member, or the tree that it holds, does not answer.
  bool is_stalled(MemberIndex member) const;
  // Nothing is told about members that hang any more.
  void stop_watching();

  // --- FileContext ---------------------------------------------------------------------------------------------------
  void relieve_pressure() override;
  void watch_trickles() override { trickle_timer_.set(); }
  void post(Executor::Task task) override;
  void post_after(std::chrono::milliseconds delay, Executor::Task task);
  Generation claim_generation(FileId file, Generation wanted) override;
  void settle_generation(FileId file, Generation generation) override;
  void reclaim(std::vector<DoomedObjects> objects, ScopedHandle directory) override;
  void post_free(Executor::Task task) override;
  bool finish_frees() override;
  // Frees the spare objects: what is left of them after this is what becomes spare meanwhile.
  void free_spares();
  void end_timers();  // before the store goes
  // Waits until nothing of what waits now to be freed does, at most this long.
  void wait_for_frees(std::chrono::milliseconds limit);
  void fail_array(const Status& status) override;
  Status array_failure() const override;
  void remember_change_time(uint64_t key, const ChangeTime& time) override;
  ChangeTime recall_change_time(uint64_t key) override;

  // --- open files ----------------------------------------------------------------------------------------------------
  std::shared_ptr<File> find(uint64_t inode);
  void insert(const std::shared_ptr<File>& file);
  std::vector<std::shared_ptr<File>> files();
  // What somebody keeps of a file without a name. With its name lock held.
  Removed* find_removed(uint64_t inode);
  void insert_removed(uint64_t inode, Removed& removed);
  void erase_removed(uint64_t inode);
  // Held while a file is opened, unlinked or replaced, so that its objects are not freed under an opener.
  Mutex& name_lock(uint64_t inode) { return name_locks_[inode % name_locks_.size()]; }

  // --- background work -----------------------------------------------------------------------------------------------
  unsigned tasks_outstanding() const;
  void wait_for_tasks();  // never in a simulation
  uint64_t pending_frees() const;
  // Some file failed: its uncommitted leftovers are on the members, so the next mount should look for them.
  bool had_failure() const { return had_failure_.load(); }
  void note_failure() override { had_failure_.store(true); }
  void note_loss(uint64_t key, const Status& loss) override;
  Status take_loss(uint64_t key) override;
  Status take_any_loss();
  Status first_loss() const;  // also when somebody was told of it
  void note_unsynced(const File& file) override;
  void note_synced(const File& file) override;
  // Syncs the filesystem of the tree. When that fails nobody knows which names and lazily appended records are on the
  // drive.
  Status sync_tree();
  void keep_new_name(uint64_t key, ScopedHandle directory) override;
  void forget_new_name(uint64_t key) override;
  // A handle of one's own of what keep_new_name() keeps, or none.
  Result<ScopedHandle> new_name_of(uint64_t key);
  void close_new_names();  // before the store goes

 private:
  void start_watching();
  void member_stalled(StallWatch::Domain domain);
  Executor::Task counted(Executor::Task task);
  struct ReclaimBatch {
    std::map<uint64_t, ScopedHandle> directories;  // by inode number
    std::vector<DoomedObjects> objects;
    std::vector<Executor::Task> tasks;
    bool is_empty() const { return directories.empty() && objects.empty() && tasks.empty(); }
  };
  // Takes what is queued and frees it; false when there was nothing.
  bool reclaim_queued();
  Status reclaim_batch(ReclaimBatch& batch);
  using Clock = std::chrono::steady_clock;
  // Some file that lost its last name before `came` is about to be forgotten by the kernel, or so it seems.
  bool is_release_due(Clock::time_point came) const FPFS_REQUIRES(reclaim_mutex_);
  // Some of the first `count` batches is not done.
  bool is_reclaiming(uint64_t count) const FPFS_REQUIRES(reclaim_mutex_) {
    return !reclaims_running_.empty() && *reclaims_running_.begin() < count;
  }
  void start_reclaim() FPFS_REQUIRES(reclaim_mutex_);
  void start_timers();
  bool give_up_old_spares();
  bool commit_trickles();

  std::vector<StallWatch::Registration> registrations_;

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
  Status first_loss_ FPFS_GUARDED_BY(failure_mutex_);
  std::map<uint64_t, Status> losses_ FPFS_GUARDED_BY(failure_mutex_);  // that nobody was told of, by key of the file
  std::map<uint64_t, std::string> unsynced_ FPFS_GUARDED_BY(failure_mutex_);  // a few of them: key and path
  std::atomic<bool> has_losses_{false}, has_unsynced_{false}, has_new_names_{false};
  Mutex new_names_mutex_;
  std::deque<std::pair<uint64_t, ScopedHandle>> new_names_ FPFS_GUARDED_BY(new_names_mutex_);  // the oldest first
  std::atomic<bool> relieving_{false};
  mutable Mutex reclaim_mutex_;
  Mutex change_times_mutex_;
  std::unordered_map<uint64_t, ChangeTime> change_times_ FPFS_GUARDED_BY(change_times_mutex_);
  std::deque<uint64_t> change_times_order_ FPFS_GUARDED_BY(change_times_mutex_);  // the oldest goes first
  Mutex generations_mutex_;
  // Of objects that were made and are not recorded by a commit: the newest of each file.
  std::unordered_map<FileId, Generation> claimed_generations_ FPFS_GUARDED_BY(generations_mutex_);
  StoreTimer spare_timer_;    // looks for spares that nobody wanted
  StoreTimer trickle_timer_;  // and for trickles that are due
  ReclaimBatch reclaim_queue_ FPFS_GUARDED_BY(reclaim_mutex_);
  bool reclaim_posted_ FPFS_GUARDED_BY(reclaim_mutex_) = false;          // a task will take what is queued
  uint64_t reclaims_begun_ FPFS_GUARDED_BY(reclaim_mutex_) = 0;          // batches taken: their numbers count from 0
  std::set<uint64_t> reclaims_running_ FPFS_GUARDED_BY(reclaim_mutex_);  // batches taken and not done
  struct Kept {
    Removed* removed = nullptr;
    Clock::time_point since;
  };
  std::unordered_map<uint64_t, Kept> removed_ FPFS_GUARDED_BY(reclaim_mutex_);
  std::set<std::pair<Clock::time_point, uint64_t>> removed_in_order_ FPFS_GUARDED_BY(reclaim_mutex_);
  CondVar reclaim_done_;  // or something that was kept was released
};

}  // namespace fpfs
