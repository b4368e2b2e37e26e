// SummaryCache: what the ends of sidecars said that nobody has open, so that they are not read again to look a file up,
// to list it and to remove it: the kernel forgets nodes, and asks for each again.
//
// An entry holds while inode, size and change time of the sidecar are what they were. That would do, as a sidecar only
// grows, were it not for kernels whose time stands still for some milliseconds (before Linux 6.13): a removed file's inode
// may belong to a new one by then. So a file that is opened is forgotten: only sidecars of open files change. What is
// read of a file to open it is not from here.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <optional>

#include "engine/base/fifo_map.h"
#include "engine/base/mutex.h"
#include "engine/index/sidecar.h"

namespace fpfs {

class SummaryCache {
 public:
  static constexpr size_t kFilesMax = 65536;  // some 10 MiB at most; the oldest goes first

  // `sidecar`: its attributes (not the logical ones) from before its end was read.
  void remember(const struct stat& sidecar, const SidecarSummary& summary);
  std::optional<SidecarSummary> recall(const struct stat& sidecar);
  // It may change from now on.
  void forget(uint64_t inode);

 private:
  struct Entry {
    int64_t size = 0;  // of the sidecar; kForgotten
    struct timespec changed {};
    SidecarSummary summary;
  };
  static constexpr int64_t kForgotten = -1;
  static constexpr size_t kShards = 64;
  struct alignas(64) Shard {
    Mutex mutex;
    FifoMap<uint64_t, Entry, kFilesMax / kShards> entries FPFS_GUARDED_BY(mutex);  // by inode
  };

  Shard& shard_of(uint64_t inode) { return shards_[inode % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace fpfs
