// FileContext: what every open file shares. Owned by Store; outlives all files.
#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/mutex.h"
#include "engine/file/chunk_io.h"
#include "engine/file/content.h"
#include "engine/file/options.h"
#include "engine/file/room.h"
#include "engine/file/spare_objects.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/environment.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

struct CachedChunk;
class File;

struct MemberCounters {
  std::atomic<uint64_t> bytes_read{0}, bytes_written{0};
  std::atomic<uint64_t> read_errors{0}, write_errors{0}, sync_errors{0}, checksum_errors{0};
};

class FileContext;

// Entries of indexes that are about to be written whole, copied: memory for that moment.
class IndexCopies {
 public:
  IndexCopies() = default;
  IndexCopies(const IndexCopies&) = delete;
  IndexCopies& operator=(const IndexCopies&) = delete;
  ~IndexCopies();
  // False when there are too many. However many there are of one file, they are taken while there are no others.
  bool take(FileContext& context, uint64_t count);

 private:
  FileContext* context_ = nullptr;
  uint64_t count_ = 0;
};

class FileContext {
 public:
  virtual ~FileContext() = default;

  Environment* environment = nullptr;
  StallWatch* watch = nullptr;  // null in a simulation
  Array* array = nullptr;
  StripeMap stripes;
  StoreOptions options;
  std::unique_ptr<BufferPool> pool;
  std::unique_ptr<CachedChunk[]> chunks;  // the descriptor of each pool buffer, by Buffer::index
  std::unique_ptr<MemberCounters[]> counters;
  std::unique_ptr<Room> room;
  std::unique_ptr<ChunkIo> io;
  std::unique_ptr<SpareObjects> spares;
  std::unique_ptr<std::byte[], void (*)(void*)> zeros{nullptr, std::free};  // kReadBytesMax zeros: what holes read as
  struct timespec opened_at {};  // when the array was opened: what was changed before is durable
  // Entries of the indexes of all open files, and how many there may be: memory beside the pool. A file that would
  // need more of them is not opened, and no chunk is added to one; see refuse_index().
  std::atomic<uint64_t> index_entries{0};
  uint64_t index_entries_max = UINT64_MAX;
  Mutex large_index;                      // held while one is read
  std::atomic<uint64_t> index_copies{0};  // see IndexCopies
  std::atomic<uint64_t> commits{0};
  std::atomic<unsigned> writes_in_flight{0};  // of all files

  Storage& storage() const { return environment->storage(); }

  // What who needs `entries` more than there may be gets. The log says so once in a while.
  Status refuse_index(uint64_t entries);

  // When content changes, which the tree's filesystem does not stamp itself. Its own stamps before are never later, its
  // own stamps behind never earlier: both follow the coarse clock, and where the filesystem was finer (multigrain
  // timestamps, Linux 6.13: what somebody has looked at since it last changed is stamped by the fine clock, and nothing
  // is stamped earlier after that), the newest stamp that was seen counts.
  struct timespec change_stamp() const;
  // A change time that the tree's filesystem gave.
  void note_stamp(const struct timespec& ctime);

  // Whether the tree answers. Asked before its state is changed: what was never begun leaves nothing unknown.
  Status check_names() const { return watch != nullptr ? watch->check(StallWatch::kTree) : Status::ok(); }

  // A sidecar or a directory could not be written or synced.
  void count_tree_error() {
    const uint16_t member = array->superblock().metadata_member;
    if (member < stripes.member_count) counters[member].sync_errors.fetch_add(1, std::memory_order_relaxed);
  }

  // What a sidecar holds was read from its drive, and is wrong or cannot be read.
  void count_tree_read_error(const Status& failure) {
    const uint16_t member = array->superblock().metadata_member;
    if (member >= stripes.member_count) return;
    (failure.code() == StatusCode::kCorruption ? counters[member].checksum_errors : counters[member].read_errors)
        .fetch_add(1, std::memory_order_relaxed);
  }

  // When requests wait for buffers and no write is under way that would free some: has files flush partly filled
  // chunks. Cheap when there is nothing to do. Called without locks.
  virtual void relieve_pressure() = 0;
  // Some file is changed by somebody who may never close it: looks again and again at File::commit_trickle() of all.
  // Cheap when it is doing so.
  virtual void watch_trickles() = 0;
  // Runs `task` on the executor; Store::close() and the destructor wait for it.
  virtual void post(Executor::Task task) = 0;
  // The generation that objects about to be made get: `wanted`, or a later one when this mount has made objects of that
  // generation which no commit recorded. Those may be waiting to be freed, by their names.
  virtual Generation claim_generation(FileId file, Generation wanted) = 0;
  // The claims up to `generation` are settled: a commit recorded the last of them, or the file is gone.
  virtual void settle_generation(FileId file, Generation generation) = 0;
  // Frees objects in the background, or keeps them as spares. `directory` (or none) is synced first: the name that led
  // to them was removed from it.
  virtual void reclaim(std::vector<DoomedObjects> objects, ScopedHandle directory) = 0;
  // Runs a task that frees space: in the background, or by whoever needs the space first.
  virtual void post_free(Executor::Task task) = 0;
  // Before a full drive is reported: frees everything that waits for it now, and waits for what others are freeing;
  // what is removed from now on is not waited for. Not under locks; may block for the drives. False: there was nothing.
  virtual bool finish_frees() = 0;
  // Runs `call`; when that fails for lack of space while space is still being freed, once more behind that.
  template <typename Call>
  auto with_space(Call call) {
    auto result = call();
    if (status_of(result).code() == StatusCode::kNoSpace && finish_frees()) result = call();
    return result;
  }
  // The tree's or a member's state is unknown (a failed sync of a sidecar or directory): no more commits, ever.
  virtual void fail_array(const Status& status) = 0;
  virtual Status array_failure() const = 0;  // ok while writable
  // The change time of a file that nobody has open any more, for the next look at it. Kept in memory only: after a
  // remount a file changed when it was committed.
  virtual void remember_change_time(uint64_t key, const ChangeTime& time) = 0;
  virtual ChangeTime recall_change_time(uint64_t key) = 0;
  // A file failed: what it wrote and did not commit stays on the members until a recovery looks for it.
  virtual void note_failure() = 0;
  // Content is lost although its close returned 0. `loss` names the file. The end of the array says so, and before that
  // whoever takes it.
  virtual void note_loss(uint64_t key, const Status& loss) = 0;
  // What of a file was lost and nobody was told yet: the caller tells it, or it no longer matters. Ok: nothing.
  virtual Status take_loss(uint64_t key) = 0;
  // The name of a file whose commit failed may not be durable, and whoever saves to it again finds it there: the next
  // commit syncs `directory` as the failed one would have. Until then, or until the
  // name is removed.
  virtual void keep_new_name(uint64_t key, ScopedHandle directory) = 0;
  virtual void forget_new_name(uint64_t key) = 0;
  // A record was appended and not synced: the next sync of everything covers it. For what is said when that fails.
  virtual void note_unsynced(const File& file) = 0;
  virtual void note_synced(const File& file) = 0;

 private:
  std::atomic<int64_t> newest_stamp_ns_{0};
  std::atomic<int64_t> index_refused_at_{0};  // seconds of Environment::now() when that was logged

  static const Status& status_of(const Status& status) { return status; }
  template <typename T>
  static Status status_of(const Result<T>& result) {
    return result.status();
  }
};

}  // namespace fpfs
