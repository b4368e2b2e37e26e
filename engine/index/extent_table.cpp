#include "engine/index/extent_table.h"

namespace fpfs {

const Extent& ExtentTable::get(ChunkIndex chunk) const {
  static const Extent kHole;
  const auto page = pages_.find(chunk / kPageEntries);
  return page == pages_.end() ? kHole : page->second->entries[chunk % kPageEntries];
}

void ExtentTable::set(ChunkIndex chunk, const Extent& extent) {
  auto page = pages_.find(chunk / kPageEntries);
  if (page == pages_.end()) {
    if (!extent.exists()) return;
    page = pages_.emplace(chunk / kPageEntries, std::make_unique<Page>()).first;
  }
  Extent& entry = page->second->entries[chunk % kPageEntries];
  if (entry.exists()) {
    --page->second->used;
    --count_;
    allocated_ -= entry.allocated();
  }
  if (extent.exists()) {
    entry = extent;
    ++page->second->used;
    ++count_;
    allocated_ += entry.allocated();
    return;
  }
  entry = Extent();
  if (page->second->used == 0) pages_.erase(page);
}

void ExtentTable::remove_from(ChunkIndex first, const std::function<void(ChunkIndex, const Extent&)>& removed) {
  for (auto page = pages_.lower_bound(first / kPageEntries); page != pages_.end();) {
    const ChunkIndex base = page->first * kPageEntries;
    const uint64_t begin = first > base ? first - base : 0;
    for (uint64_t i = begin; i < kPageEntries; ++i) {
      Extent& entry = page->second->entries[i];
      if (!entry.exists()) continue;
      const Extent gone = entry;
      entry = Extent();
      --page->second->used;
      --count_;
      allocated_ -= gone.allocated();
      if (removed) removed(base + i, gone);
    }
    page = page->second->used == 0 ? pages_.erase(page) : std::next(page);
  }
}

void ExtentTable::clear() {
  pages_.clear();
  count_ = 0;
  allocated_ = 0;
}

void ExtentTable::for_each(ChunkIndex first, const std::function<bool(ChunkIndex, const Extent&)>& visit) const {
  for (auto page = pages_.lower_bound(first / kPageEntries); page != pages_.end(); ++page) {
    const ChunkIndex base = page->first * kPageEntries;
    const uint64_t begin = first > base ? first - base : 0;
    for (uint64_t i = begin; i < kPageEntries; ++i) {
      const Extent& entry = page->second->entries[i];
      if (entry.exists() && !visit(base + i, entry)) return;
    }
  }
}

}  // namespace fpfs
