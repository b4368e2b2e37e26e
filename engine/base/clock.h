// The clock that waiting is measured by.
#pragma once

#include <cstdint>
#include <ctime>

namespace fpfs {

// CLOCK_MONOTONIC, in nanoseconds.
inline uint64_t monotonic_ns() {
  struct timespec time {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace fpfs
