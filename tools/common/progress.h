// The progress of long work, for who waits for it at a terminal.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace fpfs::tools {

// How far some work is. A total of 0 is not known (yet).
struct WorkDone {
  uint64_t bytes = 0, bytes_total = 0;
  uint64_t files = 0, files_total = 0;
};

// "1.2 GiB of 4 GiB (30.0 %), 400 MiB/s, 7 s left, 3 of 10 files", for work that was `before` when it was first looked
// at, `seconds` ago. Without a rate until there is one, or time enough has passed to say that nothing is done.
std::string describe_work(const WorkDone& before, const WorkDone& now, double seconds);

// A line on stderr. On a terminal it is rewritten in place, a few times a second, no wider than the window; clear()
// takes it away, which has to be done before anything else is printed. Elsewhere there is none, unless it is asked for
// (--progress, into a log): then it is one more line each second.
//
// Never waits for the terminal (Ctrl-S, a slow link): what that does not take at once is not shown.
//
// Thread safety: one thread at a time.
class ProgressLine {
 public:
  enum class Show : uint8_t { kOnTerminal, kAlways, kNever };
  explicit ProgressLine(Show show = Show::kOnTerminal, int descriptor = STDERR_FILENO);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_on() const { return show_ != Show::kNever; }
  // Whether something would be shown now; for who has to ask somebody how far it is.
  bool is_due() const;
  // Nothing when it is not due; but the end of the work is always shown. Rates begin with the first call, and anew
  // when it becomes known how many bytes there are.
  void update(const WorkDone& work);
  // The same with words of the caller's.
  void show(const std::string& text);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& text);

  const int descriptor_;
  const bool is_terminal_;
  const Show show_;
  bool is_drawn_ = false, has_begun_ = false;
  WorkDone before_;
  Clock::time_point begun_, shown_;
};

}  // namespace fpfs::tools
