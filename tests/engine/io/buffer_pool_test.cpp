#include "engine/io/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "engine/io/awaited_thread.h"
#include "engine/io/thread_executor.h"

namespace fpfs {
namespace {

constexpr uint32_t kSize = 4096;

// An owner as a file is one: a lock, and the buffers that it knows to be evictable.
class Owner final : public BufferOwner {
 public:
  bool try_evict(Buffer& buffer) override {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    forget(buffer);
    return true;
  }
  void evict_locked(Buffer& buffer) override {
    ++evictions_locked;
    forget(buffer);
  }
  std::mutex mutex;
  std::set<Buffer*> idle;
  std::vector<Buffer*> evicted;
  int evictions_locked = 0;

 private:
  void forget(Buffer& buffer) {
    EXPECT_EQ(idle.erase(&buffer), 1u);
    evicted.push_back(&buffer);
  }
};

struct TestWaiter : BufferPool::Waiter {
  TestWaiter() {
    ready = [](BufferPool::Waiter& waiter) {
      auto& self = static_cast<TestWaiter&>(waiter);
      ++self.calls;
      if (self.action) self.action();
    };
  }
  int calls = 0;
  std::function<void()> action;
};

class BufferPoolTest : public testing::Test {
 protected:
  void SetUp() override { make(16); }
  void make(unsigned count) {
    Result<std::unique_ptr<BufferPool>> pool = BufferPool::create(uint64_t{count} * kSize, kSize);
    ASSERT_TRUE(pool.is_ok()) << pool.status().message();
    pool_ = std::move(*pool);
    pool_->set_retry_hook(
        [](void* context, std::chrono::milliseconds delay) {
          auto& self = *static_cast<BufferPoolTest*>(context);
          ++(delay == BufferPool::kRetryBusy ? self.busy_retries_ : self.retries_in_case_);
        },
        this);
    pool_->set_pressure_hook([](void* self) { ++static_cast<BufferPoolTest*>(self)->pressures_; }, this);
  }
  std::vector<Buffer*> take(unsigned count) {
    std::vector<Buffer*> buffers(count);
    EXPECT_TRUE(pool_->acquire(count, buffers.data(), nullptr));
    return buffers;
  }
  // Takes every buffer there is.
  std::vector<Buffer*> take_all() {
    std::vector<Buffer*> buffers;
    for (unsigned i = 0; i < pool_->total(); ++i) buffers.push_back(take(1)[0]);
    return buffers;
  }
  void make_evictable(Owner& owner, Buffer& buffer, bool cold = false) {
    buffer.owner = &owner;
    owner.idle.insert(&buffer);
    pool_->make_evictable(buffer, cold);
  }
  // Makes `waiter` wait for `count` buffers and, when called, take them into `got`.
  void wait_for(TestWaiter& waiter, unsigned count, std::vector<Buffer*>& got) {
    got.assign(count, nullptr);
    const auto attempt = [this, &waiter, count, &got] { return pool_->acquire(count, got.data(), &waiter); };
    waiter.action = attempt;
    ASSERT_FALSE(attempt());
  }

  std::unique_ptr<BufferPool> pool_;
  int busy_retries_ = 0, retries_in_case_ = 0;
  int pressures_ = 0;
};

// --- buffers ---------------------------------------------------------------------------------------------------------

TEST(BufferPoolMemory, CanBeMadeResidentAheadOfUse) {
  constexpr uint32_t kChunk = kMiB;
  auto pool = BufferPool::create(100 * uint64_t{kChunk}, kChunk);
  ASSERT_TRUE(pool.is_ok());
  std::array<Buffer*, 50> buffers;
  ASSERT_TRUE((*pool)->acquire(50, buffers.data(), nullptr));
  std::memset(buffers[7]->data, 0x77, kChunk);
  unsigned rounds = 0;
  while ((*pool)->populate_some()) ++rounds;
  EXPECT_EQ(rounds, 100 * kMiB / BufferPool::kPopulatedAtOnce);
  std::array<unsigned char, kChunk / 4096> resident;
  for (const Buffer* buffer : buffers) {
    ASSERT_EQ(::mincore(buffer->data, kChunk, resident.data()), 0);
    EXPECT_TRUE(std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; }));
  }
  EXPECT_TRUE(
      std::all_of(buffers[7]->data, buffers[7]->data + kChunk, [](std::byte byte) { return byte == std::byte{0x77}; }));
  for (Buffer* buffer : buffers) (*pool)->release(*buffer);
}

