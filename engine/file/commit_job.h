// CommitJob: one commit of one file, from the moment that it describes until that is durable. What it needs is taken
// under the file's lock when it begins, and given back at its end; between the two its steps need nothing of the file:
//
//   sync_objects()          on each of members_to_sync(), side by side; the last to end goes on
//   the record is appended  to the sidecar, behind what is durable now, and synced (SidecarWriter)
//   the name is made        durable: its directory is synced
//
// commit.cpp has the order, and why it is this one.
//
// Thread safety: by phase (File::Phase). While it drains, the file's lock guards it. From then on its steps on the
// executor are alone with it, one behind the other, except for what says otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/file/content.h"
#include "engine/file/index_memory.h"
#include "engine/file/name_state.h"
#include "engine/file/object_set.h"
#include "engine/file/placement.h"
#include "engine/file/previous_content.h"
#include "engine/file/requests.h"
#include "engine/index/sidecar.h"
#include "engine/index/sidecar_writer.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

struct CommitJob {
  std::shared_ptr<const ScopedHandle> sidecar;
  SidecarHeader header;
  SidecarLogState log;   // as it was
  SidecarRecord record;  // when it has one: content or size changed
  bool has_record = false;
  bool is_moved = false;               // which changes nothing but where the content lies
  IndexMemory::Copies copies;          // in `record`
  Content::Edit edit;                  // since the commit before, until the record is built
  std::shared_ptr<ObjectSet> objects;  // to be synced
  Placement::Retired retired;          // free once the record is durable
  Placement::TrimPlan trim;
  std::shared_ptr<PreviousContent> previous;  // that chunks of it may share blocks with
  uint64_t chunks = 0;                        // of the content, on the members
  bool closing = false;                       // a writer has closed: preallocated space is given back
  // Content for the sidecar: in a dirty chunk, which is kWriting until the record is in the log; or what an earlier
  // record holds.
  CachedChunk* inline_chunk = nullptr;
  RecordPlace inline_from;
  uint32_t inline_length = 0;
  bool sync = true;             // false: a lazy one, which makes nothing durable
  bool after_unsynced = false;  // the record before may not be durable
  uint64_t covers = 0;          // the last change that it makes durable
  uint64_t began_ns = 0;        // monotonic_ns()
  NewName new_name;             // that it makes durable, too
  uint64_t names_since = 0;     // CommitLog::now(), when it was known
  bool is_of_closes = false;    // nobody has asked for more than what a close promises
  bool all_names = false;       // so it does with all that the tree has

  // Under the file's lock.
  ControlList requests;    // that asked for it
  bool appending = false;  // the sidecar may be changing
  bool given_up = false;   // its requests were answered

  // The members on which something of `objects` changed or is to be given back.
  std::vector<MemberIndex> members_to_sync() const;
  // One member's part: space is given back, then its object is durable. Waits for the drive; side by side with others.
  Status sync_objects(MemberIndex member) const;
  // One of `pending` has ended so; nothing: others are under way. Else the first failure of all that is known.
  std::optional<Status> object_sync_ended(const Status& status);
  std::atomic<unsigned> pending{0};

 private:
  Mutex mutex_;
  Status failure_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
