// Healing with real threads, a real array and a directory as the store: many readers of damaged files, beside writers and
// a scrub.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "engine/io/posix_environment.h"
#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"
#include "engine/store/scrub.h"
#include "engine/tier/file_store.h"
#include "engine/tier/tier_chunk_source.h"
#include "engine/tier/tier_copier.h"
#include "tests/engine/store/small_store.h"
#include "tests/engine/tier/waiting.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

constexpr unsigned kFiles = 6;
constexpr size_t kFileBytes = 10 * kSmallChunk + 333;

class TierHealingThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"m0", "m1", "m2"}) {
      std::filesystem::create_directories(directory_ / name);
      members_.push_back(directory_ / name);
    }
    std::filesystem::create_directories(directory_ / "copies");
    format_small_array(environment_, members_);
    open();
    for (unsigned file = 0; file < kFiles; ++file) save(file);
    copy();
    close();
    damage();
    open();
  }
  void TearDown() override { close(); }

  static std::string name_of(unsigned file) { return fmt::format("f{}", file); }
  static std::vector<std::byte> content_of(unsigned file) {
    std::vector<std::byte> content(kFileBytes);
    fill(content, file + 1, 0);
    return content;
  }
  void open() {
    store_ = open_small_store(environment_, members_, false);
    ASSERT_NE(store_, nullptr);
    objects_ = FileStore::open(storage_, executor_, directory_ / "copies", [this] { return ++random_; }).value();
    reader_ = TierReader::create(environment_, *objects_);
    store_->set_chunk_source(std::make_shared<TierChunkSource>(reader_, store_->array().id()));
  }
  void close() {
    if (store_ == nullptr) return;
    const Status closed = store_->close();
    EXPECT_TRUE(closed.is_ok()) << closed.message();
    reader_->close();
    objects_->close();
    store_ = nullptr;
    reader_ = nullptr;
    objects_ = nullptr;
  }
  std::shared_ptr<File> open_file(unsigned file, bool for_writing = false) {
    Result<Store::Node> node = store_->lookup(store_->root(), name_of(file));
    EXPECT_TRUE(node.is_ok());
    return store_->open_file(node->handle.get(), for_writing).value();
  }
  void save(unsigned file) {
    Result<Store::Created> created = store_->create(store_->root(), name_of(file), 0644);
    ASSERT_TRUE(created.is_ok());
    if (file % 2 == 1) created->file->set_compression(Compression{Compression::Mode::kZstd, 1});
    ASSERT_TRUE(store_->write_sync(*created->file, FileOffset(0), content_of(file)).is_ok());
    ASSERT_TRUE(store_->commit_sync(*created->file).is_ok());
  }
  void copy() {
    TierCopyOptions options;
    options.memory = 16 * kSmallChunk;
    options.scan_interval = std::chrono::milliseconds(0);
    const std::unique_ptr<TierCopier> copier = TierCopier::create(environment_, *store_, *objects_, options).value();
    copier->open();
    const Status all = wait_for<Status>([&](auto done) { copier->wait_for_all(done); });
    ASSERT_TRUE(all.is_ok()) << all.message();
  }
  // A byte in nearly every chunk, and the objects of one member are gone altogether.
  void damage() {
    for (size_t member = 0; member < members_.size(); ++member)
      for (const auto& entry : std::filesystem::recursive_directory_iterator(members_[member] + "/objects")) {
        if (!entry.is_regular_file()) continue;
        if (member == 0) {
          std::filesystem::remove(entry.path());
          continue;
        }
        std::fstream object(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        for (uint64_t at = 50; at < entry.file_size(); at += kSmallChunk) {
          object.seekg(static_cast<std::streamoff>(at));
          const char byte = static_cast<char>(object.get() ^ 8);
          object.seekp(static_cast<std::streamoff>(at));
          object.put(byte);
        }
      }
  }
  void expect_right(unsigned file) {
    const std::shared_ptr<File> opened = open_file(file);
    const std::vector<std::byte> content = content_of(file);
    std::vector<std::byte> got(kFileBytes);
    ReadCursor cursor;
    const Result<size_t> read = store_->read_sync(*opened, FileOffset(0), got, &cursor);
    ASSERT_TRUE(read.is_ok()) << name_of(file) << ": " << read.status().message();
    EXPECT_TRUE(got == content) << name_of(file);
  }
  void wait_until_healed() {
    for (int i = 0; i < 500; ++i) {
      const StoreStatus status = store_->status();
      if (status.dirty_files == 0 && status.chunks_healed > 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  TemporaryDirectory directory_{quick_place()};
  std::vector<std::string> members_;
  PosixEnvironment environment_;
  PosixStorage storage_;
  ThreadExecutor executor_{4};
  std::atomic<uint64_t> random_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<FileStore> objects_;
  std::shared_ptr<TierReader> reader_;
};

TEST_F(TierHealingThreadsTest, ManyReadersGetRightBytesAndThenTheMembersHaveThem) {
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 8; ++thread)
    threads.emplace_back([this, thread] {
      for (unsigned file = 0; file < kFiles; ++file) expect_right((file + thread) % kFiles);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->status().chunks_without_copy, 0u);
  // What was left out, as another commit of the file was under way, comes with a scrub.
  for (int pass = 0; pass < 3; ++pass) {
    Scrub scrub(*store_);
    ASSERT_TRUE(scrub.start(0).is_ok());
    while (scrub.report().state.phase == ScrubState::Phase::kRunning)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (const CheckError& error : scrub.report().state.damage) EXPECT_NE(error.healing, "lost") << error.path;
    if (scrub.report().state.errors == 0) break;
    EXPECT_LT(pass, 2) << "still damaged";
  }
  close();
  std::filesystem::remove_all(directory_ / "copies");
  std::filesystem::create_directories(directory_ / "copies");
  open();
  for (unsigned file = 0; file < kFiles; ++file) expect_right(file);
  EXPECT_EQ(store_->status().chunks_from_copy, 0u);
}

TEST_F(TierHealingThreadsTest, BesideWritersAndAnEndInTheMiddle) {
  std::atomic<bool> ends = false;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread)
    threads.emplace_back([this, thread, &ends] {
      for (unsigned file = thread; !ends; file = (file + 1) % kFiles) expect_right(file);
    });
  // Writes what is there: readers see no difference, and each commit moves chunks.
  threads.emplace_back([this, &ends] {
    for (unsigned round = 0; !ends; ++round) {
      const unsigned file = round % kFiles;
      const std::shared_ptr<File> opened = open_file(file, true);
      const std::vector<std::byte> content = content_of(file);
      const size_t at = (round * 7919) % (kFileBytes - 5000);
      EXPECT_TRUE(store_->write_sync(*opened, FileOffset(at), std::span(content).subspan(at, 5000)).is_ok());
      EXPECT_TRUE(store_->commit_sync(*opened).is_ok());
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  ends = true;
  for (std::thread& thread : threads) thread.join();
  close();  // at once
  open();
  for (unsigned file = 0; file < kFiles; ++file) expect_right(file);
  EXPECT_EQ(store_->status().chunks_without_copy, 0u);
}

}  // namespace
}  // namespace fpfs::test
