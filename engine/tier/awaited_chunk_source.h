// AwaitedChunkSource: stands for the copies of an array while the way to their store is looked for, right after the
// mount. Who asks then waits for it, rather than being told that there is no copy.
//
// Thread safety: all methods from any thread, without locks.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/file/chunk_source.h"

namespace fpfs {

class AwaitedChunkSource final : public ChunkSource {
 public:
  void fetch(const Wanted& wanted, std::span<std::byte> into, Done done) override;
  void fetch_run(const Wanted& first, uint64_t offset, std::span<std::byte> into, Done done) override;
  // Whoever waits, and comes later, is given what this one finds.
  void found(const std::shared_ptr<ChunkSource>& source);
  // It is not to be had now: whoever waits, and comes later, is told why.
  void not_found(const Status& why);

 private:
  struct Waiting {
    std::function<void(ChunkSource&)> ask;
    std::function<void(const Status&)> refuse;
  };
  void ask(Waiting waiting);
  std::vector<Waiting> decide(std::shared_ptr<ChunkSource> source, const Status& why);

  Mutex mutex_;
  std::shared_ptr<ChunkSource> source_ FPFS_GUARDED_BY(mutex_);
  Status why_not_ FPFS_GUARDED_BY(mutex_);  // ok: not known yet
  std::vector<Waiting> waiting_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
