// Requests on an open file: the caller embeds one, calls File, and is called back exactly once. The callback may run
// inside the call (everything was at hand) or later on an engine thread; no engine lock is held while it runs.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/base/intrusive_list.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/file/landing.h"
#include "engine/file/room.h"
#include "engine/file/tensor_starts.h"
#include "engine/file/writer.h"
#include "engine/io/buffer_pool.h"

namespace fpfs {

// The longest single request that every pool can serve (FUSE's largest at 256 pages). Longer ones are split by the
// caller.
constexpr uint32_t kRequestBytesMax = 1024 * 1024;
// Reads may be longer, up to this, with a pool of at least eight times the length.
constexpr uint32_t kReadBytesMax = 4 * 1024 * 1024;
// Chunks that one read can touch: kReadBytesMax over the smallest chunk, plus one for misalignment.
constexpr unsigned kReadChunksMax = kReadBytesMax / (64 * 1024) + 1;

// Position of one reader in one open file, for read-ahead. One per open handle; guarded by the file.
struct ReadCursor {
  FileOffset next_offset;  // where the next sequential read would start: behind the furthest of them
  uint64_t window = 0;     // bytes to read ahead; grows while reads are sequential
  ChunkIndex ahead;        // first chunk that was not asked for yet
  TensorHops tensors;      // jumps that lead on
};

struct ReadRequest {
  // In.
  FileOffset offset;
  uint32_t length = 0;           // at most kReadBytesMax
  ReadCursor* cursor = nullptr;  // optional: without one nothing is read ahead
  bool reader_caches = false;    // the reader keeps what it gets: chunks that it has read whole may go first
  void (*complete)(ReadRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;

  // Out, valid during complete() only: the bytes, verified, `bytes` in all (fewer than `length` only at end of file).
  std::array<struct iovec, 2 * kReadChunksMax> iov{};
  unsigned iov_count = 0;
  uint32_t bytes = 0;

  // The engine's own.
  ListLink<ReadRequest> link;
  class File* file = nullptr;
  BufferPool::Waiter waiter;
  std::array<struct CachedChunk*, kReadChunksMax> pinned{};
  unsigned pinned_count = 0;
};

struct WriteRequest {
  // In.
  FileOffset offset;
  uint32_t length = 0;              // at most kRequestBytesMax
  const std::byte* data = nullptr;  // stays valid until complete()
  // Optional, from File::begin_landing(): as many of the first bytes as it has room for lie there and not at `data`.
  // Valid until complete(), which leaves it empty.
  Landing* landing = nullptr;
  Origin origin;
  void (*complete)(WriteRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;

  // The engine's own.
  ListLink<WriteRequest> link;
  class File* file = nullptr;
  BufferPool::Waiter waiter;
  Buffer* granted = nullptr;  // a buffer that the pool gave while the request waited
  uint32_t done = 0;
  bool active = false;
  Status refusal;  // not ok: there is no room for it
  unsigned looks_for_room = 0;
  Room::Sent sent_before;  // when it did not fit at first
};

// fsync and close; truncate; hole punching.
struct ControlRequest {
  enum class Kind : uint8_t {
    kCommit,     // make everything written before durable, as one consistent point
    kClose,      // the same, when a writer closes: space preallocated beyond the content is given back
    kTruncate,   // the content ends at `offset`, cut or made longer
    kPunchHole,  // [offset, offset + length) reads as zeros; the size stays
  };
  Kind kind = Kind::kCommit;
  FileOffset offset;
  uint64_t length = 0;
  void (*complete)(ControlRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;

  // Of a change, and of a close: who, and through what. A kClose with a Writer commits only when it ends what its actor
  // wrote through that, or what came by mappings (writer.h).
  Origin origin;
  // kClose with a Writer: a signal ends the process that closes. When it was replacing the file's content (a truncation
  // to nothing that is not committed), that is given up: the file has its last committed content again. When others
  // were writing too, the file fails, for them to know.
  bool killed = false;
  // kCommit, and kClose without a Writer: what to do about changes that their writers have not finished.
  enum class Unfinished : uint8_t {
    kCommitted,         // all is committed: fsync
    kLeftAlone,         // then nothing is committed
    kTricklesCommitted  // unless all of them are trickles'
  };
  Unfinished unfinished = Unfinished::kCommitted;
  // Out: nothing was committed, because of unfinished changes; the replacement was given up.
  bool was_left_alone = false;
  bool was_reverted = false;

  // Content that fits its sidecar is appended there without a sync; other content is left for a real commit. kClose with
  // Durable::kFsync: the kernel's writeback makes it durable soon. kCommit: the caller will (Store::sync_names()).
  bool lazy = false;

  bool is_commit() const { return kind == Kind::kCommit || kind == Kind::kClose; }

  // The engine's own.
  ListLink<ControlRequest> link;
  Status result;
};

using ReadList = IntrusiveList<ReadRequest, &ReadRequest::link>;
using WriteList = IntrusiveList<WriteRequest, &WriteRequest::link>;
using ControlList = IntrusiveList<ControlRequest, &ControlRequest::link>;

}  // namespace fpfs
