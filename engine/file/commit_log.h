// CommitLog: first commits of small new files that are durable before their sidecars are (engine/index/commit_entry.h).
// Who makes many small files one after the other waits for one write for each, and not for a sync of the drive's
// filesystem, which places the record, writes it and then forces its own log (docs/benchmarks/row09.md).
//
//   append()      the sidecar is written, and not synced; the entry is, with one write: the file is *live*
//   retire        the sidecars of the live files are synced, many at a time, in the background; then the header says
//                 that their entries do not count any more
//   a crash       recovery puts back what the drive does not have of a live file (engine/check/replay.h)
//
// An entry says "the directory D has a name N, of the inode I". What makes it safe that names have two truths for a
// while is that nothing else happens to names meanwhile:
// - Where a name was made otherwise, removed or moved (Change), no file is appended before a sync of the drive's
//   filesystem has made that durable (forced()). So the directory of an entry is durable, and so is all that was done to
//   names before; what came after it is new files only. Recovery never finds the name taken.
// - The last name of a live file goes when the file is not live any more (settle()): recovery would make it again.
// - Before something else is committed of a live file, it is settled, too. Whatever else is done to it finds its sidecar as
//   it would be otherwise.
//
// Only where Storage::logs_names_in_order(): forced() says that all that was done to names before is durable.
//
// Thread safety: all methods from any thread.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/mutex.h"
#include "engine/file/name_state.h"
#include "engine/index/commit_entry.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/task_counter.h"

namespace fpfs {

class CommitLog {
 public:
  struct Hooks {
    std::function<Status()> check;            // whether the drive of the names answers
    std::function<void(const Status&)> fail;  // a sync of sidecars failed: nobody knows what is durable
  };
  // Makes the file, or takes the one that is there, of which nothing counts any more: behind recovery. All outlive it, and
  // it outlives `tasks`' tasks.
  static Result<std::unique_ptr<CommitLog>> open(Storage& storage, const Array& array, TaskCounter& tasks, Hooks hooks);

  // For a name that is about to be made in `directory`; nothing where the directory has no identity.
  MadeName about_to_make(Handle directory, const std::string& name) const;
  // What has been done to names so far. For append(): from when on nothing may have been done.
  uint64_t now() const { return clock_.load(); }

  struct Commit {
    const MadeName& made;
    uint64_t since = 0;  // now(), when the file was known to have that name
    std::shared_ptr<const ScopedHandle> sidecar;
    const struct stat& attributes;  // of the sidecar
    struct timespec mtime;          // that the file is to have
    std::vector<std::byte>& bytes;  // of the sidecar, all that was written to it
  };
  // True: it is durable, with its name and attributes. False: not here; sync it. A failure leaves unknown whether it is.
  Result<bool> append(const Commit& commit);

  // While it exists, names are made otherwise than by creating a file, removed or moved.
  class Change {
   public:
    explicit Change(CommitLog* log);  // null: nothing is to be told
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    CommitLog* const log_;
  };
  // All that was done to names before now() was `until` is durable.
  void forced(uint64_t until);
  // Before the last name of an inode goes (within a Change), or its sidecar is appended to or synced: it is live no more.
  // Waits for the drive of the names. A failure: it still is.
  Status settle(uint64_t inode);
  // No file is live any more. A failure: some still are, and recovery is to have a look.
  Status retire_all();

 private:
  CommitLog(Storage& storage, const Array& array, TaskCounter& tasks, Hooks hooks, ScopedHandle file, uint64_t next);

  // The slots are used in two halves: what one has is retired while the other one fills.
  struct Live {
    uint64_t inode = 0;
    std::shared_ptr<const ScopedHandle> sidecar;
  };
  struct Half {
    std::vector<Live> files;
    unsigned used = 0;     // slots
    unsigned writing = 0;  // of these
  };
  // One half at a time is retired, by whoever has this. No lock is held meanwhile: it waits for the drive.
  class Retiring {
   public:
    explicit Retiring(CommitLog& log);  // when nobody else has it
    ~Retiring();
    Retiring(const Retiring&) = delete;
    Retiring& operator=(const Retiring&) = delete;

   private:
    CommitLog& log_;
  };
  bool is_live(uint64_t inode) const;
  bool may_append(const Commit& commit) const FPFS_REQUIRES(mutex_);
  Status write(uint64_t offset, std::span<const std::byte> bytes);
  Status retire_half(const Retiring& retiring);
  Status sync(const Retiring& retiring, const std::vector<Live>& files);
  bool is_open(const Commit& commit);
  void retire_in_background();
  void retire_later(std::chrono::milliseconds delay);

  static constexpr unsigned kHalfSlots = kCommitSlots / 2;
  static constexpr unsigned kRetiredAt = 64;                // files that are live
  static constexpr std::chrono::milliseconds kLiveMax{50};  // about

  Storage& storage_;
  const Array& array_;
  TaskCounter& tasks_;
  const Hooks hooks_;
  const ScopedHandle file_;
  std::atomic<unsigned> live_count_{0};
  std::atomic<uint64_t> clock_{1};  // goes up with each beginning and each end of a Change
  mutable Mutex mutex_;
  CondVar written_, retired_;
  bool is_retiring_ FPFS_GUARDED_BY(mutex_) = false;
  Status sync_failure_ FPFS_GUARDED_BY(mutex_);
  std::array<Half, 2> halves_ FPFS_GUARDED_BY(mutex_);
  unsigned filling_ FPFS_GUARDED_BY(mutex_) = 0;                         // which half
  std::unordered_map<uint64_t, unsigned> live_ FPFS_GUARDED_BY(mutex_);  // inodes; how often
  uint64_t next_ FPFS_GUARDED_BY(mutex_);                                // number
  unsigned changing_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t last_change_ FPFS_GUARDED_BY(mutex_) = 1;  // clock_ then
  uint64_t forced_ FPFS_GUARDED_BY(mutex_) = 0;
  bool is_task_posted_ FPFS_GUARDED_BY(mutex_) = false;
  // Nothing is appended before all is retired: something failed.
  bool is_closed_ FPFS_GUARDED_BY(mutex_) = false;
};

}  // namespace fpfs
