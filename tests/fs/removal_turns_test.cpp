#include "fs/nodes/removal_turns.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

using Clock = std::chrono::steady_clock;

// What runs on another thread until it is told to end.
class UnderWay {
 public:
  template <typename Run>
  explicit UnderWay(Run run)
      : thread_([this, run] {
          run([this] {
            has_begun_ = true;
            while (!may_end_) std::this_thread::yield();
            has_ended_ = true;
          });
        }) {
    while (!has_begun_) std::this_thread::yield();
  }
  ~UnderWay() {
    end();
    thread_.join();
  }
  void end() { may_end_ = true; }
  bool has_ended() const { return has_ended_; }

 private:
  std::atomic<bool> has_begun_{false}, may_end_{false}, has_ended_{false};
  std::thread thread_;
};

TEST(RemovalTurns, ADirectoryIsRemovedWhenNoHandleIsBeingClosed) {
  RemovalTurns turns;
  UnderWay close([&turns](auto body) { turns.close(body); });
  const Clock::time_point began = Clock::now();
  // It does not end: the removal goes on all the same, but not at once.
  EXPECT_EQ(turns.remove_directory([] { return 7; }), 7);
  EXPECT_GE(Clock::now() - began, RemovalTurns::kWaitMax);
  EXPECT_FALSE(close.has_ended());
}

TEST(RemovalTurns, AHandleIsClosedWhenNoDirectoryIsBeingRemoved) {
  RemovalTurns turns;
  UnderWay removal([&turns](auto body) {
    turns.remove_directory([body] {
      body();
      return 0;
    });
  });
  const Clock::time_point began = Clock::now();
  bool was_closed = false;
  turns.close([&was_closed] { was_closed = true; });
  EXPECT_TRUE(was_closed);
  EXPECT_GE(Clock::now() - began, RemovalTurns::kWaitMax);
}

TEST(RemovalTurns, TheEndOfTheOthersIsNoticed) {
  RemovalTurns turns;
  for (int round = 0; round < 100; ++round) {
    UnderWay close([&turns](auto body) { turns.close(body); });
    std::thread ends([&close] { close.end(); });
    turns.remove_directory([] { return 0; });
    ends.join();
  }
}

TEST(RemovalTurns, ThoseOfOneKindGoSideBySide) {
  RemovalTurns turns;
  UnderWay first([&turns](auto body) { turns.close(body); });
  UnderWay second([&turns](auto body) { turns.close(body); });  // begins while the first is under way
  EXPECT_FALSE(first.has_ended());
}

}  // namespace
}  // namespace fpfs
