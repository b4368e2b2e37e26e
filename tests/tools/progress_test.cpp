#include "tools/common/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "engine/base/units.h"

namespace fpfs::tools {
namespace {

// A terminal: `inside` is what a program has for its stderr.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize window{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::openpty(&outside_, &inside_, nullptr, nullptr, &window), 0);
  }
  ~Terminal() {
    ::close(outside_);
    ::close(inside_);
  }
  int inside() const { return inside_; }
  // What came since the last call.
  std::string shown() const {
    std::string text;
    char buffer[4096];
    for (pollfd ready{outside_, POLLIN, 0}; ::poll(&ready, 1, 100) == 1;) {
      const ssize_t count = ::read(outside_, buffer, sizeof buffer);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int outside_ = -1, inside_ = -1;
};

TEST(Progress, SaysHowFarHowFastAndHowLongStill) {
  const WorkDone now{.bytes = 3 * kGiB, .bytes_total = 10 * kGiB, .files = 2, .files_total = 7};
  EXPECT_EQ(describe_work({.bytes = kGiB}, now, 4), "3 GiB of 10 GiB (30.0 %), 512 MiB/s, 14 s left, 2 of 7 files");
  EXPECT_EQ(describe_work({}, {.bytes = 600 * kMiB, .bytes_total = 600 * kGiB}, 6),
            "600 MiB of 600 GiB (0.1 %), 100 MiB/s, 1:42:18 left");
}

TEST(Progress, SaysWhatIsKnown) {
  EXPECT_EQ(describe_work({}, {.bytes = kGiB, .files = 1}, 2), "1 GiB, 512 MiB/s, 1 file");
  EXPECT_EQ(describe_work({}, {.files = 5000}, 2), "5000 files, 2500 files/s");
  EXPECT_EQ(describe_work({}, {.bytes_total = kGiB}, 0), "0 B of 1 GiB (0.0 %)") << "no rate yet";
  EXPECT_EQ(describe_work({}, {.files = 0}, 0.1), "0 files");
  EXPECT_EQ(describe_work({}, {.bytes_total = kGiB}, 9), "0 B of 1 GiB (0.0 %), 0 B/s");
  EXPECT_EQ(describe_work({.bytes = 9}, {.bytes = 5, .bytes_total = 10}, 5), "5 B of 10 B (50.0 %), 0 B/s") << "less";
}

TEST(Progress, ALineThatFitsIsRewrittenAndTakenAway) {
  const Terminal terminal(20);
  ProgressLine line(ProgressLine::Show::kOnTerminal, terminal.inside());
  ASSERT_TRUE(line.is_on() && line.is_due());
  line.show("größer als das Fenster\n\033[2J");
  EXPECT_EQ(terminal.shown(), "\r\033[Kgrößer als das Fens") << "19 columns, the last is the cursor's";
  EXPECT_FALSE(line.is_due());
  line.show("too soon");
  line.update({.bytes = 5, .bytes_total = 10});
  EXPECT_EQ(terminal.shown(), "");
  line.update({.bytes = 10, .bytes_total = 10});
  EXPECT_EQ(terminal.shown(), "\r\033[K10 B of 10 B (100.0") << "the end is always shown";
  line.clear();
  line.clear();
  EXPECT_EQ(terminal.shown(), "\r\033[K");
}

TEST(Progress, NothingWithoutATerminal) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  {
    ProgressLine line(ProgressLine::Show::kOnTerminal, ends[1]);
    EXPECT_FALSE(line.is_on() || line.is_due());
    line.update({.bytes = 10, .bytes_total = 10});
    line.show("text");
    ProgressLine never(ProgressLine::Show::kNever, ends[1]);
    never.update({.bytes = 10, .bytes_total = 10});
  }
  char buffer[100];
  EXPECT_EQ(::read(ends[0], buffer, sizeof buffer), -1);
  {
    ProgressLine asked_for(ProgressLine::Show::kAlways, ends[1]);
    asked_for.show("into a log");
  }
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(::read(ends[0], buffer, sizeof buffer))), "into a log\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Progress, ATerminalThatTakesNothingHoldsNothingUp) {
  const Terminal terminal(80);
  ASSERT_EQ(::tcflow(terminal.inside(), TCOOFF), 0);  // as Ctrl-S
  const auto begun = std::chrono::steady_clock::now();
  {
    ProgressLine line(ProgressLine::Show::kOnTerminal, terminal.inside());
    for (int i = 0; i < 100; ++i) line.update({.bytes = 10, .bytes_total = 10});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(terminal.shown(), "");
}

}  // namespace
}  // namespace fpfs::tools
