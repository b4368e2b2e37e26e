// FileContext: what every open file shares. Owned by Store; outlives all files.
#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>

#include "engine/array/array.h"
#include "engine/array/array_health.h"
#include "engine/file/change_clock.h"
#include "engine/file/change_times.h"
#include "engine/file/chunk_healer.h"
#include "engine/file/chunk_io.h"
#include "engine/file/commit_log.h"
#include "engine/file/dirty_files.h"
#include "engine/file/generations.h"
#include "engine/file/index_memory.h"
#include "engine/file/member_counters.h"
#include "engine/file/new_names.h"
#include "engine/file/options.h"
#include "engine/file/previous_files.h"
#include "engine/file/reclaimer.h"
#include "engine/file/room.h"
#include "engine/file/spare_objects.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/environment.h"
#include "engine/io/stall_watch.h"
#include "engine/io/task_counter.h"

namespace fpfs {

struct CachedChunk;
class File;

// Each part has its own contract, and is given the parts that it needs. File and ChunkIo, where nearly all of them
// meet, are given this.
class FileContext {
 public:
  // Both outlive it. What can fail is made by start().
  FileContext(Environment& environment, Array& array, const StoreOptions& options);
  virtual ~FileContext() = default;
  // Makes the pool, the chunk descriptors and the queues, and completes the options.
  Status start();

  Environment& environment;
  Array& array;
  StallWatch* const watch;  // null in a simulation
  const StripeMap stripes;
  StoreOptions options;
  const struct timespec opened_at;  // what was changed before is durable
  TaskCounter tasks;
  ArrayHealth health;
  ArrayCounters counters;
  ChangeClock clock;
  ChangeTimes change_times;
  Generations generations;
  IndexMemory indexes;

  std::unique_ptr<BufferPool> pool;
  std::unique_ptr<CachedChunk[]> chunks;  // the descriptor of each pool buffer, by Buffer::index
  unsigned fetch_run = 1;                 // chunks that are away and come by one request, at most; a power of two
  unsigned fetch_ahead = 0;               // as options.read_ahead, of chunks that are away
  std::unique_ptr<std::byte[], void (*)(void*)> zeros{nullptr, std::free};  // kReadBytesMax zeros: what holes read as
  std::unique_ptr<Room> room;
  std::unique_ptr<SpareObjects> spares;
  std::unique_ptr<Reclaimer> reclaimer;
  std::unique_ptr<NewNames> new_names;
  std::unique_ptr<CommitLog> commit_log;          // null: every commit is synced
  std::unique_ptr<PreviousFiles> previous_files;  // null: nothing is shared
  std::unique_ptr<ChunkIo> io;
  std::shared_ptr<ChunkHealer> healer;  // outlived by nothing that it calls; see ChunkHealer::finish()
  // Opens the file of a node to be read; waits for the drive of the names. Set by whoever has the files.
  std::function<Result<std::shared_ptr<File>>(Handle node)> open_file;
  // Told of every commit that is durable: see Store::on_commit().
  std::function<void(uint64_t inode, uint64_t sequence, bool is_moved)> committed;
  bool names_need_no_directory = false;  // Storage::logs_names_in_order(), of the tree
  bool files_sync_names = false;         // as Storage::syncs_own_names() says of the tree
  // Some file was closed without a sync (Durable::kFsync), so what a closed file's record says may not be durable.
  std::atomic<bool> closes_lazily;
  // Files may have ChunkSource::kOthersAttribute.
  std::atomic<bool> has_others{false};
  std::atomic<unsigned> versions_held{0};      // of all files
  std::atomic<bool> looks_for_tensors{false};  // in the header of some file
  // Held while objects on members that are leaving are unlinked, and while such a member is taken back. No file's lock
  // is held when it is taken.
  Mutex dropping;
  std::atomic<uint64_t> commits{0};
  std::atomic<unsigned> writes_in_flight{0};  // of all files
  DirtyFiles dirty_files;

  Storage& storage() const { return environment.storage(); }

  // Whether the tree answers. Asked before its state is changed: what was never begun leaves nothing unknown.
  Status check_names() const { return watch != nullptr ? watch->check(kTreeDomain) : Status::ok(); }

  // --- of whoever has the files ------------------------------------------------------------------------------------
  // When requests wait for buffers and no write is under way that would free some: has files flush partly filled
  // chunks. Cheap when there is nothing to do. Called without locks.
  virtual void relieve_pressure() = 0;
  // Some file is changed by somebody who may never close it: looks again and again at File::commit_trickle() of all.
  // Cheap when it is doing so.
  virtual void watch_trickles() = 0;
  // Makes durable all that the tree has. Of several callers each is told of a failure. Called without locks.
  virtual Status sync_tree() = 0;
};

}  // namespace fpfs
