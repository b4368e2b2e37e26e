// ChunkEncoder: the way of a chunk from its buffer to its member's queue, when workers have something to do for it:
//
//   start  → (a space of its member is free) → on the array's workers: encode, hash → ready
//   start  → on the array's workers: hash → ready                       (Compression::Mode::kOff)
//
// Encoded bytes need memory of their own until they are on the drive, as readers go on reading the chunk's buffer:
// MemberSpaces. A chunk that does not shrink gives its space back at once.
//
// Thread safety: all methods from any thread. Callbacks run without locks held.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/codec/chunk_codec.h"
#include "engine/file/member_spaces.h"

namespace fpfs {

class ChunkEncoder;

// What one chunk needs of the encoder. Its owner embeds it, and leaves it and the bytes alone until ready(). `member`
// is the owner's to fill in; of `space`, where what was encoded lies up to release(), see below.
struct EncodeRequest : SpaceRequest {
  // In.
  std::span<const std::byte> raw;
  uint64_t seed = 0;  // of its place: chunk_seed()
  Compression compression;
  // Once. Ok, on a worker: what was encoded is said below. Otherwise why it never will be: inside fail_waiting() or
  // stop(), or on a worker after that.
  void (*ready)(EncodeRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;

  // Out. Codec kRaw and no space: it is stored as it is.
  EncodedChunk encoded;
  uint64_t processor_ns = 0;  // what that took of one processor

  // The encoder's own.
  ChunkEncoder* encoder = nullptr;
};

class ChunkEncoder {
 public:
  // So many spaces for each member, of the size of a chunk. `tasks` outlives it. kSystem: no memory.
  static Result<std::unique_ptr<ChunkEncoder>> create(uint16_t members, unsigned spaces, uint32_t chunk_size,
                                                      TaskCounter& tasks);

  void start(EncodeRequest& request);
  // What was encoded is on the drive, or will never be: the next of its member has the space.
  void release(EncodeRequest& request) { spaces_->release(request); }
  // The member hangs: what waits for a space is answered with `failure`.
  void fail_waiting(MemberIndex member, const Status& failure) { spaces_->fail_waiting(member, failure); }
  // Nothing is encoded any more: what waits, for a space or for a worker, is answered with a failure. On return no ready()
  // runs that says ok.
  void stop() { spaces_->stop(); }

 private:
  explicit ChunkEncoder(std::unique_ptr<MemberSpaces> spaces) : spaces_(std::move(spaces)) {}
  void encode(EncodeRequest& request);

  const std::unique_ptr<MemberSpaces> spaces_;
};

}  // namespace fpfs
