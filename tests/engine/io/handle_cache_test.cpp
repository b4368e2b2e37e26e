// Handles that are kept open as long as there is room: which go first, what is never closed, and who is told before.
#include "engine/io/handle_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "engine/io/posix_storage.h"

namespace fpfs {
namespace {

// Counts what is open; handles are numbers.
class CountingStorage : public PosixStorage {
 public:
  void close(Handle handle) override {
    const MutexLock lock(mutex_);
    EXPECT_EQ(open_.erase(handle), 1U) << "closed once, and only what was opened";
  }
  Handle open() {
    const MutexLock lock(mutex_);
    open_.insert(++last_);
    return last_;
  }
  bool is_open(Handle handle) {
    const MutexLock lock(mutex_);
    return open_.count(handle) == 1;
  }
  size_t count() {
    const MutexLock lock(mutex_);
    return open_.size();
  }

 private:
  Mutex mutex_;
  Handle last_ = 100;
  std::set<Handle> open_;
};

struct NotedSlot : HandleCache::Slot {
  void before_close(Handle handle) override { told.push_back(handle); }
  bool is_slow_to_close() const override { return slow; }
  std::vector<Handle> told;
  bool slow = false;
};

class HandleCacheTest : public testing::Test {
 protected:
  CountingStorage storage_;
  HandleCache cache_{2};
  NotedSlot slots_[4];

  Handle use(NotedSlot& slot) {
    HandleCache::Pin pin = cache_.find(slot);
    if (!pin.is_set()) pin = cache_.insert(slot, ScopedHandle(storage_, storage_.open()));
    return pin.get();
  }
};

TEST_F(HandleCacheTest, TheLeastRecentlyUsedGoes) {
  const Handle first = use(slots_[0]);
  const Handle second = use(slots_[1]);
  EXPECT_EQ(use(slots_[0]), first);
  use(slots_[2]);
  EXPECT_TRUE(storage_.is_open(first));
  EXPECT_FALSE(storage_.is_open(second));
  EXPECT_EQ(slots_[1].told, std::vector<Handle>{second});
  EXPECT_EQ(storage_.count(), 2U);
  for (NotedSlot& slot : slots_) cache_.remove(slot);
  EXPECT_EQ(storage_.count(), 0U);
  EXPECT_TRUE(slots_[0].told.empty()) << "who removes a slot knows it";
}

TEST_F(HandleCacheTest, WhatIsPinnedStaysAndIsMadeUpForAfterwards) {
  std::vector<HandleCache::Pin> pins;
  for (NotedSlot& slot : slots_) pins.push_back(cache_.insert(slot, ScopedHandle(storage_, storage_.open())));
  EXPECT_EQ(storage_.count(), 4U);
  EXPECT_FALSE(cache_.make_room());
  const Handle last = pins[3].get();
  pins.pop_back();
  EXPECT_FALSE(storage_.is_open(last)) << "there are too many: the first that nobody needs goes";
  pins.clear();
  EXPECT_EQ(storage_.count(), 2U);
  EXPECT_TRUE(cache_.make_room());
  EXPECT_EQ(storage_.count(), 0U);
  for (NotedSlot& slot : slots_) EXPECT_FALSE(cache_.find(slot).is_set());
}

TEST_F(HandleCacheTest, TheSecondOfTwoThatOpenGivesWay) {
  const HandleCache::Pin pin = cache_.insert(slots_[0], ScopedHandle(storage_, storage_.open()));
  const HandleCache::Pin again = cache_.insert(slots_[0], ScopedHandle(storage_, storage_.open()));
  EXPECT_EQ(pin.get(), again.get());
  EXPECT_EQ(storage_.count(), 1U);
}

TEST_F(HandleCacheTest, WhatIsSlowToCloseGoesLast) {
  slots_[0].slow = slots_[1].slow = true;
  const Handle first = use(slots_[0]);
  use(slots_[1]);
  use(slots_[2]);  // one of the slow ones had to go
  EXPECT_FALSE(storage_.is_open(first));
  const Handle quick = use(slots_[2]);
  use(slots_[1]);
  use(slots_[3]);
  EXPECT_FALSE(storage_.is_open(quick)) << "although it was used before the slow one";
}

TEST_F(HandleCacheTest, ManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<bool> wrong{false};
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([this, seed, &wrong] {
      for (unsigned i = 0; i < 20000; ++i) {
        NotedSlot& slot = slots_[(i * (seed + 1) + seed) % 4];
        HandleCache::Pin pin = cache_.find(slot);
        if (!pin.is_set()) pin = cache_.insert(slot, ScopedHandle(storage_, storage_.open()));
        if (!storage_.is_open(pin.get())) wrong = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_LE(storage_.count(), 2U);
}

}  // namespace
}  // namespace fpfs
