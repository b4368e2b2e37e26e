// ChunkSharer: chunks that a file has in common with its previous content (previous_content.h) are not stored again:
// they share its blocks, which the member's filesystem counts (Storage::clone_range).
//
//   start → (it is known which content; a space of the member is free) → on the array's workers:
//     prefilter  the new content, hashed as if it were the old chunk, has the old chunk's checksum (of encoded chunks,
//                that of its first block; 4 KiB are read for it)
//     read       the old stored bytes, from the drive; verified, decoded
//     compare    byte for byte with the new content
//     clone      the old chunk's blocks become those of the new chunk's slot
//     bind       checksums name array, file, generation and chunk: the extent gets one of its own, of the content in
//                memory. Encoded chunks carry theirs in their first blocks, which are written anew
//   → done: shared, or to be stored as any other
//
// Never a guess: a hash only says what is worth reading. So a damaged chunk is inherited by nobody, nor is a chunk
// whose hash happens to be the same. (What is shared is one copy from then on, and damage that comes later is both's.)
//
// Whatever fails here is no failure of the file: the chunk is stored. What of the old content cannot be read, or is not
// what was written, is counted and logged as damage is anywhere. The new object counts as changed, as after a write, so
// the commit's sync makes the clone durable before a record names it. The old chunk is committed and held meanwhile.
//
// Comparing needs memory beside the pool: MemberSpaces, of two chunks each.
//
// Thread safety: all methods from any thread. Callbacks run without locks held.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/base/status.h"
#include "engine/codec/chunk_codec.h"
#include "engine/file/member_spaces.h"
#include "engine/file/object_set.h"
#include "engine/file/previous_content.h"

namespace fpfs {

class FileContext;

// What one chunk needs of the sharer. Its owner embeds it, and leaves it and the bytes alone until done(). `member` is
// the owner's to fill in.
struct ShareRequest : SpaceRequest {
  // In.
  std::shared_ptr<PreviousContent> previous;  // null: the chunk is stored
  ChunkIndex chunk;
  SlotIndex slot;                      // of `objects`, where it goes
  std::shared_ptr<ObjectSet> objects;  // that the member is one of
  std::span<const std::byte> raw;
  uint64_t seed = 0;  // of its place: chunk_seed()
  // Once. Ok: `shared` says what there is. Otherwise why it never will be: inside fail_waiting() or stop(), or on a
  // worker after that.
  void (*done)(ShareRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;

  // Out. Codec kNone: it is not shared, and what its slot holds means nothing.
  EncodedChunk shared;

  // The sharer's own.
  class ChunkSharer* sharer = nullptr;
};

class ChunkSharer {
 public:
  // The context outlives it. kUnsupported: files of some member cannot share blocks; says which and what to do.
  // kSystem: no memory.
  static Result<std::unique_ptr<ChunkSharer>> create(FileContext& context);

  void start(ShareRequest& request);
  // One that the array will have in a moment. Nothing is shared on it when its files cannot.
  void add_member(MemberIndex member);
  // The member hangs: what waits for a space is answered with `failure`.
  void fail_waiting(MemberIndex member, const Status& failure) { spaces_->fail_waiting(member, failure); }
  // Nothing is shared any more: what waits is answered with a failure. On return no done() runs that says ok.
  void stop() { spaces_->stop(); }

  uint64_t chunks() const { return chunks_.load(std::memory_order_relaxed); }  // shared so far
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }    // of drives that they did not take

 private:
  ChunkSharer(FileContext& context, std::unique_ptr<MemberSpaces> spaces);
  void compare(ShareRequest& request);
  static std::byte* stored_in(const ShareRequest& request) { return request.space->data; }
  std::byte* decoded_in(const ShareRequest& request) const;
  bool share(ShareRequest& request);
  Result<bool> is_same(const ShareRequest& request, const PreviousContent::Place& place, Handle from);
  Status clone(ShareRequest& request, const PreviousContent::Place& place, Handle from);
  void report(const ShareRequest& request, const PreviousContent::Place& place, const Status& failure);

  FileContext& context_;
  const std::unique_ptr<MemberSpaces> spaces_;  // what is stored, and behind it what that decodes to
  PerMember<std::atomic<bool>> is_unable_;      // its filesystem refused
  std::atomic<uint64_t> chunks_{0}, bytes_{0};
};

}  // namespace fpfs
