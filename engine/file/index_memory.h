// IndexMemory: entries of the indexes of all open files, and how many there may be: memory beside the pool. A file that
// would need more of them is not opened, and no chunk is added to one.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace fpfs {

class IndexMemory {
 public:
  explicit IndexMemory(uint64_t entries_max) : entries_max_(entries_max) {}

  // Where ExtentTable counts.
  std::atomic<uint64_t>& entries() { return entries_; }
  bool is_full() const { return entries_.load(std::memory_order_relaxed) >= entries_max_; }
  bool fits(uint64_t entries) const { return entries == 0 || entries_.load() + entries <= entries_max_; }
  // What who needs `entries` more than there may be gets. The log says so once in a while.
  Status refuse(uint64_t entries);
  // Held while a large index is read, which takes several times the memory that it takes afterwards.
  Mutex& large_one() { return large_one_; }

  // Entries that are about to be written whole, copied: memory for that moment.
  class Copies {
   public:
    Copies() = default;
    Copies(const Copies&) = delete;
    Copies& operator=(const Copies&) = delete;
    ~Copies();
    // False when there are too many. However many there are of one file, they are taken while there are no others.
    bool take(IndexMemory& memory, uint64_t count);

   private:
    IndexMemory* memory_ = nullptr;
    uint64_t count_ = 0;
  };

 private:
  const uint64_t entries_max_;
  std::atomic<uint64_t> entries_{0};
  std::atomic<uint64_t> copies_{0};
  Mutex large_one_;
};

}  // namespace fpfs
