#include "fs/nodes/late_closes.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

// Counts itself: those that are open.
class Node {
 public:
  explicit Node(int& open) : open_(open) { ++open_; }
  ~Node() { --open_; }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

 private:
  int& open_;
};
using Late = LateCloses<Node>;

class LateClosesTest : public testing::Test {
 protected:
  bool take() {
    auto node = std::make_unique<Node>(open_);
    return late_.take(node);  // else it is closed here
  }
  void run_tasks() {
    std::vector<std::function<void()>> tasks;
    tasks.swap(tasks_);
    for (const auto& task : tasks) task();
  }

  int open_ = 0, closings_ = 0;
  bool has_room_ = true;
  std::vector<std::function<void()>> tasks_;
  Late late_{[this](std::function<void()> task) { tasks_.push_back(std::move(task)); },
             [this](Late::Nodes& nodes) {
               ++closings_;
               nodes.clear();
             },
             [this] { return has_room_; }};
};

TEST_F(LateClosesTest, WhatIsTakenTogetherIsClosedTogether) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(take());
  EXPECT_EQ(open_, 20);
  EXPECT_EQ(tasks_.size(), 1U);
  run_tasks();
  EXPECT_EQ(open_, 0);
  EXPECT_EQ(closings_, 1);
}

TEST_F(LateClosesTest, WhatComesBehindIsClosedWithTheNext) {
  EXPECT_TRUE(take());
  run_tasks();
  EXPECT_TRUE(take());
  EXPECT_EQ(open_, 1);
  ASSERT_EQ(tasks_.size(), 1U);
  run_tasks();
  EXPECT_EQ(open_, 0);
}

TEST_F(LateClosesTest, NoMoreAreKeptOpenThanSaid) {
  for (size_t i = 0; i < Late::kMax; ++i) EXPECT_TRUE(take());
  EXPECT_FALSE(take());
  EXPECT_EQ(open_, static_cast<int>(Late::kMax));
  run_tasks();
  EXPECT_EQ(open_, 0);
  EXPECT_TRUE(take());
}

TEST_F(LateClosesTest, AtTheEndNothingIsTakenAndWhatWasIsClosed) {
  EXPECT_TRUE(take());
  late_.end();
  EXPECT_FALSE(take());
  EXPECT_EQ(open_, 1);
  run_tasks();
  EXPECT_EQ(open_, 0);
  EXPECT_FALSE(take());
  EXPECT_TRUE(tasks_.empty());
}

TEST_F(LateClosesTest, WhereRoomIsShortNothingIsTaken) {
  has_room_ = false;
  EXPECT_FALSE(take());
  EXPECT_EQ(open_, 0);
  has_room_ = true;
  EXPECT_TRUE(take());
}

TEST(LateCloses, WithNobodyWhoRunsTasksNothingIsTaken) {
  int open = 0;
  Late late(
      nullptr, [](const Late::Nodes&) { FAIL(); }, [] { return true; });
  {
    auto node = std::make_unique<Node>(open);
    EXPECT_FALSE(late.take(node));
  }
  EXPECT_EQ(open, 0);
}

// Whoever takes and whoever closes, at once: each is closed once, and none stays.
TEST(LateCloses, NoneIsForgottenBetweenTakingAndClosing) {
  struct Counted {
    explicit Counted(std::atomic<int>& open) : open_(open) { open_.fetch_add(1); }
    ~Counted() { open_.fetch_sub(1); }
    std::atomic<int>& open_;
  };
  std::atomic<int> open{0};
  Mutex mutex;
  std::vector<std::function<void()>> tasks;
  {
    LateCloses<Counted> late(
        [&](std::function<void()> task) {
          const MutexLock lock(mutex);
          tasks.push_back(std::move(task));
        },
        [](LateCloses<Counted>::Nodes& nodes) { nodes.clear(); }, [] { return true; });
    const auto run = [&] {
      std::vector<std::function<void()>> due;
      {
        const MutexLock lock(mutex);
        due.swap(tasks);
      }
      for (const auto& task : due) task();
    };
    std::atomic<bool> goes_on{true};
    std::thread closer([&] {
      while (goes_on) run();
    });
    constexpr int kTakers = 3;
    std::vector<std::thread> takers;
    takers.reserve(kTakers);
    for (int i = 0; i < kTakers; ++i)
      takers.emplace_back([&] {
        for (int n = 0; n < 20'000; ++n) {
          auto node = std::make_unique<Counted>(open);
          (void)late.take(node);
        }
      });
    for (std::thread& taker : takers) taker.join();
    goes_on = false;
    closer.join();
    run();
    EXPECT_EQ(open, 0);
  }
}

}  // namespace
}  // namespace fpfs
