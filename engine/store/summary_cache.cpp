#include "engine/store/summary_cache.h"

namespace fpfs {

void SummaryCache::remember(const struct stat& sidecar, const SidecarSummary& summary) {
  Shard& shard = shard_of(sidecar.st_ino);
  const MutexLock lock(shard.mutex);
  const Entry entry{sidecar.st_size, sidecar.st_ctim, summary};
  if (shard.entries.insert_or_assign(sidecar.st_ino, entry).second) shard.order.push_back(sidecar.st_ino);
  if (shard.order.size() <= kFilesMax / kShards) return;
  shard.entries.erase(shard.order.front());
  shard.order.pop_front();
}

std::optional<SidecarSummary> SummaryCache::recall(const struct stat& sidecar) {
  Shard& shard = shard_of(sidecar.st_ino);
  const MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(sidecar.st_ino);
  if (found == shard.entries.end()) return std::nullopt;
  const Entry& entry = found->second;
  const bool is_same = entry.size == sidecar.st_size && entry.changed.tv_sec == sidecar.st_ctim.tv_sec &&
                       entry.changed.tv_nsec == sidecar.st_ctim.tv_nsec;
  return is_same ? std::optional(entry.summary) : std::nullopt;
}

void SummaryCache::forget(uint64_t inode) {
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(inode);
  if (found != shard.entries.end()) found->second.size = kForgotten;
}

}  // namespace fpfs
