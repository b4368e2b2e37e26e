// SoleCaller: whether one thread asks for everything, as the requests show it.
//
// Thread safety: all methods from any thread; what counts is the tendency.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/protocol/fuse_wire.h"

namespace fpfs {

class SoleCaller {
 public:
  // It is one when so many requests came one after the other without another thread's.
  static constexpr uint32_t kRunMin = 64;

  // Behind a longer pause it is not known any more who asks: who looks after a slow one costs more than it gains.
  static constexpr uint64_t kPauseNs = 10'000'000;

  // At monotonic_ns() `now_ns`.
  void came(const wire::InHeader& request, uint64_t now_ns) {
    switch (request.opcode) {
      case wire::kOpcodeRelease:  // the kernel's own, behind what somebody did
      case wire::kOpcodeReleaseDirectory:
      case wire::kOpcodeForget:
      case wire::kOpcodeForgetMany:
        return;
      default:
        break;
    }
    const uint64_t before_ns = last_ns_.exchange(now_ns, std::memory_order_relaxed);
    const Run run = unpack(run_.load(std::memory_order_relaxed));
    const bool goes_on = run.thread == request.pid && request.pid != 0 &&  // 0: of pages, or not known here
                         now_ns < before_ns + kPauseNs;
    if (goes_on && run.length == kRunMin) return;
    run_.store(pack({request.pid, goes_on ? run.length + 1 : 0}), std::memory_order_relaxed);
  }
  bool is_there() const { return unpack(run_.load(std::memory_order_relaxed)).length == kRunMin; }
  void start_anew() {
    if (run_.load(std::memory_order_relaxed) != 0) run_.store(0, std::memory_order_relaxed);
  }

 private:
  struct Run {
    uint32_t thread = 0;
    uint32_t length = 0;
  };
  static constexpr uint64_t pack(Run run) { return uint64_t{run.thread} << 32 | run.length; }
  static constexpr Run unpack(uint64_t packed) {
    return {static_cast<uint32_t>(packed >> 32), static_cast<uint32_t>(packed)};
  }

  std::atomic<uint64_t> run_{0};  // a Run: both at once
  std::atomic<uint64_t> last_ns_{0};
};

}  // namespace fpfs
