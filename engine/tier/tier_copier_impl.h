// TierCopier's private part. tier_copier.cpp has what waits and what begins, tier_copy_job.cpp the steps of one copy,
// tier_scan.cpp the way through the tree.
//
// One lock, for bookkeeping only. What blocks runs on the environment's executor, what computes on its workers; content
// is read by the engine and sent by the store. Whatever is under way holds this by a shared_ptr; what it needs of the
// array is let go of before the copier counts it as ended.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/tier/tier_copier.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_memory.h"
#include "engine/tier/tier_note.h"
#include "engine/tier/tier_pace.h"
#include "engine/tier/tier_queue.h"
#include "engine/tier/tier_upload.h"

namespace fpfs {

class TierCopier::Impl final : private TierTimer, public std::enable_shared_from_this<Impl> {
 public:
  Impl(Environment& environment, Store& store, ObjectStore& objects, const TierCopyOptions& options,
       uint64_t part_size);

  void open() { scan(); }
  void committed(uint64_t inode, uint64_t sequence);
  void scan();
  void wait_for(const std::string& path, Done done);
  void wait_for_all(const Done& done);
  TierCopyStatus status() const;
  bool is_copying(uint64_t inode) const;
  void set_rate(uint64_t bytes_per_second) { pace_.set_rate(bytes_per_second); }
  void stop(std::function<void()> done);
  // Stops and waits.
  void end();
  // The power is off: whatever is under way has gone without an end.
  void abandon();

 private:
  using Self = std::shared_ptr<Impl>;
  // One file that is being copied.
  struct Job {
    TierWaiting file;
    std::shared_ptr<File> opened;
    TierManifest manifest;
    std::vector<std::byte> encoded;
    TierNote note;
  };
  enum class Ending : uint8_t {
    kCopied,
    kIsCopied,    // it was already
    kGone,        // no such file any more, or nothing of it is durable yet: its next commit is told
    kMoved,       // it has the path that `file` has now
    kLost,        // it is somewhere else: a scan finds it
    kStoreFails,  // every other file would fail, too
    kRefused,     // the store takes others
    kFails,       // it cannot be read
    kCancelled,
  };
  struct Waiter {
    uint64_t sequence = 0;
    Done done;
  };
  struct Everything {
    uint64_t scan = 0;  // that must have ended
    Done done;
  };
  // A directory that a scan is in.
  struct Level {
    std::string path;  // with a '/' at its end; empty: the root
    ScopedHandle handle;
    std::vector<DirectoryEntry> entries;
    size_t next = 0;
    // What the store has there, once it was asked: hashes of keys and of tags, in order.
    bool is_listed = false;
    std::vector<std::pair<uint64_t, uint64_t>> stored;
  };
  struct Found {
    Store::Node node;
    std::string name;
    ScopedHandle directory;
  };
  using Calls = std::vector<std::function<void()>>;  // to be made without the lock

