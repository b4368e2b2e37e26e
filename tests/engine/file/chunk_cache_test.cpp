#include "engine/file/chunk_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;
using State = CachedChunk::State;

class ChunkCacheTest : public ::testing::Test, public BufferOwner {
 protected:
  ChunkCacheTest()
      : pool_(BufferPool::create(BufferPool::kBuffersMin * kChunk, kChunk).value()),
        chunks_(std::make_unique<CachedChunk[]>(pool_->total())) {
    cache_ = std::make_unique<ChunkCache>(*pool_, chunks_.get());
  }
  bool try_evict(Buffer& buffer) override {
    cache_->evict(buffer);
    return true;
  }
  void evict_locked(Buffer& buffer) override { cache_->evict(buffer); }

  CachedChunk& make(uint64_t index) {
    Buffer* buffer = nullptr;
    EXPECT_TRUE(pool_->acquire(1, &buffer, nullptr, this));
    return cache_->adopt(*buffer, *this, ChunkIndex(index));
  }
  uint64_t free_buffers() { return pool_->counters().free; }
  uint64_t evictable_buffers() { return pool_->counters().evictable; }

  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<CachedChunk[]> chunks_;
  std::unique_ptr<ChunkCache> cache_;
  ChunkCache::Woken woken_;
};

TEST_F(ChunkCacheTest, AnIdleCleanChunkMayBeEvicted) {
  CachedChunk& chunk = make(7);
  EXPECT_EQ(cache_->find(ChunkIndex(7)), &chunk);
  EXPECT_EQ(evictable_buffers(), 0u);
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(evictable_buffers(), 1u);
  std::vector<Buffer*> half(pool_->total() / 2), rest(pool_->total() / 2);
  EXPECT_TRUE(pool_->acquire(pool_->total() / 2, half.data(), nullptr, this));
  EXPECT_TRUE(pool_->acquire(pool_->total() / 2, rest.data(), nullptr, this));
  EXPECT_EQ(cache_->find(ChunkIndex(7)), nullptr);
}

TEST_F(ChunkCacheTest, WhoReadsFillsOrTransfersKeepsIt) {
  CachedChunk& chunk = make(0);
  chunk.readers = 1;
  cache_->release_if_idle(chunk, false, woken_);
  chunk.readers = 0;
  chunk.filling = true;
  cache_->release_if_idle(chunk, false, woken_);
  chunk.filling = false;
  chunk.state = State::kWriting;
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(evictable_buffers(), 0u);
  chunk.state = State::kReady;
  cache_->mark_dirty(chunk);
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(evictable_buffers(), 0u) << "not stored yet";
  cache_->mark_clean(chunk);
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(evictable_buffers(), 1u);
}

TEST_F(ChunkCacheTest, WhoWaitsGoesOnWhenItIsIdle) {
  CachedChunk& chunk = make(0);
  ReadRequest read;
  WriteRequest write;
  chunk.state = State::kLoading;
  chunk.waiting_reads.push_front(read);
  chunk.waiting_writes.push_front(write);
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_TRUE(woken_.reads.is_empty());
  chunk.state = State::kReady;
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(woken_.reads.pop_front(), &read);
  EXPECT_EQ(woken_.writes.pop_front(), &write);
}

TEST_F(ChunkCacheTest, ADetachedChunkKeepsItsBufferUntilItsTransferEnds) {
  const uint64_t before = free_buffers();
  CachedChunk& chunk = make(3);
  ReadRequest read;
  chunk.state = State::kLoading;
  chunk.waiting_reads.push_front(read);
  cache_->detach(chunk, woken_);
  EXPECT_EQ(cache_->find(ChunkIndex(3)), nullptr);
  EXPECT_EQ(woken_.reads.pop_front(), &read);
  EXPECT_EQ(cache_->detached_in_transfer(), std::vector<CachedChunk*>{&chunk});
  EXPECT_EQ(free_buffers(), before - 1);
  CachedChunk& other = make(3);
  EXPECT_NE(&other, &chunk);
  chunk.state = State::kFailed;
  cache_->release_if_idle(chunk, true, woken_);
  EXPECT_TRUE(cache_->detached_in_transfer().empty());
  EXPECT_EQ(cache_->find(ChunkIndex(3)), &other);
  EXPECT_EQ(free_buffers(), before - 1);
}

TEST_F(ChunkCacheTest, AnIdleChunkThatIsDetachedIsGone) {
  const uint64_t before = free_buffers();
  CachedChunk& chunk = make(3);
  cache_->release_if_idle(chunk, false, woken_);
  cache_->detach(chunk, woken_);
  EXPECT_EQ(free_buffers(), before);
  EXPECT_TRUE(cache_->detached_in_transfer().empty());
}

TEST_F(ChunkCacheTest, AFailedLoadIsForgottenWithItsLastReader) {
  CachedChunk& chunk = make(3);
  chunk.state = State::kFailed;
  chunk.readers = 1;
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(cache_->find(ChunkIndex(3)), &chunk);
  chunk.readers = 0;
  cache_->release_if_idle(chunk, false, woken_);
  EXPECT_EQ(cache_->find(ChunkIndex(3)), nullptr);
}

TEST_F(ChunkCacheTest, DirtyOnesInTheirOrder) {
  CachedChunk& first = make(9);
  CachedChunk& second = make(2);
  cache_->mark_dirty(first);
  cache_->mark_dirty(second);
  EXPECT_EQ(cache_->oldest_dirty(), &first);
  std::vector<ChunkIndex> order;
  cache_->for_each_dirty([&](CachedChunk& chunk) {
    order.push_back(chunk.index);
    cache_->mark_clean(chunk);
  });
  EXPECT_EQ(order, (std::vector<ChunkIndex>{ChunkIndex(9), ChunkIndex(2)}));
  EXPECT_EQ(cache_->dirty_count(), 0u);
}

TEST_F(ChunkCacheTest, TheEndGivesAllBack) {
  const uint64_t before = free_buffers();
  (void)make(1);
  cache_->release_if_idle(make(2), false, woken_);
  cache_->clear();
  EXPECT_EQ(free_buffers(), before);
}

}  // namespace
}  // namespace fpfs
