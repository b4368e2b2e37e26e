// A thread that gives way is of SCHED_IDLE, and not for longer than it may be.
#include "fs/transport/give_way.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "engine/base/clock.h"

namespace fpfs {
namespace {

cpu_set_t one_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  return one;
}

class GiveWayTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GiveWay::is_possible()) GTEST_SKIP() << "who is of SCHED_IDLE may not leave it here";
    ASSERT_EQ(::sched_getaffinity(0, sizeof all_, &all_), 0);
  }
  Looker nobody_{{}};
  GiveWay give_way_{nobody_};
  cpu_set_t all_{};
};

TEST_F(GiveWayTest, FromBeginningToEnd) {
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  EXPECT_TRUE(give_way_.begin(all_));
  EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  EXPECT_TRUE(give_way_.look(0));
  EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE) << "it has only begun";
  EXPECT_TRUE(give_way_.end());
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  EXPECT_FALSE(give_way_.look(0));
}

TEST_F(GiveWayTest, OneAtATime) {
  std::promise<void> has_begun;
  std::thread other([&] {
    has_begun.get_future().wait();
    EXPECT_FALSE(give_way_.begin(all_));
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  });
  EXPECT_TRUE(give_way_.begin(all_));
  has_begun.set_value();
  other.join();
  EXPECT_TRUE(give_way_.end());
  EXPECT_TRUE(give_way_.begin(all_));
  EXPECT_TRUE(give_way_.end());
}

TEST_F(GiveWayTest, SaysWhetherSomebodyCame) {
  const cpu_set_t one = one_processor();
  EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) {
    }
  });
  bool was_taken = false;
  for (int i = 0; i < 1000 && !was_taken; ++i) {
    EXPECT_TRUE(give_way_.begin(all_));
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
  EXPECT_EQ(::sched_setaffinity(0, sizeof all_, &all_), 0);
}

// A thread gives way, bound to a processor, until somebody ends that, or a long time. Whether it was ended; `then` is
// where it may run by then.
bool is_called_back(GiveWay& give_way, const cpu_set_t& elsewhere, const std::function<void()>& look, cpu_set_t& then) {
  std::promise<void> has_begun;
  bool is_ended = false;
  std::thread thread([&] {
    const cpu_set_t one = one_processor();
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_TRUE(give_way.begin(elsewhere));
    has_begun.set_value();
    for (int i = 0; i < 20'000 && ::sched_getscheduler(0) == SCHED_IDLE; ++i) ::usleep(100);
    is_ended = ::sched_getscheduler(0) == SCHED_OTHER;
    for (int i = 0; i < 20'000; ++i) {  // both is done, one after the other
      EXPECT_EQ(::sched_getaffinity(0, sizeof then, &then), 0);
      if (CPU_EQUAL(&then, &elsewhere)) break;
      ::usleep(100);
    }
    EXPECT_EQ(give_way.end(), !is_ended);
  });
  has_begun.get_future().wait();
  look();
  thread.join();
  return is_ended;
}

TEST_F(GiveWayTest, NotForLong) {
  cpu_set_t then;
  EXPECT_TRUE(is_called_back(
      give_way_, all_, [this] { give_way_.look(monotonic_ns() + GiveWay::kLongestNs); }, then));
  EXPECT_TRUE(CPU_EQUAL(&then, &all_));
  give_way_.look(monotonic_ns() + GiveWay::kLongestNs);  // nobody
}

TEST_F(GiveWayTest, SomebodyLooksAlsoAfterAPause) {
  struct Both {
    GiveWay give_way{looker};
    Looker looker{[this](uint64_t now_ns) { return give_way.look(now_ns); }};
  } both;
  for (int i = 0; i < 3; ++i) {
    cpu_set_t then;
    EXPECT_TRUE(is_called_back(
        both.give_way, all_, [] {}, then));
    EXPECT_TRUE(CPU_EQUAL(&then, &all_));
    std::this_thread::sleep_for(std::chrono::milliseconds(i * 50));  // it sleeps by then
  }
}

}  // namespace
}  // namespace fpfs