TEST_F(BufferPoolTest, RefusesSenselessSizes) {
  EXPECT_EQ(BufferPool::create(15 * kSize, kSize).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BufferPool::create(kMiB, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BufferPool::create(kMiB, 1000).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BufferPool::create(uint64_t{1} << 50, kMiB).status().errno_value(), ENOMEM);
  // Parts of a buffer at the end are not used.
  EXPECT_EQ((*BufferPool::create(17 * kSize - 1, kSize))->total(), 16u);
}

TEST_F(BufferPoolTest, BuffersAreAlignedNumberedAndApart) {
  std::vector<Buffer*> buffers = take_all();
  std::set<uint32_t> indices;
  for (Buffer* buffer : buffers) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data) % kIoAlignment, 0u);
    EXPECT_LT(buffer->index, 16u);
    indices.insert(buffer->index);
    memset(buffer->data, static_cast<int>(buffer->index + 1), kSize);
  }
  EXPECT_EQ(indices.size(), 16u);
  for (Buffer* buffer : buffers) {
    EXPECT_EQ(buffer->data[0], static_cast<std::byte>(buffer->index + 1));
    EXPECT_EQ(buffer->data[kSize - 1], static_cast<std::byte>(buffer->index + 1));
    pool_->release(*buffer);
  }
}

TEST_F(BufferPoolTest, GivesAllOrNothing) {
  std::vector<Buffer*> first = take(8), second = take(4);
  Buffer* out[8] = {};
  EXPECT_FALSE(pool_->acquire(8, out, nullptr));
  EXPECT_EQ(out[0], nullptr);
  EXPECT_EQ(pool_->counters().free, 4u);
  EXPECT_TRUE(pool_->acquire(4, out, nullptr));
  EXPECT_EQ(pool_->counters().free, 0u);
  EXPECT_FALSE(pool_->acquire(1, out, nullptr));
  EXPECT_TRUE(pool_->acquire(0, out, nullptr));
  EXPECT_EQ(pool_->counters().waits, 0u);
}

TEST_F(BufferPoolTest, IsLowBelowAQuarter) {
  std::vector<Buffer*> buffers = take(8), more = take(4);
  EXPECT_FALSE(pool_->is_low());
  Buffer* last = take(1)[0];
  EXPECT_TRUE(pool_->is_low());
  Owner owner;
  make_evictable(owner, *last);
  EXPECT_FALSE(pool_->is_low());
}

// --- eviction --------------------------------------------------------------------------------------------------------

TEST_F(BufferPoolTest, TakesFreeThenColdThenOldest) {
  Owner owner;
  std::vector<Buffer*> buffers = take_all();
  make_evictable(owner, *buffers[0]);
  make_evictable(owner, *buffers[1]);
  make_evictable(owner, *buffers[2], true);
  make_evictable(owner, *buffers[3]);
  pool_->release(*buffers[4]);
  EXPECT_EQ(pool_->counters().evictable, 4u);
  for (const size_t expected : {4, 2, 0, 1, 3}) EXPECT_EQ(take(1)[0], buffers[expected]);
  EXPECT_EQ(owner.evicted, (std::vector<Buffer*>{buffers[2], buffers[0], buffers[1], buffers[3]}));
  EXPECT_EQ(pool_->counters().evictions, 4u);
}

TEST_F(BufferPoolTest, BusyBuffersStay) {
  Owner owner;
  std::vector<Buffer*> buffers = take_all();
  make_evictable(owner, *buffers[0]);
  make_evictable(owner, *buffers[1]);
  owner.idle.erase(buffers[0]);
  pool_->make_busy(*buffers[0]);
  EXPECT_EQ(take(1)[0], buffers[1]);
  Buffer* out = nullptr;
  EXPECT_FALSE(pool_->acquire(1, &out, nullptr));
  pool_->release(*buffers[0]);
  EXPECT_EQ(take(1)[0], buffers[0]);
}

