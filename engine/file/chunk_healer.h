// ChunkHealer: gets chunks from a ChunkSource that their members do not give any more, or that are away, and proves
// that they are what was committed. Nobody is given bytes that are not proven:
//
//   a chunk that is stored as it is: what came has the checksum that the record has for it, which names array, file,
//       generation and chunk
//   a chunk that is away: what came has the checksum that the record has for its content
//   any other, and one that is stored as it is and shown in part: the source has checked what came, and its copy was made
//       when the array had stored this chunk under the very checksum that the record has now
//
// So it does not matter which commit a copy was made of, only whether this chunk is the same.
//
// Limits. So many chunks are fetched at a time, with memory beside the pool. Chunks that are away and lie behind each
// other come by one request, a run, into memory that they share: each is proven and answered by itself, and all count
// until the last one of them is gone. Who asks is answered within the time-out; of chunks that are away, of which many
// may be wanted at once, that begins with their turn. A fetch that was given up on keeps its memory, and its place,
// until it has ended. A source that did not answer, or could not be reached, is left alone for a pause: who asks
// meanwhile is answered at once. Memory that is free is kept for the next fetch while another one is in use.
//
// Thread safety: all methods from any thread, without locks. `done` is called once, without locks: on a worker, on a
// thread of the source or the executor, or inside heal() or finish().
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/file/chunk_source.h"
#include "engine/index/superblock.h"
#include "engine/io/environment.h"
#include "engine/io/task_counter.h"

namespace fpfs {

class ChunkHealer : public std::enable_shared_from_this<ChunkHealer> {
 public:
  struct Limits {
    unsigned at_once = 4;                       // chunks
    std::chrono::milliseconds timeout{30'000};  // 0: as long as the source takes
    std::chrono::milliseconds pause{10'000};
  };
  // The content of a healed chunk, in memory of whole, aligned blocks; the rest of the last one is zeros. It
  // counts as being fetched until it is gone, which must not be with a lock held.
  class Piece;
  // Not ok: why there is no chunk. kNotFound, kCorruption: there will be none. All others: not now.
  using Done = std::function<void(const Status&, std::shared_ptr<Piece>)>;
  struct Asked {
    ChunkSource::Wanted wanted;
    // When not null, it gets the first extent.visible_length bytes before `done` is called with success, and is left
    // alone otherwise and after that. The extent shows some bytes.
    std::byte* into = nullptr;
    Done done;
  };

  // All of these outlive finish() and what `tasks` counts; the environment outlives every fetch.
  ChunkHealer(Environment& environment, TaskCounter& tasks, const Uuid& array_id, uint32_t chunk_size,
              const Limits& limits);
  ~ChunkHealer();
  ChunkHealer(const ChunkHealer&) = delete;
  ChunkHealer& operator=(const ChunkHealer&) = delete;

  // Null: none. What is being fetched goes on.
  void set_source(std::shared_ptr<ChunkSource> source);
  bool is_on() const { return is_on_.load(std::memory_order_acquire); }
  void heal(ChunkSource::Wanted wanted, std::byte* into, Done done);
  // Chunks of one file that are away, each behind the one before, all whole but the last one. At most run_max().
  void heal_run(std::vector<Asked> run);
  unsigned run_max() const { return std::max(1U, limits_.at_once / 4); }
  unsigned at_once() const { return limits_.at_once; }
  // Nothing is asked of the source any more: whoever waits is answered, kCancelled.
  void finish();
  // The same, and nobody is answered.
  void abandon();

 private:
  struct Job {
    std::vector<Asked> run;  // without `done`: it was answered
    unsigned answered = 0;
    const ChunkSource::Wanted& first() const { return run.front().wanted; }
    unsigned size() const { return static_cast<unsigned>(run.size()); }
  };
  using Jobs = std::vector<std::shared_ptr<Job>>;
  // Of the chunks of a job.
  class Memory;

  void pump();
  void limit_time(const std::shared_ptr<Job>& job);
  void start(ChunkSource& source, const std::shared_ptr<Job>& job);
  void fetched(const std::shared_ptr<Job>& job, const std::shared_ptr<Memory>& memory,
               const Result<ChunkSource::Found>& found);
  void judge(const std::shared_ptr<Job>& job, size_t at, const std::shared_ptr<Piece>& piece,
             const ChunkSource::Found& found);
  Status prove(const ChunkSource::Wanted& wanted, const Piece& piece, const ChunkSource::Found& found) const;
  void expire(const std::shared_ptr<Job>& job);
  void leave_alone(const Status& why);
  Done take(Job& job, size_t at);
  void answer(const std::shared_ptr<Job>& job, size_t at, const Status& status);
  void answer_all(const std::shared_ptr<Job>& job, const Status& status);
  std::byte* take_memory(unsigned chunks);
  void give_back_memory(std::byte* data, unsigned chunks);
  uint64_t now_ns() const;

  Environment& environment_;
  TaskCounter& tasks_;
  const Uuid array_id_;
  const uint32_t chunk_size_;
  const Limits limits_;

  std::atomic<bool> is_on_{false};
  Mutex mutex_;
  std::shared_ptr<ChunkSource> source_ FPFS_GUARDED_BY(mutex_);
  bool is_finished_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned in_use_ FPFS_GUARDED_BY(mutex_) = 0;
  // Of so many chunks each. Together with what is in use they are at most at_once.
  std::vector<std::pair<unsigned, std::byte*>> free_ FPFS_GUARDED_BY(mutex_);
  unsigned free_chunks_ FPFS_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<Job>> waiting_ FPFS_GUARDED_BY(mutex_);
  Jobs fetching_ FPFS_GUARDED_BY(mutex_);
  uint64_t away_until_ns_ FPFS_GUARDED_BY(mutex_) = 0;
  Status away_ FPFS_GUARDED_BY(mutex_);
};

class ChunkHealer::Piece {
 public:
  Piece(std::shared_ptr<Memory> memory, std::byte* data) : memory_(std::move(memory)), data_(data) {}
  std::byte* data() const { return data_; }

 private:
  const std::shared_ptr<Memory> memory_;
  std::byte* const data_;
};

}  // namespace fpfs
