#include "engine/store/summary_cache.h"

namespace fpfs {

void SummaryCache::remember(const struct stat& sidecar, const SidecarSummary& summary) {
  Shard& shard = shard_of(sidecar.st_ino);
  const MutexLock lock(shard.mutex);
  shard.entries.set(sidecar.st_ino, {sidecar.st_size, sidecar.st_ctim, summary});
}

std::optional<SidecarSummary> SummaryCache::recall(const struct stat& sidecar) {
  Shard& shard = shard_of(sidecar.st_ino);
  const MutexLock lock(shard.mutex);
  const Entry* const entry = shard.entries.find(sidecar.st_ino);
  const bool is_same = entry != nullptr && entry->size == sidecar.st_size &&
                       entry->changed.tv_sec == sidecar.st_ctim.tv_sec &&
                       entry->changed.tv_nsec == sidecar.st_ctim.tv_nsec;
  return is_same ? std::optional(entry->summary) : std::nullopt;
}

void SummaryCache::forget(uint64_t inode) {
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  if (Entry* const entry = shard.entries.find(inode)) entry->size = kForgotten;
}

}  // namespace fpfs
