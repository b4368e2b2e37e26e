// Which way a receiver is told to go, by the time between its requests; and where a bound thread runs.
#include "fs/transport/receiver_place.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>
#include <vector>

namespace fpfs {
namespace {

constexpr uint64_t kHandle = 1;

class Place : public testing::Test {
 protected:
  // Requests until one way was judged, which takes `apart_ns` or `beside_ns`. How many there were.
  unsigned judge_once(uint64_t apart_ns, uint64_t beside_ns) {
    unsigned requests = 0;
    const bool way = place_.is_beside();
    while (requests < ReceiverPlace::kJudgedBy + ReceiverPlace::kSettling && place_.is_beside() == way) {
      come(place_.is_beside() ? beside_ns : apart_ns);
      ++requests;
    }
    return requests;
  }
  void come(uint64_t interval_ns) { place_.came(kHandle, now_ns_ += interval_ns); }
  // Of so many requests, those beside the writer.
  unsigned beside(unsigned requests, uint64_t apart_ns, uint64_t beside_ns) {
    unsigned count = 0;
    for (unsigned i = 0; i < requests; ++i) {
      come(place_.is_beside() ? beside_ns : apart_ns);
      count += place_.is_beside() ? 1 : 0;
    }
    return count;
  }

  ReceiverPlace place_;
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(Place, TheOtherWayIsTriedSoon) {
  EXPECT_FALSE(place_.is_beside());
  EXPECT_LE(judge_once(200'000, 100'000), ReceiverPlace::kJudgedBy + 1);  // the first has no interval
  EXPECT_TRUE(place_.is_beside());
}

TEST_F(Place, TheFasterWayIsTaken) {
  beside(1000, 200'000, 100'000);
  EXPECT_GE(beside(10'000, 200'000, 100'000), 9'900u);
}

TEST_F(Place, TheSlowerWayIsLeft) {
  beside(1000, 100'000, 200'000);
  EXPECT_LE(beside(10'000, 100'000, 200'000), 100u);
}

TEST_F(Place, WhatIsNoFasterIsNotTaken) {
  beside(1000, 100'000, 99'000);
  EXPECT_LE(beside(10'000, 100'000, 99'000), 400u);
}

// Before long, not when its turn comes.
TEST_F(Place, AWayThatGetsSlowerIsCompared) {
  beside(10'000, 100'000, 105'000);
  ASSERT_FALSE(place_.is_beside());
  beside(3 * (ReceiverPlace::kJudgedBy + ReceiverPlace::kSettling), 150'000, 105'000);
  EXPECT_TRUE(place_.is_beside());
}

// As long as another wants the processor: most of the time is spent where it is fast.
TEST_F(Place, ATrialThatHasToWaitIsShort) {
  const auto spend = [this](unsigned requests) {
    uint64_t beside_ns = 0, all_ns = 0;
    for (unsigned i = 0; i < requests; ++i) {
      const uint64_t interval_ns = place_.is_beside() ? 2'000'000 : 150'000;
      if (place_.is_beside()) place_.called_back();
      come(interval_ns);
      all_ns += interval_ns;
      beside_ns += interval_ns == 150'000 ? 0 : interval_ns;
    }
    return static_cast<double>(beside_ns) / static_cast<double>(all_ns);
  };
  spend(1000);
  EXPECT_LE(spend(10'000), 0.05);
}

// The median is that of those who need not wait.
TEST_F(Place, WaitingNowAndThenCounts) {
  unsigned beside = 0;
  for (unsigned i = 0; i < 10'000; ++i) {
    come(!place_.is_beside() ? 100'000 : i % 2 == 0 ? 2'000'000 : 80'000);
    if (i >= 1000) beside += place_.is_beside() ? 1 : 0;
  }
  EXPECT_LE(beside, 400u);
}

// As torch.save does for its CRC-32, now and then: also right behind a change.
TEST_F(Place, AFasterWayIsTakenAlsoWhenItsWriterComputesAtFirst) {
  while (!place_.is_beside()) come(100'000);
  for (unsigned i = 0; i < ReceiverPlace::kSettling + ReceiverPlace::kJudgedBy; ++i)
    come(i == ReceiverPlace::kSettling || i == ReceiverPlace::kSettling + 1 ? 320'000 : 80'000);
  EXPECT_TRUE(place_.is_beside());
  EXPECT_GE(beside(1000, 100'000, 80'000), 900u);
}

TEST_F(Place, PausesAndOtherStreamsAreNoIntervals) {
  for (int i = 0; i < 1000; ++i) come(ReceiverPlace::kPauseNs + 1);
  EXPECT_FALSE(place_.is_beside());
  for (uint64_t i = 0; i < 1000; ++i) place_.came(i % 2, now_ns_ += 100'000);
  EXPECT_FALSE(place_.is_beside());
}

class Binding : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::sched_getaffinity(0, sizeof all_, &all_), 0);
    if (CPU_COUNT(&all_) < 2) GTEST_SKIP() << "on one processor there is nowhere to go";
    for (unsigned i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &all_)) processors_.push_back(i);
  }
  // `work` while another thread, whose number it gets, sleeps that ran on the processor last.
  static void beside_one_at(unsigned processor, const std::function<void(uint32_t)>& work) {
    std::promise<uint32_t> number;
    std::promise<void> is_over;
    std::thread other([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
      number.set_value(static_cast<uint32_t>(::gettid()));
      is_over.get_future().wait();
    });
    work(number.get_future().get());
    is_over.set_value();
    other.join();
  }
  static std::vector<unsigned> may_run_on() {
    cpu_set_t set;
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    std::vector<unsigned> processors;
    for (unsigned i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) processors.push_back(i);
    return processors;
  }

  cpu_set_t all_{};
  std::vector<unsigned> processors_;
};

TEST_F(Binding, FollowsAThread) {
  ProcessorBinding binding;
  for (const unsigned processor : {processors_[0], processors_[1], processors_[0]})
    beside_one_at(processor, [&](uint32_t thread) {
      EXPECT_TRUE(binding.follow(thread));
      EXPECT_FALSE(binding.follow(thread)) << "it is there";
      EXPECT_TRUE(binding.is_bound());
      EXPECT_EQ(may_run_on(), std::vector<unsigned>{processor});
    });
  binding.release();
  EXPECT_FALSE(binding.is_bound());
  EXPECT_EQ(may_run_on(), processors_);
}

TEST_F(Binding, StaysWhereItMayRun) {
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(processors_[0], &first);
  ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
  ProcessorBinding binding;
  beside_one_at(processors_[1], [&](uint32_t thread) { EXPECT_FALSE(binding.follow(thread)); });
  EXPECT_FALSE(binding.is_bound());
  EXPECT_EQ(may_run_on(), std::vector<unsigned>{processors_[0]});
  ASSERT_EQ(::sched_setaffinity(0, sizeof all_, &all_), 0);
}

TEST_F(Binding, IsReleasedWhenNobodyIsThere) {
  ProcessorBinding binding;
  EXPECT_FALSE(binding.follow(0));
  beside_one_at(processors_[1], [&](uint32_t thread) { EXPECT_TRUE(binding.follow(thread)); });
  EXPECT_FALSE(binding.follow(0));
  EXPECT_FALSE(binding.is_bound());
  EXPECT_EQ(may_run_on(), processors_);
}

}  // namespace
}  // namespace fpfs
