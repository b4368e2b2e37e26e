#include "engine/io/thread_executor.h"

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/own_task.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST(ThreadExecutor, OneThreadRunsTasksInOrder) {
  std::vector<int> order;
  {
    ThreadExecutor executor(1);
    for (int i = 0; i < 1000; ++i) executor.post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(ThreadExecutor, PostDoesNotRunTheTaskItself) {
  std::thread::id thread;
  {
    ThreadExecutor executor(1);
    std::mutex held;
    std::lock_guard lock(held);
    executor.post([&] { thread = std::this_thread::get_id(); });
    executor.post([&] { executor.post([&] { thread = std::this_thread::get_id(); }); });
  }
  EXPECT_NE(thread, std::thread::id());
  EXPECT_NE(thread, std::this_thread::get_id());
}

// Tasks that can only end when all of them run at the same time.
TEST(ThreadExecutor, AsManyTasksMayBlockAsThereAreThreads) {
  constexpr int kThreads = 6;
  std::mutex mutex;
  std::condition_variable condition;
  int arrived = 0;
  ThreadExecutor executor(kThreads);
  for (int i = 0; i < kThreads; ++i)
    executor.post([&] {
      std::unique_lock lock(mutex);
      ++arrived;
      condition.notify_all();
      condition.wait(lock, [&] { return arrived == kThreads; });
    });
  executor.stop();
  EXPECT_EQ(arrived, kThreads);
}

TEST(ThreadExecutor, WhenAllAreBlockedForLongOneMoreThreadComes) {
  ThreadExecutor executor(2);
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 3; ++i) executor.post([released] { released.wait(); });
  std::promise<Clock::time_point> done;
  executor.post([&done] { done.set_value(Clock::now()); });
  std::future<Clock::time_point> finished = done.get_future();
  ASSERT_EQ(finished.wait_for(ThreadExecutor::kStuckAfter * 10), std::future_status::ready);
  EXPECT_GE(finished.get() - start, ThreadExecutor::kStuckAfter) << "not at once";
  release.set_value();
  executor.stop();
}

TEST(ThreadExecutor, StopRunsWhatTasksStillPost) {
  std::atomic<int> runs{0};
  ThreadExecutor executor(3);
  std::function<void()> task = [&] {
    std::this_thread::sleep_for(milliseconds(1));
    if (++runs < 50) executor.post(task);
  };
  executor.post(task);
  executor.stop();
  EXPECT_EQ(runs.load(), 50);
  executor.stop();  // nothing left to do
}

TEST(ThreadExecutor, DelayedTasksRunOnceAndNotEarlier) {
  bool was_prompt = false;
  while (!was_prompt) {          // a thread that is held up between two posts changes what is due first
    ThreadExecutor executor(1);  // two would race when the timer is late
    std::mutex mutex;
    std::condition_variable condition;
    std::vector<int> order;
    const Clock::time_point start = Clock::now();
    std::atomic<int> early{0};
    for (const int delay : {60, 20, 40})
      executor.post_after(milliseconds(delay), [&, delay] {
        if (Clock::now() - start < milliseconds(delay)) ++early;
        std::lock_guard lock(mutex);
        order.push_back(delay);
        condition.notify_all();
      });
    was_prompt = Clock::now() - start < milliseconds(20);
    {
      std::unique_lock lock(mutex);
      condition.wait(lock, [&] { return order.size() == 3; });
    }
    executor.stop();
    EXPECT_EQ(early.load(), 0);
    EXPECT_EQ(order.size(), 3u);
    if (was_prompt) {
      EXPECT_EQ(order, (std::vector<int>{20, 40, 60}));
    }
  }
}

// The timer sleeps without a deadline, then with one, and must wake for an earlier one each time.
TEST(ThreadExecutor, ASleepingTimerWakesForAnEarlierTask) {
  ThreadExecutor executor(1);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    std::mutex mutex;
    std::condition_variable condition;
    bool ran = false;
    executor.post_after(milliseconds(1), [&] {
      std::lock_guard lock(mutex);
      ran = true;
      condition.notify_all();
    });
    std::unique_lock lock(mutex);
    EXPECT_TRUE(condition.wait_for(lock, std::chrono::seconds(30), [&] { return ran; }));
    executor.post_after(std::chrono::hours(1), [] {});
  }
}

