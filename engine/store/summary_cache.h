// SummaryCache: what the ends of sidecars said that nobody has open, so that they are not read again to look a file up,
// to list it and to remove it: the kernel forgets nodes, and asks for each again.
//
// An entry holds while inode, size and change time of the sidecar are what they were. That would do, as a sidecar only
// grows, were it not for kernels whose time stands still for some milliseconds (before Linux 6.13): a torn end is cut off
// and written again, or a removed file's inode belongs to a new one. So whoever is about to change a sidecar forgets it
// first. What is read of a file to open it is not from here.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/base/mutex.h"
#include "engine/index/sidecar.h"

namespace fpfs {

class SummaryCache {
 public:
  static constexpr size_t kFilesMax = 65536;  // 7 MiB at most

  // `sidecar`: its attributes (not the logical ones) from before its end was read. Takes the place of another's.
  void remember(const struct stat& sidecar, const SidecarSummary& summary);
  std::optional<SidecarSummary> recall(const struct stat& sidecar);
  // It may change from now on.
  void forget(uint64_t inode);

 private:
  struct Entry {
    uint64_t inode = 0;  // 0: none
    int64_t size = 0;    // of the sidecar
    struct timespec changed {};
    SidecarSummary summary;
  };
  // Inodes that follow each other are in different shards, and fill one line of each after another.
  struct alignas(64) Shard {
    using Line = std::array<Entry, 16>;
    Mutex mutex;
    std::array<std::unique_ptr<Line>, 64> lines FPFS_GUARDED_BY(mutex);  // null: none of its files was remembered
    std::unique_ptr<Line>& line_of(uint64_t inode) FPFS_REQUIRES(mutex);
    // What is in the file's place, be it another's; null: nothing was.
    Entry* find(uint64_t inode) FPFS_REQUIRES(mutex);
  };
  static constexpr size_t kShards = kFilesMax / 16 / 64;

  Shard& shard_of(uint64_t inode) { return shards_[inode % kShards]; }
  static size_t place_in_line(uint64_t inode) { return inode / kShards % std::tuple_size_v<Shard::Line>; }

  std::array<Shard, kShards> shards_;
};

}  // namespace fpfs
