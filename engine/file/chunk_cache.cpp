#include "engine/file/chunk_cache.h"

#include "engine/base/check.h"

namespace fpfs {

using State = CachedChunk::State;

CachedChunk& ChunkCache::adopt(Buffer& buffer, BufferOwner& owner, ChunkIndex index) {
  CachedChunk& chunk = prepare(buffer, owner, index);
  table_.insert(chunk);
  return chunk;
}

CachedChunk& ChunkCache::adopt_apart(Buffer& buffer, BufferOwner& owner, ChunkIndex index) {
  CachedChunk& chunk = prepare(buffer, owner, index);
  chunk.detached = true;
  detached_in_transfer_.push_back(&chunk);
  return chunk;
}

CachedChunk& ChunkCache::prepare(Buffer& buffer, BufferOwner& owner, ChunkIndex index) {
  CachedChunk& chunk = chunks_[buffer.index];
  buffer.owner = &owner;
  chunk.buffer = &buffer;
  chunk.index = index;
  chunk.state = State::kReady;
  chunk.dirty = chunk.detached = chunk.filling = chunk.given_up = false;
  chunk.length = chunk.kept = 0;
  chunk.readers = 0;
  chunk.transfer.extent = Extent();
  chunk.transfer.part = {};
  chunk.failure = Status::ok();
  return chunk;
}

void ChunkCache::evict(const Buffer& buffer) {
  CachedChunk& chunk = chunks_[buffer.index];
  FPFS_CHECK(chunk.state == State::kReady && !chunk.dirty && chunk.readers == 0 && !chunk.filling,
             "only clean, idle chunks are evictable");
  table_.remove(chunk);
  chunk.buffer = nullptr;
}

void ChunkCache::free(CachedChunk& chunk) {
  Buffer* const buffer = chunk.buffer;
  chunk.buffer = nullptr;
  pool_.release(*buffer);
}

void ChunkCache::wake(CachedChunk& chunk, Woken& woken) {
  while (ReadRequest* const request = chunk.waiting_reads.pop_front()) woken.reads.push_front(*request);
  while (WriteRequest* const request = chunk.waiting_writes.pop_front()) woken.writes.push_front(*request);
}

void ChunkCache::release_if_idle(CachedChunk& chunk, bool cold, Woken& woken) {
  if (chunk.readers > 0 || chunk.filling) return;
  if (chunk.state == State::kLoading || chunk.state == State::kWriting) return;
  wake(chunk, woken);
  if (chunk.detached) {
    if (!detached_in_transfer_.empty()) std::erase(detached_in_transfer_, &chunk);
    free(chunk);
  } else if (chunk.state == State::kFailed) {
    table_.remove(chunk);
    free(chunk);
  } else if (!chunk.dirty) {
    pool_.make_evictable(*chunk.buffer, cold);
  }
}

void ChunkCache::detach(CachedChunk& chunk, Woken& woken) {
  FPFS_CHECK(!chunk.dirty, "what is not stored is given up before it goes");
  if (chunk.state == State::kReady && chunk.readers == 0) pool_.make_busy(*chunk.buffer);
  table_.remove(chunk);
  chunk.detached = true;
  if (chunk.state == State::kLoading || chunk.state == State::kWriting) detached_in_transfer_.push_back(&chunk);
  wake(chunk, woken);
  release_if_idle(chunk, true, woken);
}

void ChunkCache::mark_dirty(CachedChunk& chunk) {
  chunk.dirty = true;
  dirty_.push_back(chunk);
}

void ChunkCache::mark_clean(CachedChunk& chunk) {
  dirty_.remove(chunk);
  chunk.dirty = false;
}

void ChunkCache::clear() {
  FPFS_CHECK(dirty_.is_empty(), "what is not stored is given up before it goes");
  table_.for_each([this](CachedChunk& chunk) {
    table_.remove(chunk);
    free(chunk);
  });
}

}  // namespace fpfs
