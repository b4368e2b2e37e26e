// CachedChunk: one chunk of one open file in one pool buffer, and the table that finds it.
//
//            ┌─────────(load failed)──────────→ kFailed ──(last reader gone)──→ gone
//   absent → kLoading ──→ kReady ──(flush)──→ kWriting ──→ kReady
//              ↑            │ clean, idle: evictable           │
//              └────────────┴──────────(evicted, truncated)────┴──→ gone
//
// Descriptors are made once, one per pool buffer. All fields are guarded by the owning file's mutex, except that the
// transfer alone touches `transfer` and the buffer's content while state is kLoading or kWriting.
//
// A chunk that is truncated away or replaced while a transfer or a reader still uses its buffer is detached: no longer
// in the table, freed when the last user is gone. So is one whose transfer was given up on, because its member hangs:
// whoever waits for it gets `failure`, while the buffer stays with the transfer until that has ended.
//
// A chunk of which one read wants a part only (PartReads) is detached from the beginning: nobody else finds it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/status.h"
#include "engine/file/chunk_io.h"
#include "engine/file/requests.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/stall_domain.h"

namespace fpfs {

class File;

struct CachedChunk {
  enum class State : uint8_t { kReady, kLoading, kWriting, kFailed };

  Buffer* buffer = nullptr;
  ChunkIndex index;
  State state = State::kReady;
  bool dirty = false;  // holds bytes that no write was prepared for yet
  bool detached = false;
  bool filling = false;   // a writer copies into it, without the lock
  bool given_up = false;  // nobody waits for its transfer any more
  uint32_t length = 0;    // the first bytes that are content; the rest of the chunk reads as zeros
  unsigned readers = 0;
  uint32_t kept = 0;  // so much of it was read by readers that keep what they get
  Status failure;     // of kFailed

  // How many of the bytes [begin, begin + count) of the chunk are content.
  uint32_t content_within(uint32_t begin, uint32_t count) const {
    return length > begin ? std::min(count, length - begin) : 0;
  }

  ChunkTransfer transfer;      // kLoading: where it is read from; kWriting: where it is going
  StallDomain drive;           // what that waits for
  std::shared_ptr<File> keep;  // while that is under way
  ReadList waiting_reads;
  WriteList waiting_writes;

  CachedChunk* next_in_bucket = nullptr;
  ListLink<CachedChunk> dirty_link;   // the file's dirty list, oldest first
  ListLink<CachedChunk> submit_link;  // of transfers that are about to start
};

using DirtyList = IntrusiveList<CachedChunk, &CachedChunk::dirty_link>;
using SubmitList = IntrusiveList<CachedChunk, &CachedChunk::submit_link>;

// chunk number → CachedChunk of one file. Grows to at most twice the pool's buffer count.
class ChunkTable {
 public:
  ChunkTable() : buckets_(16, nullptr) {}
  CachedChunk* find(ChunkIndex index) const {
    for (CachedChunk* chunk = buckets_[bucket(index)]; chunk != nullptr; chunk = chunk->next_in_bucket)
      if (chunk->index == index) return chunk;
    return nullptr;
  }
  void insert(CachedChunk& chunk) {
    if (count_ >= buckets_.size()) grow();
    push(chunk);
    ++count_;
  }
  void remove(CachedChunk& chunk) {
    CachedChunk** link = &buckets_[bucket(chunk.index)];
    while (*link != &chunk) link = &(*link)->next_in_bucket;
    *link = chunk.next_in_bucket;
    --count_;
  }
  size_t count() const { return count_; }
  // Calls visit(chunk) for each; visit may remove that chunk from the table.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (CachedChunk* head : buckets_)
      for (CachedChunk* chunk = head; chunk != nullptr;) {
        CachedChunk* next = chunk->next_in_bucket;
        visit(*chunk);
        chunk = next;
      }
  }

 private:
  size_t bucket(ChunkIndex index) const { return index.value() & (buckets_.size() - 1); }
  void push(CachedChunk& chunk) {
    CachedChunk*& head = buckets_[bucket(chunk.index)];
    chunk.next_in_bucket = head;
    head = &chunk;
  }
  void grow() {
    std::vector<CachedChunk*> old(buckets_.size() * 2, nullptr);
    old.swap(buckets_);
    for (CachedChunk* chunk : old)
      while (chunk != nullptr) {
        CachedChunk* next = chunk->next_in_bucket;
        push(*chunk);
        chunk = next;
      }
  }
  std::vector<CachedChunk*> buckets_;
  size_t count_ = 0;
};

}  // namespace fpfs
