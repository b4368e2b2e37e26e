// Reading an index takes several times the memory that it takes afterwards: large ones are read one at a time, however
// many are opened at once, and small ones wait for nobody.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/io/posix_environment.h"
#include "engine/store/store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;
constexpr size_t kInline = 30'000;
constexpr unsigned kCommits = 40;  // of as many bytes: more than 1 MiB of log

// Tells of every read, and of how it ended.
class SlowReads final : public PosixStorage {
 public:
  Result<size_t> pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) override {
    if (!slow_.load()) return PosixStorage::pread(handle, buffer, offset);
    const int now = ++reading_;
    int most = most_.load();
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Result<size_t> result = PosixStorage::pread(handle, buffer, offset);
    --reading_;
    return result;
  }
  void be_slow() { slow_ = true; }
  // So many reads were under way at once.
  int most_at_once() const { return most_; }

 private:
  std::atomic<bool> slow_{false};
  std::atomic<int> reading_{0}, most_{0};
};

class IndexMemoryTest : public ::testing::Test {
 protected:
  IndexMemoryTest() : directories_{place_ / "a", place_ / "b"} {
    FormatOptions format;
    format.chunk_size = kChunk;
    EXPECT_TRUE(Array::format(environment_, directories_, format).is_ok());
    StoreOptions options;
    options.buffer_memory = 64 * kChunk;
    options.array.buffered_members = true;
    auto store = Store::open(environment_, directories_, options);
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
  }
  ~IndexMemoryTest() override { EXPECT_TRUE(store_->close().is_ok()); }

  void make(const std::string& name, unsigned commits) {
    Result<Store::Created> created = store_->create(store_->root(), name, 0600);
    ASSERT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    std::vector<std::byte> data(kInline);
    for (unsigned commit = 0; commit < commits; ++commit) {
      test::fill(data, commit, 0);
      ASSERT_TRUE(store_->write_sync(*created->file, FileOffset(0), data).is_ok());
      ASSERT_TRUE(store_->commit_sync(*created->file).is_ok());
    }
  }
  // How many reads of sidecars were under way at once while these were opened.
  int open_together(const std::vector<std::string>& names) {
    while (store_->status().open_files > 0) std::this_thread::yield();
    std::vector<Store::Node> nodes;
    for (const std::string& name : names) {
      Result<Store::Node> node = store_->lookup(store_->root(), name);
      EXPECT_TRUE(node.is_ok()) << node.status().message();
      nodes.push_back(std::move(*node));
    }
    storage_->be_slow();
    std::vector<std::thread> threads;
    threads.reserve(nodes.size());
    for (const Store::Node& node : nodes)
      threads.emplace_back([this, &node] {
        const auto file = store_->open_file(node.handle.get(), false);
        EXPECT_TRUE(file.is_ok()) << file.status().message();
      });
    for (std::thread& thread : threads) thread.join();
    return storage_->most_at_once();
  }

  test::TemporaryDirectory place_{test::quick_place()};
  std::vector<std::string> directories_;
  SlowReads* storage_ = new SlowReads;
  PosixEnvironment environment_{4, std::unique_ptr<Storage>(storage_)};
  std::unique_ptr<Store> store_;
};

TEST_F(IndexMemoryTest, LargeIndexesAreReadOneAtATime) {
  for (const char* name : {"a", "b", "c"}) make(name, kCommits);
  ASSERT_GT(store_->storage().stat_at(store_->root(), "a")->st_size, static_cast<off_t>(kMiB));
  EXPECT_EQ(open_together({"a", "b", "c"}), 1);
}

TEST_F(IndexMemoryTest, SmallOnesAreReadSideBySide) {
  for (const char* name : {"a", "b", "c"}) make(name, 1);
  EXPECT_GT(open_together({"a", "b", "c"}), 1);
}

}  // namespace
}  // namespace fpfs
