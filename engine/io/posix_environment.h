// PosixEnvironment: the engine's world in production: the kernel's storage, libaio queues, threads, clock and
// randomness.
#pragma once

#include <memory>

#include "engine/io/environment.h"
#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"

namespace fpfs {

class PosixEnvironment final : public Environment {
 public:
  // `threads` bounds how many blocking calls (syncs, sidecar writes, removals) run at a time.
  explicit PosixEnvironment(unsigned threads = 8) : executor_(threads) {}
  Storage& storage() override { return storage_; }
  ThreadExecutor& executor() override { return executor_; }
  Result<std::unique_ptr<IoQueue>> make_queue(int member, unsigned depth) override;
  struct timespec now() override;
  Status allow_handles(uint64_t count) override;
  uint64_t random_u64() override;

 private:
  PosixStorage storage_;
  ThreadExecutor executor_;
};

}  // namespace fpfs
