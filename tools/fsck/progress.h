// The progress line of a long check, on stderr.
#pragma once

#include <chrono>
#include <cstdint>

namespace fpfs::tools {

// On a terminal one line that is redrawn; elsewhere (--progress into a log) a line each time.
//
// Thread safety: update() from one thread at a time.
class ProgressLine {
 public:
  explicit ProgressLine(bool redraw) : redraw_(redraw) {}
  void update(uint64_t done_bytes, uint64_t total_bytes);
  // Takes the line away, so that what follows starts at the left.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  const bool redraw_;
  bool drawn_ = false;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace fpfs::tools