TEST_F(BufferPoolTest, HalfOfWhatIsThereIsHeldAheadOfReaders) {
  Owner owner;
  std::array<Buffer*, 9> ahead;
  for (unsigned i = 0; i < 8; ++i) {
    ASSERT_TRUE(pool_->acquire_ahead(&ahead[i], nullptr));
    make_evictable(owner, *ahead[i]);
  }
  EXPECT_FALSE(pool_->acquire_ahead(&ahead[8], nullptr));
  // A reader came for one, one is given up, and one is taken for somebody who needs it at once.
  owner.idle.erase(ahead[0]);
  pool_->make_busy(*ahead[0]);
  ASSERT_TRUE(pool_->acquire_ahead(&ahead[8], nullptr));
  EXPECT_FALSE(pool_->acquire_ahead(&ahead[0], nullptr));
  pool_->release(*ahead[8]);
  ASSERT_TRUE(pool_->acquire_ahead(&ahead[8], nullptr));
  for (Buffer* buffer : take(8)) pool_->release(*buffer);  // one of them was evicted for it
  EXPECT_FALSE(pool_->acquire_ahead(&ahead[8], nullptr));
  pool_->release(*ahead[0]);
  EXPECT_TRUE(pool_->acquire_ahead(&ahead[8], nullptr));
}

TEST_F(BufferPoolTest, PassesOverABusyOwner) {
  Owner busy, idle;
  std::vector<Buffer*> buffers = take_all();
  make_evictable(busy, *buffers[0]);
  make_evictable(idle, *buffers[1]);
  std::lock_guard lock(busy.mutex);
  // try_lock from the thread that holds the lock would be undefined; another one asks.
  std::thread([&] {
    EXPECT_EQ(take(1)[0], buffers[1]);
    Buffer* out = nullptr;
    EXPECT_FALSE(pool_->acquire(1, &out, nullptr));
  }).join();
  EXPECT_EQ(pool_->counters().evictable, 1u);
}

TEST_F(BufferPoolTest, AnOwnerUnderItsOwnLockLosesBuffersWithoutTryLock) {
  Owner self, other;
  std::vector<Buffer*> buffers = take_all();
  make_evictable(self, *buffers[0]);
  make_evictable(other, *buffers[1]);
  std::lock_guard lock(self.mutex);
  Buffer* out[2] = {};
  ASSERT_TRUE(pool_->acquire(2, out, nullptr, &self));
  EXPECT_EQ(self.evictions_locked, 1);
  EXPECT_EQ(other.evictions_locked, 0);
  EXPECT_EQ(other.evicted.size(), 1u);
}

// --- waiting ---------------------------------------------------------------------------------------------------------

TEST_F(BufferPoolTest, WaitersComeInOrderAndNobodyPasses) {
  std::vector<Buffer*> buffers = take_all();
  TestWaiter first, second, third;
  std::vector<Buffer*> got_first, got_second, got_third;
  wait_for(first, 3, got_first);
  wait_for(second, 1, got_second);
  pool_->release(*buffers[0]);
  pool_->release(*buffers[1]);
  pool_->run_waiters();
  EXPECT_EQ(first.calls, 0);
  EXPECT_EQ(second.calls, 0);  // two are free, and one is all that it needs, but it stands behind the first
  Buffer* out = nullptr;
  EXPECT_FALSE(pool_->acquire(1, &out, nullptr));
  wait_for(third, 1, got_third);
  EXPECT_EQ(pool_->counters().waiting, 3u);
  pool_->release(*buffers[2]);
  pool_->run_waiters();
  EXPECT_EQ(first.calls, 1);
  EXPECT_NE(got_first[2], nullptr);
  EXPECT_EQ(second.calls, 0);
  pool_->release(*buffers[3]);
  pool_->release(*buffers[4]);
  pool_->run_waiters();
  EXPECT_EQ(second.calls, 1);
  EXPECT_EQ(third.calls, 1);
  EXPECT_EQ(pool_->counters().waiting, 0u);
  EXPECT_EQ(pool_->counters().waits, 3u);
}

