// PosixEnvironment: the engine's world in production: the kernel's storage, libaio queues, threads, clock and
// randomness.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/io/environment.h"
#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"
#include "engine/io/watched_storage.h"

namespace fpfs {

class PosixEnvironment : public Environment {
 public:
  // `threads` bounds how many blocking calls (syncs, sidecar writes, removals) run at a time, as long as they come
  // back. `storage`: what makes the calls; tests pass one that hangs. `workers`: how many compute at a time; 0: as
  // many as `threads`.
  explicit PosixEnvironment(unsigned threads = threads_default(),
                            std::unique_ptr<Storage> storage = std::make_unique<PosixStorage>(), unsigned workers = 0)
      : storage_(std::move(storage)),
        watched_(*storage_, watch_),
        executor_(threads),
        workers_(workers == 0 ? threads : workers, "fpfs-work") {}
  Storage& storage() override { return watched_; }
  StallWatch* watch() override { return &watch_; }
  ThreadExecutor& executor() override { return executor_; }
  Executor& workers() override { return workers_; }
  Result<std::unique_ptr<IoQueue>> make_queue(MemberIndex member, const QueueSettings& settings) override;
  struct timespec now() override;
  struct timespec stamp() override;
  ProcessorTimes processor_times() override;  // from /proc/stat, in ticks of 10 ms
  Status allow_handles(uint64_t count) override;
  uint64_t random_u64() override;

  // The pool of buffers is taken as a whole: kInvalidArgument when the machine has not so many bytes, and would swap, or kill
  // for it; and when this process's control group may not have them.
  static Status check_buffer_memory(uint64_t bytes);
  // Bytes that programs could have without swapping; 0: nobody says.
  static uint64_t memory_available();
  // One for each core, and enough of them for what waits for drives.
  static unsigned threads_default() { return std::max(8U, std::thread::hardware_concurrency()); }

 private:
  std::unique_ptr<Storage> storage_;
  StallWatch watch_;
  WatchedStorage watched_;
  ThreadExecutor executor_;
  ThreadExecutor workers_;
  Mutex random_mutex_;
  std::array<uint64_t, 32> random_ FPFS_GUARDED_BY(random_mutex_){};  // the last ones of what the kernel gave
  size_t random_left_ FPFS_GUARDED_BY(random_mutex_) = 0;
};

}  // namespace fpfs
