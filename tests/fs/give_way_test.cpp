// A thread that gives way is of SCHED_IDLE, and not for longer than it may be.
#include "fs/transport/give_way.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "engine/base/clock.h"

namespace fpfs {
namespace {

class GiveWayTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GiveWay::is_possible()) GTEST_SKIP() << "who is of SCHED_IDLE may not leave it here";
    ASSERT_EQ(::sched_getaffinity(0, sizeof all_, &all_), 0);
    ASSERT_TRUE(give_way_.wants_looks());
    ASSERT_FALSE(give_way_.wants_looks()) << "somebody was asked";
  }
  GiveWay give_way_;
  cpu_set_t all_{};
};

TEST_F(GiveWayTest, FromBeginningToEnd) {
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  ASSERT_TRUE(give_way_.begin(all_));
  EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  give_way_.look(0);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE) << "it has only begun";
  EXPECT_TRUE(give_way_.end());
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

TEST_F(GiveWayTest, OneAtATime) {
  std::promise<void> has_begun;
  std::thread other([&] {
    has_begun.get_future().wait();
    EXPECT_FALSE(give_way_.begin(all_));
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  });
  ASSERT_TRUE(give_way_.begin(all_));
  has_begun.set_value();
  other.join();
  EXPECT_TRUE(give_way_.end());
  ASSERT_TRUE(give_way_.begin(all_));
  EXPECT_TRUE(give_way_.end());
}

TEST_F(GiveWayTest, OnlyWhileSomebodyLooks) {
  for (unsigned i = 0; i < 3 * GiveWay::kQuietLooks; ++i) {
    ASSERT_TRUE(give_way_.begin(all_));
    EXPECT_TRUE(give_way_.end());
    give_way_.look(0);
    ASSERT_TRUE(give_way_.is_looked_after());
  }
  for (unsigned i = 0; i < GiveWay::kQuietLooks; ++i) {
    ASSERT_TRUE(give_way_.is_looked_after());
    give_way_.look(monotonic_ns());
  }
  EXPECT_FALSE(give_way_.is_looked_after());
  EXPECT_FALSE(give_way_.begin(all_));
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  EXPECT_TRUE(give_way_.wants_looks());
  EXPECT_TRUE(give_way_.begin(all_));
  EXPECT_TRUE(give_way_.end());
}

TEST_F(GiveWayTest, SaysWhetherSomebodyCame) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) {
    }
  });
  bool was_taken = false;
  for (int i = 0; i < 1000 && !was_taken; ++i) {
    ASSERT_TRUE(give_way_.begin(all_));
    ::usleep(1);  // the other comes
    const uint64_t until = monotonic_ns() + 10'000'000;
    while (monotonic_ns() < until) {
    }
    EXPECT_TRUE(give_way_.end());
    was_taken = give_way_.was_taken();
    EXPECT_FALSE(give_way_.was_taken()) << "since the last call";
  }
  is_over = true;
  other.join();
  EXPECT_TRUE(was_taken);
  ASSERT_EQ(::sched_setaffinity(0, sizeof all_, &all_), 0);
}

TEST_F(GiveWayTest, NotForLong) {
  std::promise<void> has_begun, was_seen;
  std::thread other([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    ASSERT_TRUE(give_way_.begin(all_));
    has_begun.set_value();
    was_seen.get_future().wait();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    cpu_set_t now;
    ASSERT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_TRUE(CPU_EQUAL(&now, &all_));
    EXPECT_FALSE(give_way_.end());
  });
  has_begun.get_future().wait();
  give_way_.look(monotonic_ns() + GiveWay::kLongestNs);
  was_seen.set_value();
  other.join();
  give_way_.look(monotonic_ns() + GiveWay::kLongestNs);  // nobody
}

}  // namespace
}  // namespace fpfs
