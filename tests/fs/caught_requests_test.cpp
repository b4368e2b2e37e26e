// What the kernel lets go of while a request is caught stays until none is.
#include "fs/nodes/caught_requests.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fs/nodes/open_handles.h"

namespace fpfs {
namespace {

constexpr wire::Names kFirst{0x1000, 0x2000, 7}, kSecond{0x1000, 0x3000, 0};

// Carries out what was put off when the test says so.
class CaughtRequestsTest : public testing::Test {
 protected:
  void let_go(uint64_t name) {
    caught_.when_unused(name, [this, name] { gone_.push_back(name); });
  }
  void run_background() {
    const std::vector<CaughtRequests::Task> tasks = std::exchange(background_, {});
    for (const CaughtRequests::Task& task : tasks) task();
  }

  std::vector<CaughtRequests::Task> background_;
  CaughtRequests caught_{[this](CaughtRequests::Task task) { background_.push_back(std::move(task)); }};
  std::vector<uint64_t> gone_;
};

TEST_F(CaughtRequestsTest, WithoutOneAllGoesAtOnce) {
  let_go(0x1000);
  EXPECT_EQ(gone_, std::vector<uint64_t>{0x1000});
  EXPECT_TRUE(background_.empty());
}

TEST_F(CaughtRequestsTest, WhatNoneNamesGoesAtOnce) {
  caught_.begin(kFirst);
  let_go(0x4000);
  EXPECT_EQ(gone_, std::vector<uint64_t>{0x4000});
}

TEST_F(CaughtRequestsTest, WhatIsNamedGoesWhenTheLastThatNamesItHasEnded) {
  caught_.begin(kFirst);
  let_go(0x1000);
  caught_.begin(kSecond);
  let_go(0x1000);  // another part of its lookups
  let_go(0x2000);
  let_go(0x3000);
  EXPECT_TRUE(gone_.empty());
  caught_.end(kFirst);
  EXPECT_TRUE(gone_.empty()) << "who ends may hold locks";
  run_background();
  EXPECT_EQ(gone_, std::vector<uint64_t>{0x2000});
  caught_.end(kSecond);
  run_background();
  EXPECT_EQ(gone_, (std::vector<uint64_t>{0x2000, 0x1000, 0x1000, 0x3000}));
  let_go(0x1000);
  EXPECT_EQ(gone_.size(), 5U);
}

TEST_F(CaughtRequestsTest, ARequestMayNameTheSameTwice) {
  const wire::Names twice{0x1000, 0x1000, 0};
  caught_.begin(twice);
  let_go(0x1000);
  caught_.end(twice);
  run_background();
  EXPECT_EQ(gone_, std::vector<uint64_t>{0x1000});
}

TEST_F(CaughtRequestsTest, AReleasedHandleIsStillThere) {
  OpenHandles handles;
  OpenDirectory& open = handles.add_directory();
  caught_.begin({1, OpenHandles::handle(open), 0});
  const std::weak_ptr<OpenDirectory> seen = [&] {
    const std::shared_ptr<OpenDirectory> gone = handles.remove(open);
    caught_.when_unused(OpenHandles::handle(open), [gone] {});
    return std::weak_ptr<OpenDirectory>(gone);
  }();
  EXPECT_FALSE(seen.expired());
  caught_.end({1, OpenHandles::handle(open), 0});
  run_background();
  EXPECT_TRUE(seen.expired());
}

// Each is let go of once, also when requests are caught and end at the same time.
TEST(CaughtRequests, AtTheSameTime) {
  Mutex mutex;
  std::vector<std::thread> background;
  CaughtRequests caught{[&](CaughtRequests::Task task) {
    const MutexLock lock(mutex);
    background.emplace_back(std::move(task));
  }};
  constexpr int kEach = 2000;
  std::atomic<int> gone{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kEach; ++j) caught.when_unused(kFirst[1], [&gone] { gone.fetch_add(1); });
    });
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        caught.begin(kFirst);
        caught.end(kFirst);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::thread& thread : background) thread.join();
  EXPECT_EQ(gone.load(), 2 * kEach);
}

}  // namespace
}  // namespace fpfs
