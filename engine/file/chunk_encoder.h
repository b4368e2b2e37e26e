// ChunkEncoder: the way of a chunk that is to be stored encoded, from its buffer to its member's queue.
//
//   start  → (a space of its member is free) → on the array's workers: encode, hash → ready
//
// Encoded bytes need memory of their own until they are on the drive, as readers go on reading the chunk's buffer. Each
// member has a few such *spaces*: a member that hangs keeps its own and nobody else's. A chunk that finds none free waits
// in its member's order; one that does not shrink gives its space back at once. Spaces that were never needed were never
// touched, and cost no memory.
//
// Thread safety: all methods from any thread. Callbacks run without locks held.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/intrusive_list.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/codec/chunk_codec.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/task_counter.h"

namespace fpfs {

class ChunkEncoder;

// What one chunk needs of the encoder. Its owner embeds it, and leaves it and the bytes alone until ready().
struct EncodeRequest {
  // In.
  MemberIndex member;
  std::span<const std::byte> raw;
  uint64_t seed = 0;  // of its place: chunk_seed()
  Compression compression;
  // Once. Ok, on a worker: what was encoded is said below. Otherwise why it never will be: inside fail_waiting() or
  // stop(), or on a worker after that.
  void (*ready)(EncodeRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;

  // Out. Codec kRaw and no space: it is stored as it is.
  EncodedChunk encoded;
  Buffer* space = nullptr;    // where it lies, up to release()
  uint64_t processor_ns = 0;  // what that took of one processor

  // The encoder's own.
  ListLink<EncodeRequest> link;
};

class ChunkEncoder {
 public:
  // So many spaces for each member, of the size of a chunk. `tasks` outlives it. kSystem: no memory.
  static Result<std::unique_ptr<ChunkEncoder>> create(uint16_t members, unsigned spaces, uint32_t chunk_size,
                                                      TaskCounter& tasks);
  ~ChunkEncoder();  // nothing is under way
  ChunkEncoder(const ChunkEncoder&) = delete;
  ChunkEncoder& operator=(const ChunkEncoder&) = delete;

  void start(EncodeRequest& request);
  // What was encoded is on the drive, or will never be: the next of its member has the space.
  void release(EncodeRequest& request);
  // The member hangs: what waits for a space is answered with `failure`.
  void fail_waiting(MemberIndex member, const Status& failure);
  // Nothing is encoded any more: what waits, for a space or for a worker, is answered with a failure. On return no ready()
  // runs that says ok.
  void stop();

 private:
  using Requests = IntrusiveList<EncodeRequest, &EncodeRequest::link>;
  struct Spaces {
    std::vector<Buffer*> free;
    Requests waiting;
  };

  ChunkEncoder(std::unique_ptr<BufferPool> pool, uint16_t members, unsigned spaces, TaskCounter& tasks);
  bool begin_encoding();
  void end_encoding();
  void encode(EncodeRequest& request);
  void post(EncodeRequest& request);
  void give_back(MemberIndex member, Buffer& space);

  const std::unique_ptr<BufferPool> pool_;  // all of it is spaces
  TaskCounter& tasks_;
  Mutex mutex_;
  PerMember<Spaces> spaces_ FPFS_GUARDED_BY(mutex_);
  bool stopped_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned encoding_ FPFS_GUARDED_BY(mutex_) = 0;  // workers
  CondVar none_encodes_;
};

}  // namespace fpfs