TEST(ThreadExecutor, StopDropsDelayedTasksAndTheirCaptures) {
  auto capture = std::make_shared<int>(1);
  bool ran = false;
  ThreadExecutor executor(1);
  executor.post_after(std::chrono::hours(1), [capture, &ran] { ran = true; });
  const Clock::time_point start = Clock::now();
  executor.stop();
  EXPECT_LT(Clock::now() - start, std::chrono::minutes(1));
  EXPECT_FALSE(ran);
  EXPECT_EQ(capture.use_count(), 1);
  executor.post_after(milliseconds(0), [capture, &ran] { ran = true; });
  EXPECT_EQ(capture.use_count(), 1);
}

TEST(ThreadExecutor, CapturesDieWithTheTask) {
  auto capture = std::make_shared<int>(1);
  std::weak_ptr<int> watch = capture;
  ThreadExecutor executor(1);
  std::atomic<bool> gone{false};
  executor.post([moved = std::move(capture)] {});
  executor.post([&] { gone = watch.expired(); });
  executor.stop();
  EXPECT_TRUE(gone.load());
}

TEST(ThreadExecutor, ManyThreadsPost) {
  constexpr int kThreads = 8, kTasks = 2000;
  std::atomic<int> runs{0};
  {
    ThreadExecutor executor(4);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kTasks; ++i) executor.post([&] { ++runs; });
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(runs.load(), kThreads * kTasks);
}

TEST(ThreadExecutorDeathTest, NothingIsPostedAfterStop) {
  EXPECT_DEATH(
      {
        ThreadExecutor executor(1);
        executor.stop();
        executor.post([] {});
      },
      "stopped executor");
}

TEST(OwnTask, TheFirstTaskStaysWithItsThread) {
  ThreadExecutor executor(1);
  std::thread::id first, second;
  {
    OwnTask own;
    executor.post([&] { first = std::this_thread::get_id(); });
    executor.post([&] { second = std::this_thread::get_id(); });
    EXPECT_EQ(first, std::thread::id());  // not inside post()
  }
  executor.stop();
  EXPECT_EQ(first, std::this_thread::get_id());
  EXPECT_NE(second, std::thread::id());
  EXPECT_NE(second, std::this_thread::get_id());
}

TEST(OwnTask, SuspendedItKeepsNothing) {
  ThreadExecutor executor(1);
  std::thread::id suspended, behind, third;
  {
    OwnTask own;
    {
      const OwnTask::Suspension suspension;
      executor.post([&] { suspended = std::this_thread::get_id(); });
    }
    executor.post([&] { behind = std::this_thread::get_id(); });
    const OwnTask::Suspension once_more;  // ends before `own` runs what it has, and does not let it take more
    executor.post([&] { third = std::this_thread::get_id(); });
  }
  executor.stop();
  EXPECT_EQ(behind, std::this_thread::get_id());
  for (const std::thread::id thread : {suspended, third}) {
    EXPECT_NE(thread, std::thread::id());
    EXPECT_NE(thread, std::this_thread::get_id());
  }
}

TEST(OwnTask, WhatItPostsAndWhatComesBehindItGoesToOthers) {
  ThreadExecutor executor(1);
  std::thread::id inner, behind;
  {
    OwnTask own;
    executor.post([&] { executor.post([&] { inner = std::this_thread::get_id(); }); });
    own.run();
    executor.post([&] { behind = std::this_thread::get_id(); });
  }
  executor.stop();
  for (const std::thread::id thread : {inner, behind}) {
    EXPECT_NE(thread, std::thread::id());
    EXPECT_NE(thread, std::this_thread::get_id());
  }
}

