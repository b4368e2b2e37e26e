#include "engine/store/summary_cache.h"

namespace fpfs {

std::unique_ptr<SummaryCache::Shard::Line>& SummaryCache::Shard::line_of(uint64_t inode) {
  return lines[inode / kShards / std::tuple_size_v<Line> % lines.size()];
}

SummaryCache::Entry* SummaryCache::Shard::find(uint64_t inode) {
  const std::unique_ptr<Line>& line = line_of(inode);
  return line == nullptr ? nullptr : &(*line)[place_in_line(inode)];
}

void SummaryCache::remember(const struct stat& sidecar, const SidecarSummary& summary) {
  Shard& shard = shard_of(sidecar.st_ino);
  const MutexLock lock(shard.mutex);
  std::unique_ptr<Shard::Line>& line = shard.line_of(sidecar.st_ino);
  if (line == nullptr) line = std::make_unique<Shard::Line>();
  (*line)[place_in_line(sidecar.st_ino)] = {sidecar.st_ino, sidecar.st_size, sidecar.st_ctim, summary};
}

std::optional<SidecarSummary> SummaryCache::recall(const struct stat& sidecar) {
  Shard& shard = shard_of(sidecar.st_ino);
  const MutexLock lock(shard.mutex);
  const Entry* const entry = shard.find(sidecar.st_ino);
  const bool is_same = entry != nullptr && entry->inode == sidecar.st_ino && entry->size == sidecar.st_size &&
                       entry->changed.tv_sec == sidecar.st_ctim.tv_sec &&
                       entry->changed.tv_nsec == sidecar.st_ctim.tv_nsec;
  return is_same ? std::optional(entry->summary) : std::nullopt;
}

void SummaryCache::forget(uint64_t inode) {
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  if (Entry* const entry = shard.find(inode); entry != nullptr && entry->inode == inode) entry->inode = 0;
}

}  // namespace fpfs