TEST_F(BufferPoolTest, AWaiterLearnsWhetherOthersCouldGoOnAsWell) {
  std::vector<Buffer*> buffers = take_all();
  std::deque<TestWaiter> waiters(3);
  std::vector<bool> awaited;
  for (TestWaiter& waiter : waiters) {
    Buffer* none = nullptr;
    EXPECT_FALSE(pool_->acquire(1, &none, &waiter));
    waiter.action = [&] {
      awaited.push_back(AwaitedThread::is_this());
      take(1);
    };
  }
  for (unsigned i = 0; i < 2; ++i) pool_->release(*buffers[i]);
  pool_->run_waiters();
  EXPECT_EQ(awaited, (std::vector<bool>{true, false})) << "the third has no buffer to wait for this thread with";
  pool_->release(*buffers[2]);
  {
    const AwaitedThread::Scope by_others(true);
    pool_->run_waiters();
  }
  EXPECT_EQ(awaited, (std::vector<bool>{true, false, true}));
}

TEST_F(BufferPoolTest, AWaiterWhoseTurnFailsKeepsItsPlace) {
  std::vector<Buffer*> buffers = take_all();
  TestWaiter first, second;
  std::vector<Buffer*> got_first, got_second;
  wait_for(first, 1, got_first);
  wait_for(second, 1, got_second);
  got_first.assign(3, nullptr);
  first.action = [&] { (void)pool_->acquire(3, got_first.data(), &first); };  // needs more than it said
  pool_->release(*buffers[0]);
  pool_->run_waiters();
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 0);
  EXPECT_EQ(pool_->counters().waiting, 2u);
  pool_->release(*buffers[1]);
  pool_->release(*buffers[2]);
  pool_->run_waiters();
  EXPECT_EQ(first.calls, 2);
  EXPECT_NE(got_first[2], nullptr);
  EXPECT_EQ(second.calls, 0);
  pool_->release(*buffers[3]);
  pool_->run_waiters();
  EXPECT_EQ(second.calls, 1);
}

TEST_F(BufferPoolTest, AWaiterThatNeedsNothingMoreLetsTheNextGo) {
  std::vector<Buffer*> buffers = take_all();
  TestWaiter first, second;
  std::vector<Buffer*> got_first, got_second;
  wait_for(first, 1, got_first);
  wait_for(second, 1, got_second);
  first.action = nullptr;
  pool_->release(*buffers[0]);
  pool_->run_waiters();
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 1);
  EXPECT_EQ(got_second[0], buffers[0]);
}

// A callback serves its own request and then others of its file: only the first of them is its turn.
TEST_F(BufferPoolTest, ACallbackGetsOneTurn) {
  std::vector<Buffer*> buffers = take_all();
  TestWaiter first, second, extra;
  std::vector<Buffer*> got_first, got_second, got_extra(1);
  wait_for(first, 1, got_first);
  wait_for(second, 1, got_second);
  first.action = [&] {
    EXPECT_TRUE(pool_->acquire(1, got_first.data(), &first));
    EXPECT_FALSE(pool_->acquire(1, got_extra.data(), &extra));
  };
  extra.action = [&] { EXPECT_TRUE(pool_->acquire(1, got_extra.data(), &extra)); };
  pool_->release(*buffers[0]);
  pool_->release(*buffers[1]);
  pool_->run_waiters();
  EXPECT_EQ(second.calls, 1);
  EXPECT_EQ(extra.calls, 0);
  pool_->release(*buffers[2]);
  pool_->run_waiters();
  EXPECT_EQ(extra.calls, 1);
  EXPECT_EQ(got_extra[0], buffers[2]);
}

TEST_F(BufferPoolTest, CallbacksDoNotNest) {
  std::vector<Buffer*> buffers = take_all();
  std::deque<TestWaiter> waiters(5);
  int depth = 0, depth_max = 0, served = 0;
  for (TestWaiter& waiter : waiters) {
    Buffer* out = nullptr;
    ASSERT_FALSE(pool_->acquire(1, &out, &waiter));
    waiter.action = [&] {
      depth_max = std::max(depth_max, ++depth);
      Buffer* taken = nullptr;
      EXPECT_TRUE(pool_->acquire(1, &taken, &waiter));
      ++served;
      pool_->release(*taken);
      pool_->run_waiters();
      --depth;
    };
  }
  pool_->release(*buffers[0]);
  pool_->run_waiters();
  EXPECT_EQ(served, 5);
  EXPECT_EQ(depth_max, 1);
}

