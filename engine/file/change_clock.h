// ChangeClock: when content changes, which the tree's filesystem does not stamp itself. Its own stamps before are never
// later, its own stamps behind never earlier: both follow the coarse clock, and where the filesystem was finer
// (multigrain timestamps, Linux 6.13: what somebody has looked at since it last changed is stamped by the fine clock,
// and nothing is stamped earlier after that), the newest stamp that was seen counts.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "engine/io/environment.h"

namespace fpfs {

class ChangeClock {
 public:
  explicit ChangeClock(Environment& environment) : environment_(environment) {}

  struct timespec now() const;
  // A change time that the tree's filesystem gave.
  void note(const struct timespec& ctime);

 private:
  Environment& environment_;
  std::atomic<int64_t> newest_ns_{0};
};

}  // namespace fpfs