  // --- tier_copier.cpp
  void after(std::chrono::milliseconds delay, std::function<void()> task) override;
  bool is_stopping() const override;
  std::chrono::milliseconds pause(unsigned attempt) override;
  uint64_t now_ns() const;
  int64_t now_s() const { return static_cast<int64_t>(now_ns() / 1'000'000'000); }
  void post(std::function<void(Impl&)> task);
  void begin_task();
  bool add(TierWaiting file) FPFS_REQUIRES(mutex_);
  void pump();
  unsigned jobs_max() const FPFS_REQUIRES(mutex_);
  void end_job(const std::shared_ptr<Job>& job, Ending ending, const Status& status = Status::ok());
  void settle(TierWaiting file, Ending ending, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void note_failure(const Status& status) FPFS_REQUIRES(mutex_);
  void take_in(TierWaiting file, Ending ending, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void store_failed(const Status& status) FPFS_REQUIRES(mutex_);
  void schedule_try(Calls& calls) FPFS_REQUIRES(mutex_);
  void file_failed(TierWaiting file, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void try_failed_again(uint64_t inode);
  void tell_waiters(uint64_t inode, uint64_t sequence, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void look_whether_idle(Calls& calls) FPFS_REQUIRES(mutex_);
  void task_ended();
  TierTools tools();

  // --- tier_copy_job.cpp
  void begin(const std::shared_ptr<Job>& job);
  Ending prepare(Job& job, TierUpload::Source& source, Status& failure);
  static bool is_at(const Result<Found>& found, uint64_t inode);
  // Of a file that is not there.
  Ending find_again(Job& job, const Result<Found>& found);
  Result<Found> find(const std::string& path);
  Status describe(Handle sidecar, TierManifest& manifest);
  bool is_copied(const TierNote& note, const SidecarSummary& record, const std::string& path,
                 bool has_other_names) const;
  std::optional<TierNote> note_of(Handle node, uint64_t inode) const;
  void look_whether_stored(const std::shared_ptr<Job>& job, bool is_manifest);
  void content_sent(const std::shared_ptr<Job>& job, TierUpload::Outcome outcome);
  void send_manifest(const std::shared_ptr<Job>& job, unsigned attempt);
  void manifest_sent(const std::shared_ptr<Job>& job, unsigned attempt, const Result<StoredObject>& stored);
  void write_note(const std::shared_ptr<Job>& job);
  void end_with(const std::shared_ptr<Job>& job, const Status& status, bool is_of_store);

  // --- tier_scan.cpp
  void begin_scan() FPFS_REQUIRES(mutex_);
  void scan_some();
  Status scan_step(bool& is_at_end);
  Status enter(const std::string& path, Handle directory, const std::string& name);
  void list_stored(bool manifests, const std::string& position);
  void stored_listed(bool manifests, const Result<ListPage>& page);
  bool is_stored(const Level& level, const TierNote& note, const std::string& path) const;
  Status look_at(Level& level, const DirectoryEntry& entry);
  void look_at_file(const std::string& path, const Level& level, const std::string& name);
  void refuse(const std::string& path, const std::string& why);
  void end_scan(const Status& status);

  Environment& environment_;
  Store& store_;
  ObjectStore& objects_;
  const TierCopyOptions options_;
  const uint64_t part_size_;
  const std::string place_;  // ObjectStore::describe()
  TierMemory memory_;
  TierPace pace_;
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<bool> stopping_{false};

  mutable Mutex mutex_;
  CondVar ended_;
  TierQueue queue_ FPFS_GUARDED_BY(mutex_);
  // By inode, of files whose sidecar takes none (a daemon that is not root, and a file of somebody else): else each
  // scan would have them copied again. At most waiting_max.
  std::map<uint64_t, TierNote> notes_ FPFS_GUARDED_BY(mutex_);
  std::map<uint64_t, TierWaiting> failed_ FPFS_GUARDED_BY(mutex_);   // by inode; each tries again after failed_pause
  std::map<uint64_t, TierWaiting> copying_ FPFS_GUARDED_BY(mutex_);  // by inode
  std::set<std::string> paths_ FPFS_GUARDED_BY(mutex_);              // of these: one at a time writes an object
  std::multimap<uint64_t, Waiter> waiters_ FPFS_GUARDED_BY(mutex_);  // by inode
  std::vector<Everything> everything_ FPFS_GUARDED_BY(mutex_);
  unsigned tasks_ FPFS_GUARDED_BY(mutex_) = 0;  // that are posted or run, besides jobs
  std::map<uint64_t, std::function<void()>> later_ FPFS_GUARDED_BY(mutex_);
  uint64_t next_later_ FPFS_GUARDED_BY(mutex_) = 0;
  std::function<void()> stopped_ FPFS_GUARDED_BY(mutex_);
  TierCopyStatus counted_ FPFS_GUARDED_BY(mutex_);      // the sums; the rest is looked up
  unsigned away_attempts_ FPFS_GUARDED_BY(mutex_) = 0;  // 0: the store is reachable
  bool may_try_ FPFS_GUARDED_BY(mutex_) = false;        // one file, while it is away
  bool try_is_scheduled_ FPFS_GUARDED_BY(mutex_) = false;
  struct Anchor {
    uint64_t ns = 0, bytes = 0;
  };
  mutable Anchor rate_from_ FPFS_GUARDED_BY(mutex_), rate_next_ FPFS_GUARDED_BY(mutex_);

  // Of scans. The levels are the running scan's own.
  bool is_scanning_ FPFS_GUARDED_BY(mutex_) = false;
  bool scan_wanted_ FPFS_GUARDED_BY(mutex_) = false;
  bool scan_waits_ FPFS_GUARDED_BY(mutex_) = false;   // for the queue to be shorter
  bool scan_is_due_ FPFS_GUARDED_BY(mutex_) = false;  // something was left to it
  bool scan_is_scheduled_ FPFS_GUARDED_BY(mutex_) = false;
  bool interval_runs_ FPFS_GUARDED_BY(mutex_) = false;  // behind which the next one begins
  uint64_t scans_begun_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ FPFS_GUARDED_BY(mutex_) = 0;  // by the running scan
  bool refused_logged_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<Level> levels_;
  bool asks_store_ = true;  // for what it has; no more in this scan, once it did not answer
};

}  // namespace fpfs
