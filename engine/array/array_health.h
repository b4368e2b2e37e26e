// ArrayHealth: whether commits can be trusted any more, and what was lost of files whose writers had been told that all
// was well.
//
// Thread safety: all methods from any thread, with any lock held; they take none but their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace fpfs {

// Files as a message names them: the first few, and how many more there are. A file that is added again counts once.
// Not thread-safe.
class NamedFiles {
 public:
  void add(uint64_t key, const std::string& path);
  size_t count() const { return keys_.size(); }
  // "/a, /b, /c and 2 other files"; without the first `skipped` of those that are named.
  std::string text(size_t skipped = 0) const;

 private:
  std::set<uint64_t> keys_;
  std::vector<std::string> first_;
};

class ArrayHealth {
 public:
  // The tree's or a member's state is unknown (a failed sync of a sidecar or directory): no more commits, ever. The
  // first one counts.
  void fail(const Status& status);
  Status failure() const;  // ok while the array can be written

  // A file failed: what it wrote and did not commit stays on the members until a recovery looks for it, so the array is
  // not marked clean.
  // `key` is its sidecar's inode. `failure`: what last_save() is to say; ok: nothing.
  void note_file_failure(uint64_t key, const std::string& path, const Status& failure);
  bool had_failure() const { return had_failure_.load(); }
  // What its last save failed with: the file has what was committed before, or nothing. Ok: it was saved since, or is
  // not remembered, as very many have failed.
  Status last_save(uint64_t key) const;
  // It was saved, or is gone.
  void forget_file_failure(uint64_t key);
  // What no file needs any more could not be freed: the array is not marked clean, so that the next mount does. Nobody's
  // content is affected.
  void note_not_freed() { has_leftovers_.store(true); }
  bool has_leftovers() const { return has_leftovers_.load(); }

  // The files that failed, whether somebody was told or not; empty: none.
  std::string failed_files() const;

  // Content is lost although its close returned 0. The end of the array says so, and before that whoever takes it.
  void note_loss(uint64_t key, const std::string& path, const Status& failure);
  // What of a file was lost and nobody was told yet: the caller tells it, or it no longer matters. Ok: nothing.
  Status take_loss(uint64_t key);
  Status take_any_loss();
  // With the paths of other files that something was lost of; also when somebody was told of it.
  Status all_losses() const;
  // A failure of the end, with all files that failed where there are more than it speaks of.
  Status with_failed_files(const Status& failure) const;

  // A record was appended and not synced: the next sync of everything covers it. For what is said when that fails.
  void note_unsynced(uint64_t key, const std::function<std::string()>& path);
  void note_synced(uint64_t key);
  // "a, b and others": those that a sync of everything covers which begins now; empty when there are none.
  std::string take_unsynced();

 private:
  mutable Mutex mutex_;
  Status failure_ FPFS_GUARDED_BY(mutex_);
  Status first_loss_ FPFS_GUARDED_BY(mutex_);
  NamedFiles lost_ FPFS_GUARDED_BY(mutex_), failed_files_ FPFS_GUARDED_BY(mutex_);
  std::map<uint64_t, Status> losses_ FPFS_GUARDED_BY(mutex_);         // that nobody was told of
  std::map<uint64_t, Status> unsaved_ FPFS_GUARDED_BY(mutex_);        // what last_save() gives
  std::map<uint64_t, std::string> unsynced_ FPFS_GUARDED_BY(mutex_);  // a few of them
  // Cheap answers.
  std::atomic<bool> failed_{false}, had_failure_{false}, has_leftovers_{false}, has_losses_{false}, has_unsaved_{false},
      has_unsynced_{false};
};

}  // namespace fpfs