TEST(OwnTask, WhatIsPassedOnGoesToAnother) {
  ThreadExecutor executor(1);
  std::thread::id passed_on, behind;
  {
    OwnTask own;
    own.pass_on();  // nothing yet
    executor.post([&] { passed_on = std::this_thread::get_id(); });
    own.pass_on();
    executor.post([&] { behind = std::this_thread::get_id(); });
    EXPECT_FALSE(own.run());
  }
  executor.stop();  // waits for them
  for (const std::thread::id thread : {passed_on, behind}) {
    EXPECT_NE(thread, std::thread::id());
    EXPECT_NE(thread, std::this_thread::get_id());
  }
}

TEST(OwnTask, StaysWhileOthersWaitForTheThreads) {
  ThreadExecutor executor(1);
  std::promise<void> release;
  std::promise<void> is_running;
  executor.post([&] {
    is_running.set_value();
    release.get_future().wait();
  });
  is_running.get_future().wait();
  for (int i = 0; i < 10; ++i) executor.post([] {});  // more than threads that come when this one is held up
  std::thread::id kept;
  {
    OwnTask own;
    executor.post([&] { kept = std::this_thread::get_id(); });
    own.pass_on();
    EXPECT_TRUE(own.run());
  }
  release.set_value();
  executor.stop();
  EXPECT_EQ(kept, std::this_thread::get_id());
}

TEST(OwnTask, SaysWhetherThereWasOne) {
  ThreadExecutor executor(1);
  bool has_run = false;
  {
    OwnTask own;
    executor.post([&] { has_run = true; });
    EXPECT_TRUE(own.run());
    EXPECT_TRUE(has_run);
    EXPECT_FALSE(own.run());
  }
  executor.stop();
}

// With kEach the steps that follow one another stay, and of each only what it posts first.
TEST(OwnTask, StepsThatFollowOneAnotherStay) {
  ThreadExecutor executor(1), other(1);
  std::thread::id first, second, third, beside, behind;
  {
    OwnTask own(OwnTask::Keeps::kEach);
    executor.post([&] {
      first = std::this_thread::get_id();
      other.post([&] {
        second = std::this_thread::get_id();
        executor.post([&] { third = std::this_thread::get_id(); });
      });
      executor.post([&] { beside = std::this_thread::get_id(); });
    });
    own.run();
    executor.post([&] { behind = std::this_thread::get_id(); });
  }
  executor.stop();
  other.stop();
  for (const std::thread::id thread : {first, second, third}) EXPECT_EQ(thread, std::this_thread::get_id());
  for (const std::thread::id thread : {beside, behind}) {
    EXPECT_NE(thread, std::thread::id());
    EXPECT_NE(thread, std::this_thread::get_id());
  }
}

// As when a step that stays with its thread would keep steps of its own.
TEST(OwnTask, WithinAnotherItIsNone) {
  ThreadExecutor executor(1);
  std::vector<std::thread::id> ran;
  {
    OwnTask own(OwnTask::Keeps::kEach);
    executor.post([&] {
      OwnTask inner(OwnTask::Keeps::kEach);
      executor.post([&] { ran.push_back(std::this_thread::get_id()); });
      inner.run();
      EXPECT_TRUE(ran.empty()) << "it is the outer one's";
    });
  }
  EXPECT_EQ(ran, std::vector{std::this_thread::get_id()});
}

TEST(OwnTask, OfAnotherThreadIsNone) {
  ThreadExecutor executor(1);
  const OwnTask own;
  std::promise<std::thread::id> ran;
  std::thread([&] { executor.post([&] { ran.set_value(std::this_thread::get_id()); }); }).join();
  EXPECT_NE(ran.get_future().get(), std::this_thread::get_id());  // although this one runs nothing meanwhile
}

TEST(OwnTask, StopWaitsForIt) {
  ThreadExecutor executor(2);
  std::promise<void> kept;
  std::atomic<bool> ran = false;
  std::thread keeper([&] {
    OwnTask own;
    executor.post([&] {
      executor.post([] {});  // still possible
      ran = true;
    });
    kept.set_value();
    std::this_thread::sleep_for(milliseconds(50));
  });
  kept.get_future().wait();
  executor.stop();
  EXPECT_TRUE(ran);
  keeper.join();
}

}  // namespace
}  // namespace fpfs
