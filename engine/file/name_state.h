// NameState: what of an open file's names is not durable yet, and whether it has one.
//
// A name that was made or moved becomes durable with the file's next commit, which syncs the directory that it is in:
// that directory's handle waits here, where it is needed. When the last name goes, what the file had on the members is
// freed after the removal is durable: the handle of the directory that it was removed from waits here until the file
// goes, or none, where all names are synced instead. One handle waits at most.
//
// Thread safety: none; the file's lock. No I/O but the closing of handles that are replaced.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/io/scoped_handle.h"

namespace fpfs {

// Where a file was made, for the commit log (commit_log.h); empty: nowhere that is known to it.
struct MadeName {
  uint64_t at = 0;        // CommitLog::now(), before
  std::string directory;  // its Storage::identity()
  std::string name;
};

// A name that no commit has made durable, if there is one.
struct NewName {
  bool exists = false;
  // To be synced; none: the file's own sync does it (Storage::logs_names_in_order()), or nobody knows where the name is.
  ScopedHandle directory;
  MadeName made = {};  // of one that was made with the file, and is the only one so far
};

class NameState {
 public:
  // `made`: of a file that was just created.
  explicit NameState(NewName made)
      : new_in_(std::move(made.directory)), is_new_(made.exists), made_(std::move(made.made)) {}

  // Nobody knows whether a commit has made its name durable, or where that is.
  void may_be_new() { is_new_ = true; }
  // It was renamed, or (of one without a name) linked, into `directory`.
  void moved_to(ScopedHandle directory) {
    new_in_ = std::move(directory);
    is_new_ = true;
    made_ = {};
  }
  void given_in(ScopedHandle directory) {
    is_unnamed_ = false;
    moved_to(std::move(directory));
  }
  // Its last name went: none is to become durable any more.
  void removed_from(ScopedHandle directory) {
    removed_from_ = std::move(directory);
    is_removed_ = true;
    take_new();
  }
  // It was made without a name (O_TMPFILE).
  void set_unnamed() { is_unnamed_ = true; }

  // No commit has made its name durable, or is about to.
  bool is_new() const { return is_new_; }
  bool is_removed() const { return is_removed_; }
  // Nobody comes to it by a name: when its openers are gone, it is.
  bool is_nameless() const { return is_removed_ || is_unnamed_; }

  // For a commit, which makes it durable: it is no new one any more.
  NewName take_new() { return {std::exchange(is_new_, false), std::move(new_in_), std::exchange(made_, {})}; }
  // The file failed: what is to be synced is for the commit that comes some time. The name stays a new one.
  NewName leave_new() { return {is_new_, std::move(new_in_)}; }
  bool holds_removed_from() const { return removed_from_.is_open(); }
  ScopedHandle take_removed_from() { return std::move(removed_from_); }

 private:
  ScopedHandle new_in_;
  bool is_new_;
  MadeName made_;
  ScopedHandle removed_from_;
  bool is_removed_ = false;
  bool is_unnamed_ = false;
};

}  // namespace fpfs
