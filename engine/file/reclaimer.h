// Reclaimer: frees, in the background, the objects of files that were removed or replaced, and the places of chunks
// that were. An object that is worth it becomes a spare (spare_objects.h) instead of being removed.
//
// The order is what matters: the name change must be durable before the first object goes, or a power cut would bring
// back a name whose data is gone. Requests are gathered while a batch runs, so that removing a directory of many files
// costs one fsync of it per batch, not per file.
//
// Freeing runs one batch after the other. Whoever finds a drive full first helps: finish() takes what is queued and
// waits for what others took, so that space that was given up counts as free. It waits for what it finds when it comes:
// others may go on removing files for ever.
//
// Thread safety: all methods from any thread. Not under locks where it says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/array/array.h"
#include "engine/array/array_health.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/file/member_counters.h"
#include "engine/file/spare_objects.h"
#include "engine/io/environment.h"
#include "engine/io/recurring_timer.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/task_counter.h"

namespace fpfs {

class Reclaimer {
 public:
  // What it works with.
  struct Parts {
    Environment& environment;
    Array& array;
    TaskCounter& tasks;  // where batches run
    ArrayHealth& health;
    ArrayCounters& counters;
    SpareObjects& spares;
  };
  // All of them outlive it. `spare_life`: spares that nobody wanted for so long are freed; zero: never.
  Reclaimer(const Parts& parts, std::chrono::minutes spare_life);
  // No spare is looked at any more. Before the spares go; not under locks.
  void end() { spare_timer_.end(); }

  // Frees objects, or keeps them as spares. `directory` (or none) is synced first: the name that led to them was
  // removed from it.
  void reclaim(std::vector<DoomedObjects> objects, ScopedHandle directory);
  // A name went of a file that keeps others, and no handle waits for that to be durable. When the last one has gone,
  // too, a power cut must bring none of them back: before anything is freed from here on, all names are synced.
  void note_name_removed();
  // Runs a task that frees space: in the background, or by whoever needs the space first.
  void post(Executor::Task task);
  // Frees the spare objects: what is left of them after this is what becomes spare meanwhile.
  void free_spares();

  // Before a full drive is reported: frees everything that waits for it now, and waits for what others are freeing;
  // what is removed from now on is not waited for. Not under locks; may block for the drives. False: there was nothing.
  bool finish();
  // Runs `call`; when that fails for lack of space while space is still being freed, once more behind that.
  template <typename Call>
  auto with_space(Call call) {
    auto result = call();
    if (status_of(result).code() == StatusCode::kNoSpace && finish()) result = call();
    return result;
  }
  // Waits until nothing of what waits now to be freed does, at most this long.
  void wait(std::chrono::milliseconds limit);
  uint64_t pending() const;

  // Somebody keeps a file that has lost its last name, and will most likely let it go soon: the kernel forgets nearly
  // every file as soon as its last name went, but says so behind the answer to unlink(2); and a commit lets go of the
  // file behind the answer to who waited for it.
  void note_kept(uint64_t inode);
  // Behind the reclaim() of what the file had. Nothing when it was not kept.
  void note_released(uint64_t inode);

 private:
  using Clock = std::chrono::steady_clock;
  struct Batch {
    std::map<uint64_t, ScopedHandle> directories;  // by inode number
    std::vector<DoomedObjects> objects;
    std::vector<Executor::Task> tasks;
    bool syncs_all_names = false;
    bool is_empty() const { return directories.empty() && objects.empty() && tasks.empty(); }
  };

  void start() FPFS_REQUIRES(mutex_);
  // Takes what is queued and frees it; false when there was nothing.
  bool run_queued();
  Status run(Batch& batch);
  bool release_old_spares();
  // Some file that lost its last name before `came` is about to be forgotten by the kernel, or so it seems.
  bool is_release_due(Clock::time_point came) const FPFS_REQUIRES(mutex_);
  // Some of the first `count` batches is not done.
  bool is_running(uint64_t count) const FPFS_REQUIRES(mutex_) { return !running_.empty() && *running_.begin() < count; }
  void take_names_to_sync(Batch& batch, uint64_t number) FPFS_REQUIRES(mutex_);
  Status sync_names(const Batch& batch, const ScopedHandle& tree);

  const Parts parts_;
  const std::chrono::minutes spare_life_;
  RecurringTimer spare_timer_;  // looks for spares that nobody wanted
  mutable Mutex mutex_;
  CondVar changed_;  // a batch is done, or something that was kept was released
  Batch queue_ FPFS_GUARDED_BY(mutex_);
  bool is_posted_ FPFS_GUARDED_BY(mutex_) = false;          // a task will take what is queued
  uint64_t begun_ FPFS_GUARDED_BY(mutex_) = 0;              // batches taken: their numbers count from 0
  std::set<uint64_t> running_ FPFS_GUARDED_BY(mutex_);      // batches taken and not done
  bool is_name_unsynced_ FPFS_GUARDED_BY(mutex_) = false;   // note_name_removed(), and no batch has taken it
  std::set<uint64_t> syncing_all_ FPFS_GUARDED_BY(mutex_);  // those of the running batches that sync all names
  std::unordered_map<uint64_t, Clock::time_point> kept_ FPFS_GUARDED_BY(mutex_);  // inode: since when
  std::set<std::pair<Clock::time_point, uint64_t>> kept_in_order_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
