#include "engine/tier/awaited_chunk_source.h"

namespace fpfs {

void AwaitedChunkSource::fetch(const Wanted& wanted, std::span<std::byte> into, Done done) {
  std::shared_ptr<ChunkSource> source;
  Status why_not;
  {
    const MutexLock lock(mutex_);
    source = source_;
    why_not = why_not_;
    if (source == nullptr && why_not.is_ok()) {
      waiting_.push_back({wanted, into, std::move(done)});
      return;
    }
  }
  source != nullptr ? source->fetch(wanted, into, std::move(done)) : done(why_not);
}

std::vector<AwaitedChunkSource::Waiting> AwaitedChunkSource::decide(std::shared_ptr<ChunkSource> source,
                                                                    const Status& why) {
  const MutexLock lock(mutex_);
  source_.swap(source);  // the old one goes behind the lock
  why_not_ = why;
  return std::exchange(waiting_, {});
}

void AwaitedChunkSource::found(const std::shared_ptr<ChunkSource>& source) {
  for (Waiting& one : decide(source, Status::ok())) source->fetch(one.wanted, one.into, std::move(one.done));
}

void AwaitedChunkSource::not_found(const Status& why) {
  for (const Waiting& one : decide(nullptr, why)) one.done(why);
}

}  // namespace fpfs
