// ChunkCache: the chunks of an open file that are in memory, each in one buffer of the pool: found by their number,
// those that are not stored yet (dirty) in the order in which they became so, and those that are detached: no part of
// the content any more, but still in use by a reader or a transfer. See cached_chunk.h for the life of one.
//
// The buffer of a chunk that is clean and that nobody uses is *evictable*: the pool may take it for another, by the
// owner's try_evict() and evict() here. Any other buffer stays with its chunk until release_if_idle() or detach().
//
// Who waits for a chunk is put on a Woken list when it may go on, for the caller to call without the file's lock.
//
// Thread safety: none; the file's lock (the pool has its own). No I/O.
#pragma once

#include <vector>

#include "engine/file/cached_chunk.h"
#include "engine/io/buffer_pool.h"

namespace fpfs {

class ChunkCache {
 public:
  struct Woken {
    ReadList reads;    // evaluate again
    WriteList writes;  // continue
  };

  // `chunks`: the descriptor of each buffer, by Buffer::index. Both outlive it.
  ChunkCache(BufferPool& pool, CachedChunk* chunks) : pool_(pool), chunks_(chunks) {}

  // Null: not in memory.
  CachedChunk* find(ChunkIndex index) const { return table_.find(index); }
  // `buffer`, which was acquired for it, is chunk `index` of the owner from here on: ready, clean and without content.
  CachedChunk& adopt(Buffer& buffer, BufferOwner& owner, ChunkIndex index);
  // The same for one that nobody finds: detached, to be loaded for who has it.
  CachedChunk& adopt_apart(Buffer& buffer, BufferOwner& owner, ChunkIndex index);
  // The pool takes the buffer of a clean, idle chunk.
  void evict(const Buffer& buffer);
  template <typename Visit>
  void for_each(Visit visit) const {  // visit may detach the chunk
    table_.for_each(visit);
  }

  // Some use of the chunk ended: a transfer, a reader, a copy into it. When it was the last one, who waits for it may
  // go on, and its buffer is evictable; of a chunk that is dirty it stays, and of one that failed or is detached it
  // goes back to the pool. `cold`: it is not likely to be wanted again soon.
  void release_if_idle(CachedChunk& chunk, bool cold, Woken& woken);
  static void wake(CachedChunk& chunk, Woken& woken);
  // The chunk, which is clean, is no part of the content any more.
  void detach(CachedChunk& chunk, Woken& woken);
  // Of the detached ones those that a transfer uses.
  const std::vector<CachedChunk*>& detached_in_transfer() const { return detached_in_transfer_; }

  void mark_dirty(CachedChunk& chunk);
  void mark_clean(CachedChunk& chunk);
  CachedChunk* oldest_dirty() const { return dirty_.front(); }  // null: none
  size_t dirty_count() const { return dirty_.count(); }
  template <typename Visit>
  void for_each_dirty(Visit visit) const {  // the oldest first; visit may mark it clean
    dirty_.for_each(visit);
  }

  // At the end of the file, when nothing is dirty: all buffers go back.
  void clear();

 private:
  CachedChunk& prepare(Buffer& buffer, BufferOwner& owner, ChunkIndex index);
  void free(CachedChunk& chunk);

  BufferPool& pool_;
  CachedChunk* const chunks_;
  ChunkTable table_;
  DirtyList dirty_;
  std::vector<CachedChunk*> detached_in_transfer_;
};

}  // namespace fpfs
