// ChunkIo: the way of one chunk's bytes between a buffer and its member.
//
//   write   (share blocks, and be done)  →  (encode)  →  hash; open or make the object, with space  →  O_DIRECT write
//   read    open the object  →  O_DIRECT read  →  verify (P3)  →  (decode)
//   part    open the object  →  read the index  →  verify  →  read the blocks  →  decode and verify   (chunk_part.cpp)
//
// What a drive needs runs on its queue's thread: objects are opened and get their space, transfers are started and end.
// What a processor needs is the array's work, and runs on its workers, so that one drive's thread is never the limit of
// what its chunks cost: encoding (with the hash of what comes out), decoding, and, when others wait for that thread,
// hashing and verifying. With nobody waiting it does these two itself, which saves waking a worker for each chunk.
// Sharing reads and compares, and runs on the executor (chunk_sharer.h). Nobody sees bytes that were not verified.
//
// Thread safety: start() from any thread, also with the caller's locks held.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/codec/block_codec.h"
#include "engine/file/auto_compression.h"
#include "engine/file/chunk_encoder.h"
#include "engine/file/chunk_sharer.h"
#include "engine/file/object_set.h"
#include "engine/index/extent_table.h"
#include "engine/io/handle_cache.h"
#include "engine/io/io_queue.h"

namespace fpfs {

class ChunkIo;
class FileContext;

// The end of what a read says whose object is not there: kCorruption.
constexpr const char* kObjectMissing = "the object is missing";

// One transfer. The caller embeds it, and leaves it and its buffer alone from start() until done().
struct ChunkTransfer {
  IoRequest::Kind kind = IoRequest::Kind::kRead;
  ChunkIndex chunk;
  // Read: where it is. Write: where it goes, with its raw length; codec, stored length and checksum are filled in.
  Extent extent;
  std::shared_ptr<ObjectSet> objects;  // that the member is one of; none after done()
  std::byte* data = nullptr;           // a whole chunk, aligned to kIoAlignment; read: extent.raw_length bytes count
  // Read of a chunk with codec kBlocks: only these bytes of the content are wanted; `data` has them where it would have
  // them of the whole chunk, and anything elsewhere. None: all are.
  BlockIndex::Range part;
  // The bytes are handled as they are stored. Read: they are checked as ever, and left encoded. Write: `extent` says how
  // they are encoded, their length and checksum.
  bool as_stored = false;
  bool is_checked = false;  // read: also where StoreOptions::verify says that nothing is
  bool streaming = false;   // write: more will follow behind it
  bool is_saved = true;     // write: somebody saves it; false: it was fetched, is healed or moves
  Compression compression;  // write: how it is stored
  ShareRequest sharing;     // write: `previous`, where the chunk may share blocks; none after done()
  // Once, on an engine thread or (a member that is missing or hangs) inside start(). The transfer may be used again, or
  // be gone, when it returns. Of a read: kCorruption when what is there is not what was written. A write whose object
  // was given up before it was made is no failure: it is nobody's content. A failure is for ChunkIo::report().
  void (*done)(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status) = nullptr;
  void* owner = nullptr;

  // ChunkIo's own.
  ChunkIo* io = nullptr;
  EncodeRequest encoding;
  IoRequest request;
  HandleCache::Pin object;
  IoQueue* queue = nullptr;  // that it was handed to
  BlockIndex::Range blocks;  // that hold the part, in the stored bytes
};

class ChunkIo {
 public:
  // The context outlives it. Its array, options, counters and room are there.
  explicit ChunkIo(FileContext& context);
  // The queue of a member, before the first transfer of that one; a missing one has none.
  void set_queue(MemberIndex member, std::unique_ptr<IoQueue> queue) { queues_[member] = std::move(queue); }
  // The same for one that the array will have in a moment.
  void add_member(MemberIndex member, std::unique_ptr<IoQueue> queue);
  // For what is to be stored encoded; before the first transfer.
  void encode(std::unique_ptr<ChunkEncoder> encoder) { encoder_ = std::move(encoder); }
  // For what may share blocks; before the first transfer.
  void share(std::unique_ptr<ChunkSharer> sharer) { sharer_ = std::move(sharer); }
  // Null: nothing shares blocks.
  const ChunkSharer* sharer() const { return sharer_.get(); }
  // Waits for what is on its way; nothing is started any more.
  void close_queues();

  void start(ChunkTransfer& transfer);
  // Transfers whose done() has not returned yet: until then one may hold the last reference to its file.
  unsigned under_way() const { return under_way_.load(std::memory_order_acquire); }

  const IoQueue* queue(MemberIndex member) const { return queues_[member].get(); }
  // The member hangs: what waits for its turn fails. See IoQueue::fail_waiting().
  void fail_waiting(MemberIndex member, const Status& failure);

  // A failure that is one, and not of a chunk that was replaced meanwhile: counts it against the member, and says where:
  // "step100.pt, chunk 7: member 2 (/nvme2/fp), object .. at offset 3145728: <what>".
  Status report(const Status& failure, const ChunkTransfer& transfer, const ObjectSet& objects,
                const std::string& path);
  // The same for those who say path and chunk otherwise: "/m2/objects/..: <what> (member 2, offset .., length ..)".
  // Counts nothing.
  Status locate(const Status& failure, const ChunkTransfer& transfer, const ObjectSet& objects) const;

 private:
  static void shared(ShareRequest& sharing, const Status& status);
  void store(ChunkTransfer& transfer);
  void store_raw(ChunkTransfer& transfer);
  static void encoded(EncodeRequest& encoding, const Status& status);
  void submit(ChunkTransfer& transfer);
  void hand_over(ChunkTransfer& transfer);
  bool is_stalled(const ChunkTransfer& transfer) const;
  uint64_t seed_of(const ChunkTransfer& transfer) const;
  uint64_t checksum_of(const ChunkTransfer& transfer, const std::byte* stored) const;
  static Status prepare(IoRequest& request);
  Status prepare_write(ChunkTransfer& transfer);
  static Status prepare_read(ChunkTransfer& transfer);
  static void complete(IoRequest& request, const Status& status);
  Status after_write(const ChunkTransfer& transfer, const Status& status);
  void after_read(ChunkTransfer& transfer, const Status& outcome);
  bool is_left_to_workers(const ChunkTransfer& transfer) const;
  Status check(const ChunkTransfer& transfer) const;
  Status verify(const ChunkTransfer& transfer) const;
  void end(ChunkTransfer& transfer, const Status& status);

  // chunk_part.cpp
  void start_part(ChunkTransfer& transfer);
  static void index_read(IoRequest& request, const Status& status);
  static void blocks_read(IoRequest& request, const Status& status);
  Result<BlockIndex> index_of(const ChunkTransfer& transfer, std::span<const std::byte> stored) const;
  Status plan_blocks(ChunkTransfer& transfer) const;
  void decode_part(ChunkTransfer& transfer);
  void count_read(const ChunkTransfer& transfer);

  bool is_to_be_encoded(const ChunkTransfer& transfer);

  FileContext& context_;
  std::unique_ptr<ChunkEncoder> encoder_;  // null: nothing is written
  AutoCompression auto_compression_;
  std::unique_ptr<ChunkSharer> sharer_;
  // Of each member: to be stored as it is or encoded already, not completed.
  PerMember<std::atomic<unsigned>> writes_at_queue_;
  PerMember<std::unique_ptr<IoQueue>> queues_;
  std::atomic<unsigned> under_way_{0};
};

}  // namespace fpfs
