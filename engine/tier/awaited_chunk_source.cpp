#include "engine/tier/awaited_chunk_source.h"

namespace fpfs {

void AwaitedChunkSource::fetch(const Wanted& wanted, std::span<std::byte> into, Done done) {
  ask({[wanted, into, done](ChunkSource& source) { source.fetch(wanted, into, done); },
       [done](const Status& why) { done(why); }});
}

void AwaitedChunkSource::fetch_run(const Wanted& first, uint64_t offset, std::span<std::byte> into, Done done) {
  ask({[first, offset, into, done](ChunkSource& source) { source.fetch_run(first, offset, into, done); },
       [done](const Status& why) { done(why); }});
}

void AwaitedChunkSource::ask(Waiting waiting) {
  std::shared_ptr<ChunkSource> source;
  Status why_not;
  {
    const MutexLock lock(mutex_);
    source = source_;
    why_not = why_not_;
    if (source == nullptr && why_not.is_ok()) {
      waiting_.push_back(std::move(waiting));
      return;
    }
  }
  source != nullptr ? waiting.ask(*source) : waiting.refuse(why_not);
}

std::vector<AwaitedChunkSource::Waiting> AwaitedChunkSource::decide(std::shared_ptr<ChunkSource> source,
                                                                    const Status& why) {
  const MutexLock lock(mutex_);
  source_.swap(source);  // the old one goes behind the lock
  why_not_ = why;
  return std::exchange(waiting_, {});
}

void AwaitedChunkSource::found(const std::shared_ptr<ChunkSource>& source) {
  for (const Waiting& one : decide(source, Status::ok())) one.ask(*source);
}

void AwaitedChunkSource::not_found(const Status& why) {
  for (const Waiting& one : decide(nullptr, why)) one.refuse(why);
}

}  // namespace fpfs
