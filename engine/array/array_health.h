// ArrayHealth: whether commits can be trusted any more, and what was lost of files whose writers had been told that all
// was well.
//
// Thread safety: all methods from any thread, with any lock held; they take none but their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace fpfs {

class ArrayHealth {
 public:
  // The tree's or a member's state is unknown (a failed sync of a sidecar or directory): no more commits, ever. The
  // first one counts.
  void fail(const Status& status);
  Status failure() const;  // ok while the array can be written

  // A file failed: what it wrote and did not commit stays on the members until a recovery looks for it, so the array is
  // not marked clean.
  void note_file_failure() { had_failure_.store(true); }
  bool had_failure() const { return had_failure_.load(); }
  // What no file needs any more could not be freed: the array is not marked clean, so that the next mount does. Nobody's
  // content is affected.
  void note_not_freed() { has_leftovers_.store(true); }
  bool has_leftovers() const { return has_leftovers_.load(); }

  // Content is lost although its close returned 0. `loss` names the file, which is known by `key`, its sidecar's inode.
  // The end of the array says so, and before that whoever takes it.
  void note_loss(uint64_t key, const Status& loss);
  // What of a file was lost and nobody was told yet: the caller tells it, or it no longer matters. Ok: nothing.
  Status take_loss(uint64_t key);
  Status take_any_loss();
  Status first_loss() const;  // also when somebody was told of it

  // A record was appended and not synced: the next sync of everything covers it. For what is said when that fails.
  void note_unsynced(uint64_t key, const std::function<std::string()>& path);
  void note_synced(uint64_t key);
  // "a, b and others": those that a sync of everything covers which begins now; empty when there are none.
  std::string take_unsynced();

 private:
  mutable Mutex mutex_;
  Status failure_ FPFS_GUARDED_BY(mutex_);
  Status first_loss_ FPFS_GUARDED_BY(mutex_);
  std::map<uint64_t, Status> losses_ FPFS_GUARDED_BY(mutex_);         // that nobody was told of
  std::map<uint64_t, std::string> unsynced_ FPFS_GUARDED_BY(mutex_);  // a few of them
  // Cheap answers.
  std::atomic<bool> failed_{false}, had_failure_{false}, has_leftovers_{false}, has_losses_{false},
      has_unsynced_{false};
};

}  // namespace fpfs
