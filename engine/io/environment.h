// Environment: everything of the outside world that the engine is given. Production passes the POSIX one
// (posix_environment.h), tests a simulated one; the engine cannot tell.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>

#include "engine/io/executor.h"
#include "engine/io/io_queue.h"
#include "engine/io/stall_watch.h"
#include "engine/io/storage.h"

namespace fpfs {

// What the machine's processors did up to a moment. Two of them say what they did in between.
struct ProcessorTimes {
  uint64_t now_ns = 0;   // CLOCK_MONOTONIC
  uint64_t idle_ns = 0;  // idle or waiting for a drive, summed over all processors; 0: not known
};

class Environment {
 public:
  virtual ~Environment() = default;
  virtual Storage& storage() = 0;
  // For calls that may wait for a drive.
  virtual Executor& executor() = 0;
  // For what only computes (hashes, encodes, copies): no drive that hangs or is slow keeps it from its turn.
  virtual Executor& workers() { return executor(); }
  // A queue for one member. Destroying it waits for what was submitted (kCancelled is never invented: a transfer that
  // was started ends). A simulation knows of `depth` only.
  virtual Result<std::unique_ptr<IoQueue>> make_queue(MemberIndex member, const QueueSettings& settings) = 0;
  virtual struct timespec now() = 0;  // CLOCK_REALTIME
  // The clock that filesystems stamp changes with: CLOCK_REALTIME_COARSE, which moves with the kernel's ticks.
  virtual struct timespec stamp() { return now(); }
  // Takes some tens of microseconds, more where processors are many. Not known in a simulation.
  virtual ProcessorTimes processor_times() { return {}; }
  // Knows which members hang; null where nothing can (a simulation).
  virtual StallWatch* watch() { return nullptr; }
  // True in a simulation, where nothing runs by itself, so nothing may wait for background work.
  virtual bool is_simulated() const { return false; }
  // Makes sure that this process may hold `count` handles, raising its own limit where it can. kSystem (EMFILE) when it
  // may not: said before the work begins, not by a call that fails in the middle of it.
  virtual Status allow_handles(uint64_t count) {
    static_cast<void>(count);
    return Status::ok();
  }
  virtual uint64_t random_u64() = 0;  // unpredictable; the simulation: seeded
};

}  // namespace fpfs
