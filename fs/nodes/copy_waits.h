// CopyWaits: closes and syncs with Durable::kTier, which are answered when what they committed is copied, too.
//
// Who waits is told once: success when the copy is complete, or none is wanted any more, as the file has no name; else
// kIoError with the reason. A copy that takes long is waited for as long as anything reaches the store: only when
// nothing has for the time-out is whoever waits told so, or when nobody is left to be told. What was committed stays
// committed, and is copied later.
//
// Thread safety: all methods from any thread, without locks of the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/io/environment.h"
#include "engine/tier/array_tier.h"
#include "fs/nodes/call_pool.h"

namespace fpfs {

class CopyWaits {
 public:
  using Done = std::function<void(const Status&)>;

  // All outlive it, until end(). `under_way` counts who waits. Time-out 0: for ever.
  CopyWaits(Environment& environment, ArrayTier& tier, RequestCounter& under_way, std::chrono::milliseconds timeout);

  // For this commit of an open file, or a later one. `path` is for messages. `is_left`: nobody waits any more; asked
  // about once a second.
  void wait(uint64_t inode, uint64_t sequence, const std::string& path, std::function<bool()> is_left, Done done);
  // Whoever waits is told that the mount ends, also who comes later.
  void end();

 private:
  struct Waiters;
  const std::shared_ptr<Waiters> waiters_;
};

}  // namespace fpfs