TEST_F(BufferPoolTest, WaitersThatWaitedForTooLongAreToldSo) {
  const std::vector<Buffer*> all = take_all();
  TestWaiter old_one, another, young;
  Buffer* buffer = nullptr;
  EXPECT_FALSE(pool_->acquire(1, &buffer, &old_one));
  EXPECT_FALSE(pool_->acquire(1, &buffer, &another));
  EXPECT_FALSE(pool_->acquire(1, &buffer, &young));
  const uint64_t now = old_one.since_ns;
  another.since_ns = now;
  young.since_ns = now + 1;
  pool_->expire_waiters(now);
  EXPECT_TRUE(old_one.expired && another.expired);
  EXPECT_EQ(old_one.calls + another.calls, 2);
  EXPECT_FALSE(young.expired);
  EXPECT_EQ(young.calls, 0);
  EXPECT_EQ(pool_->counters().waiting, 1u);
  // The one that is left is the head and the tail of the line.
  TestWaiter last;
  EXPECT_FALSE(pool_->acquire(1, &buffer, &last));
  for (Buffer* each : all) pool_->release(*each);
  pool_->run_waiters();
  EXPECT_EQ(young.calls, 1);
  EXPECT_EQ(last.calls, 1);
  EXPECT_FALSE(young.expired);
}

TEST_F(BufferPoolTest, FreeingAsksForARetryOnceAndDoesNotCall) {
  std::vector<Buffer*> buffers = take_all();
  Owner owner;
  TestWaiter waiter;
  std::vector<Buffer*> got;
  wait_for(waiter, 3, got);
  EXPECT_EQ(pressures_, 1);
  pool_->release(*buffers[0]);
  pool_->release(*buffers[1]);
  EXPECT_EQ(retries_in_case_, 0);  // not enough yet
  make_evictable(owner, *buffers[2]);
  pool_->release(*buffers[3]);
  EXPECT_EQ(retries_in_case_, 1);
  EXPECT_EQ(waiter.calls, 0);
  pool_->retry_waiters(BufferPool::kRetryInCase);
  EXPECT_EQ(waiter.calls, 1);
  EXPECT_NE(got[2], nullptr);
  wait_for(waiter, 3, got);
  for (size_t i = 4; i < 8; ++i) pool_->release(*buffers[i]);
  EXPECT_EQ(retries_in_case_, 2);
  pool_->retry_waiters(BufferPool::kRetryInCase);
  EXPECT_EQ(waiter.calls, 2);
  EXPECT_EQ(busy_retries_, 0);
}

// The owner was locked when somebody wanted its buffer, and never calls the pool again: only the retry can help.
TEST_F(BufferPoolTest, ABusyOwnerIsAskedAgain) {
  std::vector<Buffer*> buffers = take_all();
  Owner owner;
  make_evictable(owner, *buffers[0]);
  TestWaiter waiter;
  std::vector<Buffer*> got;
  {
    std::lock_guard lock(owner.mutex);
    std::thread([&] { wait_for(waiter, 1, got); }).join();
    EXPECT_EQ(busy_retries_, 1);
    EXPECT_EQ(pressures_, 0);  // there are enough, they are just out of reach
    std::thread([&] { pool_->retry_waiters(BufferPool::kRetryBusy); }).join();
    EXPECT_EQ(waiter.calls, 1);
    EXPECT_EQ(got[0], nullptr);
    EXPECT_EQ(busy_retries_, 2);
    // What was arranged in case asks for no second one beside it.
    std::thread([&] { pool_->retry_waiters(BufferPool::kRetryInCase); }).join();
    EXPECT_EQ(busy_retries_, 2);
  }
  pool_->retry_waiters(BufferPool::kRetryBusy);
  EXPECT_EQ(waiter.calls, 3);
  EXPECT_EQ(got[0], buffers[0]);
  EXPECT_EQ(retries_in_case_, 0);
  EXPECT_EQ(busy_retries_, 2);
}

// --- everything at once ----------------------------------------------------------------------------------------------

