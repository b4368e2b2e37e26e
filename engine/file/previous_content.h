// PreviousContent: committed content that most likely resembles what is being written to a file, chunk by chunk at the
// same place: what the file itself held until it was truncated to nothing, or another file, the one before it in a
// rotation of checkpoints (PreviousFiles finds it). Chunks that are the same share its blocks (chunk_sharer.h).
//
// It is only a guess where to look, and may end at any moment: the other file is changed, removed, or cannot be opened.
// Space is held while a chunk is being compared (Place::held) and not longer; the other file is kept open.
//
// Thread safety: all methods from any thread; those of the last group also with a file's lock held. Its end may be the
// end of a File: not under locks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/file/object_set.h"
#include "engine/index/extent_table.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

class CommittedVersion;
class File;
struct ShareRequest;

class PreviousContent {
 public:
  // A node of a file that it may be (an O_PATH handle of its sidecar).
  using Candidate = std::shared_ptr<const ScopedHandle>;

  // What a file held itself: committed, durable, and retired until its next commit, for which transfers that use this
  // are waited for.
  PreviousContent(ExtentTable extents, std::shared_ptr<ObjectSet> objects);
  // Of a file that user `uid` makes at `path`: to be looked for, see opened().
  PreviousContent(std::string path, uid_t uid) : path_(std::move(path)), uid_(uid), is_looked_for_(true) {}
  ~PreviousContent();
  PreviousContent(const PreviousContent&) = delete;
  PreviousContent& operator=(const PreviousContent&) = delete;

  // Where a chunk of it lies, as long as this exists.
  struct Place {
    Extent extent;
    std::shared_ptr<ObjectSet> objects;
    std::shared_ptr<CommittedVersion> held;  // of another file; none: of the file itself
  };
  std::optional<Place> place_of(ChunkIndex chunk);

  // --- whoever looks for it: PreviousFiles --------------------------------------------------------------------------
  // The path that its file was made at; empty: it was not made.
  const std::string& path() const { return path_; }
  // Whose it is. Others' files are none of his business: what is left of the drives would say what is in them.
  uid_t uid() const { return uid_; }
  void add_candidate(Candidate candidate);
  // The next one to be tried; null: there are no more.
  Candidate next_candidate();
  // The file that it is looked for: told when that has ended. Before anybody looks.
  void set_owner(std::weak_ptr<File> owner) { owner_ = std::move(owner); }
  // It is this one, whose chunk 0 lies on member `start`; or (null) there is none. Chunks that wait for it go on.
  void opened(std::shared_ptr<File> file, MemberIndex start);
  // That file is removed: it is not kept any longer.
  void forget(uint64_t inode);
  // What waits for it waits no longer: the drive where it is looked for does not answer.
  void release_waiting();

  // --- whoever stores chunks ----------------------------------------------------------------------------------------
  // It is being looked for: ChunkSharer::start(request) is called again when that has ended. False: it can be asked
  // now.
  bool wait(ShareRequest& request);
  bool is_looked_for() const;
  // Whether to try the next chunk. Where nothing is alike, few are tried.
  bool is_worth_a_try();
  // What came of one that was tried. True: nothing so far was like it, and another candidate may be: whoever looks for
  // it goes on.
  bool note(bool shared);
  // The member of its chunk 0, as far as that is known: chunks are shared by files that begin on the same member.
  std::optional<MemberIndex> start() const;
  void set_start(MemberIndex start);

 private:
  void go_on(const std::vector<ShareRequest*>& waiting);

  const std::string path_;
  const uid_t uid_ = 0;
  const ExtentTable extents_;  // of the file itself
  const std::shared_ptr<ObjectSet> objects_;
  std::weak_ptr<File> owner_;
  mutable Mutex mutex_;
  bool is_looked_for_ FPFS_GUARDED_BY(mutex_) = false;
  std::shared_ptr<File> file_ FPFS_GUARDED_BY(mutex_);
  std::deque<Candidate> candidates_ FPFS_GUARDED_BY(mutex_);
  std::optional<MemberIndex> start_ FPFS_GUARDED_BY(mutex_);
  std::vector<ShareRequest*> waiting_ FPFS_GUARDED_BY(mutex_);
  bool has_shared_ FPFS_GUARDED_BY(mutex_) = false;  // with what it is now
  unsigned misses_ FPFS_GUARDED_BY(mutex_) = 0;      // in a row
  unsigned skipped_ FPFS_GUARDED_BY(mutex_) = 0;     // in a row
};

}  // namespace fpfs
