// Healing: chunks of an open file that came from a copy (chunk_healer.h), on their way back to the members; and chunks
// that move to another member (moving.cpp), which go the same way.
//
//   came ──→ being written, to a free slot ──→ written ──(a moment later)──→ object synced ──→ extent ──→ commit
//
// The moment ends at once when nothing else of the content is away.
//
// A slot that a record names is never written to. What is written becomes part of the content only when its object was
// synced, and only while nobody is changing the file; until then it is nobody's, and a failure concerns nobody: readers
// go on with the copy. Then it is an edit like any other, and an ordinary commit records it.
//
// Thread safety: none; the file's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/file/chunk_healer.h"
#include "engine/file/chunk_io.h"
#include "engine/file/chunk_verifier.h"

namespace fpfs {

class File;

class Healing {
 public:
  using Told = std::function<void(bool is_healed)>;

  // What is written: a chunk's content, or what is stored of it. Memory of whole, aligned blocks.
  struct Bytes {
    std::shared_ptr<const void> memory;
    std::byte* data = nullptr;
    bool is_move = false;  // what is stored, and `arrived` is called when it was written (or nothing will be)
    std::function<void()> arrived;
  };
  // One on its way to its slot. Owned by the list until its transfer has ended.
  struct Write {
    ChunkTransfer transfer;
    std::shared_ptr<File> file;
    Bytes bytes;
    Extent old;  // that could not be read, or is left
    uint64_t slots = 0;
    bool is_given_up = false;  // its member hangs: nobody waits for it
    std::vector<Told> told;
  };
  // One that has arrived there.
  struct Written {
    ChunkIndex chunk;
    Extent old, stored;
    std::shared_ptr<ObjectSet> objects;
    uint64_t slots = 0;
    bool is_move = false;
    std::vector<Told> told;
  };

  Write& add() { return *writes_.emplace_back(std::make_unique<Write>()); }
  // The caller lets it go without the lock.
  std::unique_ptr<Write> remove(const Write& write);
  const std::vector<std::unique_ptr<Write>>& writes() const { return writes_; }
  std::vector<std::unique_ptr<Write>> take_writes() { return std::exchange(writes_, {}); }
  bool is_idle() const { return writes_.empty() && written_.empty(); }
  // True: the chunk is on its way already; `told` (may be none) will be told with the others.
  bool join(ChunkIndex chunk, Told& told);

  // True: somebody is to look at what was written, in a moment.
  bool add_written(Written written);
  bool was_written(ChunkIndex chunk) const;
  size_t written_count() const { return written_.size(); }
  std::vector<Written> take_written();
  void put_back(std::vector<Written> written);

  // A write or a sync failed, or what was written cannot be read either: these drives are left alone.
  void refuse() { is_refused_ = true; }
  bool is_refused() const { return is_refused_; }
  void note_recorded(ChunkIndex chunk) { recorded_.insert(chunk); }
  bool was_recorded(ChunkIndex chunk) const { return recorded_.contains(chunk); }

  // Nothing that is on its way, or written, by now is to be recorded. (Which slots are taken was read anew from records,
  // and what was allocated before is free, or another chunk's; or a sync failed, and nobody knows what has arrived.)
  void begin_anew() { ++slots_; }
  uint64_t slots() const { return slots_; }

 private:
  std::vector<std::unique_ptr<Write>> writes_;
  std::vector<Written> written_;
  bool is_scheduled_ = false;
  bool is_refused_ = false;
  std::set<ChunkIndex> recorded_;  // while the file is open; less memory for each than its index takes
  uint64_t slots_ = 0;
};

}  // namespace fpfs
