// The two bounded stores of a mount: receive buffers and call objects.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fs/nodes/call_pool.h"
#include "fs/protocol/fuse_wire.h"
#include "fs/transport/receive_buffers.h"

namespace fpfs {
namespace {

TEST(ReceiveBuffers, PayloadsArePageAlignedAndBuffersDoNotOverlap) {
  Result<std::unique_ptr<ReceiveBuffers>> made = ReceiveBuffers::create(3);
  ASSERT_TRUE(made.is_ok());
  ReceiveBuffers& buffers = **made;
  std::vector<KeptPayload> taken;
  taken.reserve(3);
  for (int i = 0; i < 3; ++i) taken.push_back(buffers.take());
  EXPECT_EQ(buffers.try_take(), nullptr);
  EXPECT_EQ(buffers.in_use(), 3U);
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(taken[i]->request + wire::kWritePayloadOffset) % 4096, 0U);
    std::memset(taken[i]->request, static_cast<int>(i + 1), ReceiveBuffers::kRequestSizeMax);
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i]->request[0], static_cast<std::byte>(i + 1));
    EXPECT_EQ(taken[i]->request[ReceiveBuffers::kRequestSizeMax - 1], static_cast<std::byte>(i + 1));
    EXPECT_EQ(static_cast<const ReceiveBuffer&>(*taken[i]).home, &buffers);
  }
  taken.clear();
  EXPECT_EQ(buffers.in_use(), 0U);
}

TEST(ReceiveBuffers, TheLastOneReturnedIsTakenNext) {
  auto made = ReceiveBuffers::create(4);
  ASSERT_TRUE(made.is_ok());
  KeptPayload first = (*made)->take();
  KeptPayload second = (*made)->take();
  const ReceivedPayload* const last_but_one = second.get();
  const ReceivedPayload* const last = first.get();
  second = nullptr;
  first = nullptr;
  first = (*made)->take();
  second = (*made)->take();
  EXPECT_EQ(first.get(), last);
  EXPECT_EQ(second.get(), last_but_one);
}

TEST(ReceiveBuffers, TakeWaitsForAReturn) {
  auto made = ReceiveBuffers::create(1);
  ASSERT_TRUE(made.is_ok());
  KeptPayload only = (*made)->take();
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    const KeptPayload payload = (*made)->take();
    EXPECT_TRUE(returned.load());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  returned = true;
  only = nullptr;
  waiter.join();
}

TEST(CallPool, ReusesAndGrowsToItsLimit) {
  CallPool<int> pool(2, 4);
  std::set<int*> taken;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(taken.insert(&pool.take()).second);
  EXPECT_EQ(pool.in_use(), 4U);
  int& one = **taken.begin();
  std::atomic<bool> returned{false};
  std::thread fifth([&] {
    int& call = pool.take();
    EXPECT_TRUE(returned.load());
    EXPECT_EQ(&call, &one);
    pool.give_back(call);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  returned = true;
  pool.give_back(one);
  fifth.join();
  EXPECT_EQ(pool.in_use(), 3U);
}

TEST(CallPool, IdleMeansEveryCallCameBack) {
  CallPool<int> pool(1, 8);
  int& first = pool.take();
  int& second = pool.take();
  std::atomic<int> returned{0};
  std::thread returner([&] {
    for (int* call : {&first, &second}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++returned;
      pool.give_back(*call);
    }
  });
  pool.wait_until_idle();
  EXPECT_EQ(returned.load(), 2);
  returner.join();
}

// What a task holds may use what goes when nothing is under way any more.
TEST(RequestCounter, ATaskCountsUntilWhatItHoldsIsGone) {
  RequestCounter counter;
  bool was_idle = true;
  std::function<void()> task = counter.counted([held = std::shared_ptr<int>(new int, [&](const int* value) {
                                                  was_idle = counter.is_idle();
                                                  delete value;
                                                })] {});
  EXPECT_FALSE(counter.is_idle());
  task();  // and not when it is destroyed
  EXPECT_FALSE(was_idle);
  EXPECT_TRUE(counter.is_idle());
}

TEST(RequestCounter, WaitsForAll) {
  RequestCounter counter;
  counter.wait_until_idle();  // nothing under way: at once
  counter.begin();
  counter.begin();
  std::atomic<int> ended{0};
  std::thread ender([&] {
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++ended;
      counter.end();
    }
  });
  counter.wait_until_idle();
  EXPECT_EQ(ended.load(), 2);
  ender.join();
}

}  // namespace
}  // namespace fpfs
