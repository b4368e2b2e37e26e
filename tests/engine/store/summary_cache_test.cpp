// What is kept of the ends of sidecars: a file that nobody has changed is looked up, listed and removed without a read of
// its index, and one that was changed is never shown as it was. Also on a kernel whose time stands still.
#include "engine/store/summary_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/file_descriptor.h"
#include "engine/check/check.h"
#include "engine/io/posix_environment.h"
#include "tests/engine/store/small_store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

struct stat sidecar(uint64_t inode, off_t size, int64_t changed_ns) {
  struct stat attributes {};
  attributes.st_ino = inode;
  attributes.st_size = size;
  attributes.st_ctim = {changed_ns / 1'000'000'000, changed_ns % 1'000'000'000};
  return attributes;
}

SidecarSummary of_size(uint64_t size) {
  SidecarSummary summary;
  summary.size = size;
  return summary;
}

TEST(SummaryCacheTest, HoldsWhileTheSidecarIsAsItWas) {
  SummaryCache cache;
  EXPECT_FALSE(cache.recall(sidecar(5, 4096, 7)).has_value());
  cache.remember(sidecar(5, 4096, 7), of_size(100));
  EXPECT_EQ(cache.recall(sidecar(5, 4096, 7)).value().size, 100u);
  EXPECT_FALSE(cache.recall(sidecar(6, 4096, 7)).has_value());
  EXPECT_FALSE(cache.recall(sidecar(5, 8192, 7)).has_value());
  EXPECT_FALSE(cache.recall(sidecar(5, 4096, 8)).has_value());
  EXPECT_FALSE(cache.recall(sidecar(5, 4096, 1'000'000'007)).has_value());
  cache.remember(sidecar(5, 8192, 8), of_size(200));
  EXPECT_FALSE(cache.recall(sidecar(5, 4096, 7)).has_value());
  EXPECT_EQ(cache.recall(sidecar(5, 8192, 8)).value().size, 200u);
}

TEST(SummaryCacheTest, ForgetsTheOldest) {
  SummaryCache cache;
  constexpr uint64_t kFirst = 1000;
  for (uint64_t i = 0; i <= SummaryCache::kFilesMax; ++i) {
    cache.remember(sidecar(kFirst + i, 4096, 7), of_size(i));
    cache.remember(sidecar(kFirst + i, 4096, 8), of_size(i));  // not one more
  }
  EXPECT_FALSE(cache.recall(sidecar(kFirst, 4096, 8)).has_value());
  for (uint64_t i = 1; i <= SummaryCache::kFilesMax; ++i)
    ASSERT_EQ(cache.recall(sidecar(kFirst + i, 4096, 8)).value().size, i);
}

TEST(SummaryCacheTest, ForgetsWhatMayChange) {
  SummaryCache cache;
  cache.forget(5);
  cache.remember(sidecar(5, 4096, 7), of_size(100));
  cache.remember(sidecar(6, 4096, 7), of_size(200));
  cache.forget(5);
  EXPECT_FALSE(cache.recall(sidecar(5, 4096, 7)).has_value());
  EXPECT_TRUE(cache.recall(sidecar(6, 4096, 7)).has_value());
  cache.remember(sidecar(5, 4096, 7), of_size(300));
  EXPECT_EQ(cache.recall(sidecar(5, 4096, 7)).value().size, 300u);
}

// Counts reads.
class CountingStorage final : public PosixStorage {
 public:
  Result<size_t> pread(Handle handle, std::span<std::byte> to, uint64_t offset) override {
    reads += 1;
    return PosixStorage::pread(handle, to, offset);
  }
  Result<struct stat> fstat(Handle handle) override { return shown(PosixStorage::fstat(handle)); }
  Result<struct stat> stat_at(Handle directory, const std::string& name) override {
    return shown(PosixStorage::stat_at(directory, name));
  }

  std::atomic<unsigned> reads{0};
  std::atomic<bool> time_stands{false};  // every change is of one moment
  std::atomic<bool> one_inode{false};    // every file is given the inode of the one before

 private:
  Result<struct stat> shown(Result<struct stat> found) const {
    if (found.is_ok() && time_stands) found->st_ctim = {1'000'000'000, 0};
    if (found.is_ok() && one_inode && S_ISREG(found->st_mode)) found->st_ino = 4711;
    return found;
  }
};

class ClosedFilesTest : public ::testing::Test {
 protected:
  ClosedFilesTest() {
    auto storage = std::make_unique<CountingStorage>();
    storage_ = storage.get();
    environment_ = std::make_unique<PosixEnvironment>(4, std::move(storage));
    format_small_array(*environment_, directories_);
    store_ = open_small_store(*environment_, directories_, false);
  }
  void TearDown() override {
    ASSERT_TRUE(store_->close().is_ok());
    store_ = nullptr;  // it is looked at as a whole only when nobody holds it
    CheckOptions options;
    options.buffered_members = true;
    const Result<CheckReport> report = check_array(*environment_, directories_, options);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_TRUE(report->clean());
    EXPECT_EQ(report->orphans, 0u);
  }

  void wait_until_closed() {
    while (store_->status().open_files > 0) std::this_thread::yield();
  }
  void save(const std::string& name, size_t bytes) {
    Result<Store::Created> created = store_->create(store_->root(), name, 0600);
    ASSERT_TRUE(created.is_ok()) << created.status().message();
    append(created->file, bytes);
    created->node.handle.reset();
    created->file = nullptr;
    wait_until_closed();
  }
  void append(const std::shared_ptr<File>& file, size_t bytes) {
    std::vector<std::byte> data(bytes);
    fill(data, 1, file->size());
    ASSERT_TRUE(store_->write_sync(*file, FileOffset(file->size()), data).is_ok());
    ASSERT_TRUE(store_->commit_sync(*file).is_ok());
  }
  void reopened(const std::string& name, const std::function<void(const std::shared_ptr<File>&)>& change) {
    Result<Store::Node> node = store_->lookup(store_->root(), name);
    ASSERT_TRUE(node.is_ok()) << node.status().message();
    Result<std::shared_ptr<File>> file = store_->open_file(node->handle.get(), true);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    change(*file);
    *file = nullptr;
    wait_until_closed();
  }
  uint64_t size_of(const std::string& name) {
    const Result<Store::Node> node = store_->lookup(store_->root(), name);
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    return node.is_ok() ? static_cast<uint64_t>(node->attributes.st_size) : 0;
  }
  uint64_t listed_size_of(const std::string& name) {
    DirectoryEntry entry;
    entry.name = name;
    entry.type = DT_REG;
    const auto nodes = store_->lookup_all(store_->root(), {&entry, 1});
    EXPECT_TRUE(nodes.front().has_value());
    return nodes.front().has_value() ? static_cast<uint64_t>(nodes.front()->attributes.st_size) : 0;
  }
  // Nothing is left on the members.
  void expect_freed() {
    while (store_->status().pending_frees > 0) std::this_thread::yield();
    for (const std::string& member : directories_)
      for (const auto& entry : std::filesystem::recursive_directory_iterator(member + "/objects"))
        EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  }
  unsigned reads_of(const std::function<void()>& work) {
    const unsigned before = storage_->reads;
    work();
    return storage_->reads - before;
  }

  TemporaryDirectory place_{quick_place()};
  std::vector<std::string> directories_{place_ / "a", place_ / "b"};
  CountingStorage* storage_ = nullptr;
  std::unique_ptr<PosixEnvironment> environment_;
  std::unique_ptr<Store> store_;
};

// With false and true: whether time stands still.
class ClosedFilesAtATimeTest : public ClosedFilesTest, public ::testing::WithParamInterface<bool> {
 protected:
  ClosedFilesAtATimeTest() { storage_->time_stands = GetParam(); }
};

constexpr size_t kInline = 4096;
constexpr size_t kInObjects = 3 * kSmallChunk + 777;

TEST_P(ClosedFilesAtATimeTest, AreReadOnce) {
  for (const size_t bytes : {kInline, kInObjects}) {
    save("file", bytes);
    EXPECT_GT(reads_of([&] { EXPECT_EQ(size_of("file"), bytes); }), 0u);
    EXPECT_EQ(reads_of([&] { EXPECT_EQ(size_of("file"), bytes); }), 0u);
    EXPECT_EQ(reads_of([&] { EXPECT_EQ(listed_size_of("file"), bytes); }), 0u);
    EXPECT_EQ(reads_of([&] { EXPECT_TRUE(store_->unlink(store_->root(), "file").is_ok()); }), 0u);
  }
  expect_freed();
}

TEST_P(ClosedFilesAtATimeTest, AreShownAsTheyWereChanged) {
  save("file", kInline);
  for (uint64_t size = kInline; size < 2 * kInObjects; size += 5000) {
    EXPECT_EQ(size_of("file"), size);
    EXPECT_EQ(listed_size_of("file"), size);
    reopened("file", [&](const std::shared_ptr<File>& file) { append(file, 5000); });
  }
  ASSERT_TRUE(store_->unlink(store_->root(), "file").is_ok());
}

// Their sidecars have the inode of the one before, and may have its size and its time.
TEST_P(ClosedFilesAtATimeTest, AreNotTakenForThoseBefore) {
  storage_->one_inode = true;
  for (size_t bytes = 1; bytes < 200; ++bytes) {
    save("file", bytes);
    EXPECT_EQ(size_of("file"), bytes);
    ASSERT_TRUE(store_->unlink(store_->root(), "file").is_ok());
  }
}

// Whoever removes one has looked at it; then it is opened, its content replaced, and closed, before it is removed: what it
// has by then is freed.
TEST_P(ClosedFilesAtATimeTest, AreFreedAsTheyWereChanged) {
  for (const size_t before : {kInline, kInObjects}) {
    for (const size_t behind : {kInline, kInObjects}) {
      save("file", before);
      Result<Store::Node> node = store_->lookup(store_->root(), "file");
      const Result<struct stat> seen = storage_->stat_at(store_->root(), "file");
      ASSERT_TRUE(node.is_ok() && seen.is_ok());
      reopened("file", [&](const std::shared_ptr<File>& file) {
        ASSERT_TRUE(store_->truncate_sync(*file, 0).is_ok());
        ASSERT_NO_FATAL_FAILURE(append(file, behind));
      });
      ASSERT_TRUE(store_->unlink(store_->root(), "file", node->handle.get(), *seen).is_ok());
    }
  }
  expect_freed();
}

// By somebody else, behind the mount's back.
TEST_F(ClosedFilesTest, AreReadAgainWhenTheirSidecarWasChanged) {
  save("file", kInline);
  EXPECT_EQ(size_of("file"), kInline);
  const FileDescriptor sidecar(::open((directories_[0] + "/tree/file").c_str(), O_RDWR));
  ASSERT_TRUE(sidecar.is_open());
  const off_t last = ::lseek(sidecar.number(), -1, SEEK_END);
  std::byte byte{};
  ASSERT_EQ(::pread(sidecar.number(), &byte, 1, last), 1);
  byte ^= std::byte{1};
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for clocks of files that are coarse
  ASSERT_EQ(::pwrite(sidecar.number(), &byte, 1, last), 1);
  const Result<Store::Node> node = store_->lookup(store_->root(), "file");
  ASSERT_TRUE(node.is_ok()) << node.status().message();
  EXPECT_TRUE(Store::is_size_unknown(node->attributes));
  ASSERT_TRUE(store_->unlink(store_->root(), "file").is_ok());
}

INSTANTIATE_TEST_SUITE_P(Time, ClosedFilesAtATimeTest, ::testing::Values(false, true),
                         [](const auto& time) { return time.param ? "Stands" : "Goes"; });

}  // namespace
}  // namespace fpfs::test