// A thread with an owner that takes a few buffers at a time, keeps some of them evictable and uses those again.
class Worker {
 public:
  Worker(BufferPool& pool, unsigned number) : pool_(pool), random_(number), stamp_(number + 1) {
    waiter_.owner = this;
    waiter_.ready = [](BufferPool::Waiter& waiter) { static_cast<Worker*>(waiter.owner)->attempt(); };
  }
  void run(unsigned rounds) {
    for (unsigned i = 0; i < rounds; ++i) {
      request(1 + random_() % 4);
      use(std::span(buffers_).first(count_));
      give_back();
      use_again();
      if (random_() % 2 == 0) pool_.run_waiters();
    }
  }
  void release_all() {
    std::lock_guard lock(owner_.mutex);
    for (Buffer* buffer : owner_.idle) pool_.release(*buffer);
    owner_.idle.clear();
  }
  unsigned wrong() const { return wrong_; }

 private:
  void request(unsigned count) {
    count_ = count;
    granted_ = false;
    attempt();
    std::unique_lock lock(owner_.mutex);
    condition_.wait(lock, [this] { return granted_; });
  }
  void attempt() {
    std::lock_guard lock(owner_.mutex);
    if (!pool_.acquire(count_, buffers_.data(), &waiter_, &owner_)) return;
    granted_ = true;
    condition_.notify_all();
  }
  // Buffers in use are this thread's alone.
  void use(std::span<Buffer* const> buffers) {
    for (Buffer* buffer : buffers) memset(buffer->data, static_cast<int>(stamp_), 64);
    std::this_thread::yield();
    for (Buffer* buffer : buffers)
      if (buffer->data[0] != static_cast<std::byte>(stamp_) || buffer->data[63] != static_cast<std::byte>(stamp_))
        ++wrong_;
  }
  void give_back() {
    std::lock_guard lock(owner_.mutex);
    for (unsigned i = 0; i < count_; ++i) {
      if (random_() % 3 == 0) {
        pool_.release(*buffers_[i]);
        continue;
      }
      buffers_[i]->owner = &owner_;
      owner_.idle.insert(buffers_[i]);
      pool_.make_evictable(*buffers_[i], random_() % 2 == 0);
    }
  }
  void use_again() {
    Buffer* buffer = nullptr;
    {
      std::lock_guard lock(owner_.mutex);
      if (owner_.idle.empty()) return;
      buffer = *owner_.idle.begin();
      owner_.idle.erase(buffer);
      pool_.make_busy(*buffer);
    }
    use({&buffer, 1});
    std::lock_guard lock(owner_.mutex);
    owner_.idle.insert(buffer);
    pool_.make_evictable(*buffer, false);
  }

  BufferPool& pool_;
  Owner owner_;
  std::mt19937 random_;
  const unsigned stamp_;
  std::condition_variable condition_;
  bool granted_ = false;
  unsigned count_ = 0;
  std::array<Buffer*, 4> buffers_{};
  BufferPool::Waiter waiter_;
  unsigned wrong_ = 0;
};

TEST_F(BufferPoolTest, ManyThreadsShareATinyPool) {
  constexpr unsigned kThreads = 8, kRounds = 3000;
  struct Retrier {
    BufferPool& pool;
    ThreadExecutor executor{2};
  } retrier{*pool_};
  pool_->set_pressure_hook(nullptr, nullptr);
  pool_->set_retry_hook(
      [](void* context, std::chrono::milliseconds delay) {
        auto& self = *static_cast<Retrier*>(context);
        self.executor.post_after(delay, [&self, delay] { self.pool.retry_waiters(delay); });
      },
      &retrier);
  std::deque<Worker> workers;
  for (unsigned i = 0; i < kThreads; ++i) workers.emplace_back(*pool_, i);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.run(kRounds); });
  for (std::thread& thread : threads) thread.join();
  retrier.executor.stop();
  for (Worker& worker : workers) {
    EXPECT_EQ(worker.wrong(), 0u);
    worker.release_all();
  }
  const BufferPool::Counters counters = pool_->counters();
  EXPECT_EQ(counters.free, 16u);
  EXPECT_EQ(counters.waiting, 0u);
  EXPECT_GT(counters.waits, 0u);
  EXPECT_GT(counters.evictions, 0u);
}

}  // namespace
}  // namespace fpfs
