// ChunkRanges: a set of chunk numbers, kept as ranges. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "engine/base/units.h"

namespace fpfs {

class ChunkRanges {
 public:
  bool contains(ChunkIndex chunk) const {
    const auto after = ranges_.upper_bound(chunk);
    return after != ranges_.begin() && std::prev(after)->second > chunk;
  }
  // Adds [first, stop); calls added(first, stop) for every part that was not in the set.
  template <typename Added>
  void add(ChunkIndex first, ChunkIndex stop, Added added) {
    if (first >= stop) return;
    ChunkIndex next = first;
    auto range = ranges_.upper_bound(first);
    if (range != ranges_.begin() && std::prev(range)->second >= first) --range;
    ChunkIndex merged_first = first;
    ChunkIndex merged_stop = stop;
    while (range != ranges_.end() && range->first <= stop) {
      if (next < range->first) added(next, range->first);
      next = std::max(next, range->second);
      merged_first = std::min(merged_first, range->first);
      merged_stop = std::max(merged_stop, range->second);
      range = ranges_.erase(range);
    }
    if (next < stop) added(next, stop);
    ranges_.emplace(merged_first, merged_stop);
  }
  // Removes [first, stop); calls removed(first, stop) for every part that was in the set.
  template <typename Removed>
  void remove(ChunkIndex first, ChunkIndex stop, Removed removed) {
    if (first >= stop) return;
    auto range = ranges_.upper_bound(first);
    if (range != ranges_.begin() && std::prev(range)->second > first) --range;
    while (range != ranges_.end() && range->first < stop) {
      const auto [from, to] = *range;
      auto node = ranges_.extract(range++);  // used again: a writer that takes chunk after chunk allocates nothing
      if (from < first) {
        node.mapped() = first;
        ranges_.insert(std::move(node));
        if (to > stop) ranges_.emplace(stop, to);
      } else if (to > stop) {
        node.key() = stop;
        ranges_.insert(std::move(node));
      }
      removed(std::max(from, first), std::min(to, stop));
    }
  }
  bool is_empty() const { return ranges_.empty(); }
  size_t count() const { return ranges_.size(); }  // of ranges
  // visit(first, stop), in ascending order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [first, stop] : ranges_) visit(first, stop);
  }

 private:
  std::map<ChunkIndex, ChunkIndex> ranges_;  // first → one behind the last; apart from each other
};

}  // namespace fpfs
