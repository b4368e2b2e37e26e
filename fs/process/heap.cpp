#include "fs/process/heap.h"

#include <malloc.h>

#include "engine/base/units.h"

namespace fpfs {
namespace {

// Each thread that is not the first of its arena may wait for another's allocation: the data path has none.
constexpr int kArenas = 4;
constexpr int kOwnPagesFrom = 128 * 1024;
constexpr size_t kWorthIt = 2 * kMiB;

}  // namespace

void Heap::configure() {
  mallopt(M_ARENA_MAX, kArenas);
  // Said, it stays what it is: by itself it grows up to 32 MiB with the pieces that were freed.
  mallopt(M_MMAP_THRESHOLD, kOwnPagesFrom);
}

void Heap::give_back() {
  const size_t free = mallinfo2().fordblks;
  if (free < kept_ + kWorthIt) return;
  malloc_trim(0);
  // Of a page that is partly in use the rest still counts as free, and so do trimmed pages in the middle.
  kept_ = mallinfo2().fordblks;
}

}  // namespace fpfs
