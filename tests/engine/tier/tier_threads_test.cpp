// Copying with real threads, a real array and a directory as the store: many writers, and an end in the middle.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "engine/codec/hash.h"
#include "engine/io/posix_environment.h"
#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"
#include "engine/tier/file_store.h"
#include "engine/tier/tier_copier.h"
#include "engine/tier/tier_manifest.h"
#include "tests/engine/store/small_store.h"
#include "tests/engine/tier/waiting.h"
#include "tests/support/temporary_directory.h"

namespace fpfs::test {
namespace {

std::vector<std::byte> content_of(uint64_t salt) {
  std::vector<std::byte> content(salt % 3 == 0 ? 900 + salt : 3 * kSmallChunk + salt * 77);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>((i * 31 + salt * 17) >> (i % 7));
  return content;
}

class TierThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    format_small_array(environment_, members());
    open();
  }
  void TearDown() override { close(); }
  std::vector<std::string> members() {
    std::vector<std::string> paths;
    for (const char* const name : {"m0", "m1"}) {
      std::filesystem::create_directories(directory_ / name);
      paths.push_back(directory_ / name);
    }
    return paths;
  }
  void open() {
    store_ = open_small_store(environment_, members(), false);
    ASSERT_NE(store_, nullptr);
    std::filesystem::create_directories(directory_ / "copies");
    objects_ = FileStore::open(storage_, executor_, directory_ / "copies", [this] { return ++random_; }).value();
    TierCopyOptions options;
    options.memory = 16 * kSmallChunk;
    options.part_size = 2 * kSmallChunk;
    options.connections = 4;
    options.scan_interval = std::chrono::milliseconds(0);
    copier_ = TierCopier::create(environment_, *store_, *objects_, options).value();
    store_->on_commit(
        [this](uint64_t inode, uint64_t sequence, bool is_moved) { copier_->committed(inode, sequence, is_moved); });
    store_->on_names([this](const Store::NameEvent& event) { copier_->changed(event); });
    store_->tell_names(true);
    copier_->open();
  }
  void close() {
    objects_->close();
    copier_ = nullptr;
    objects_ = nullptr;
    store_->on_commit(nullptr);
    store_->tell_names(false);
    const Status closed = store_->close();
    EXPECT_TRUE(closed.is_ok()) << closed.message();
    store_ = nullptr;
  }
  Status save(const std::string& name, uint64_t salt) {
    Result<Store::Node> node = store_->lookup(store_->root(), name);
    std::shared_ptr<File> file;
    if (node.is_ok()) {
      FPFS_ASSIGN_OR_RETURN(file, store_->open_file(node->handle.get(), true));
      FPFS_RETURN_IF_ERROR(store_->truncate_sync(*file, 0));
    } else {
      FPFS_ASSIGN_OR_RETURN(Store::Created created, store_->create(store_->root(), name, 0644));
      file = created.file;
    }
    FPFS_RETURN_IF_ERROR(store_->write_sync(*file, FileOffset(0), content_of(salt)));
    return store_->commit_sync(*file);
  }
  // Of the store, but for what it keeps for itself.
  std::set<std::string> keys() {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / "copies"))
      if (entry.is_regular_file())
        found.insert(std::filesystem::relative(entry.path(), directory_ / "copies").string());
    return found;
  }
  std::vector<std::byte> stored(const std::string& key) {
    std::ifstream file(directory_ / ("copies/" + key), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  void expect_copy(const std::string& path, uint64_t salt) {
    const std::vector<std::byte> content = stored(path);
    EXPECT_TRUE(content == content_of(salt)) << path;
    const Result<TierManifest> manifest = decode_manifest(stored(manifest_key(path)));
    ASSERT_TRUE(manifest.is_ok()) << path << ": " << manifest.status().message();
    ASSERT_EQ(manifest->size, content.size());
    for (size_t i = 0; i < manifest->checksums.size(); ++i) {
      const size_t begin = i * kSmallChunk;
      const auto chunk = std::span(content).subspan(begin, std::min<size_t>(kSmallChunk, content.size() - begin));
      EXPECT_EQ(hash_bytes(chunk), manifest->checksums[i]) << path << " " << i;
    }
  }

  TemporaryDirectory directory_{quick_place()};
  PosixEnvironment environment_;
  PosixStorage storage_;
  ThreadExecutor executor_{4};
  std::atomic<uint64_t> random_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<FileStore> objects_;
  std::unique_ptr<TierCopier> copier_;
};

TEST_F(TierThreadsTest, ManyWritersAreCopied) {
  constexpr unsigned kThreads = 4, kFiles = 5, kRounds = 3;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([this, thread] {
      for (unsigned round = 0; round < kRounds; ++round)
        for (unsigned file = 0; file < kFiles; ++file) {
          const std::string name = fmt::format("f{}-{}", thread, file);
          const Status saved = save(name, round * 100 + thread * 10 + file);
          EXPECT_TRUE(saved.is_ok()) << saved.message();
          EXPECT_LE(copier_->status().files_copying, 4U);
        }
    });
  for (std::thread& thread : threads) thread.join();
  const Status one = wait_for<Status>([this](auto done) { copier_->wait_for("f0-0", done); });
  EXPECT_TRUE(one.is_ok()) << one.message();
  expect_copy("f0-0", 200);
  const Status all = wait_for<Status>([this](auto done) { copier_->wait_for_all(done); });
  EXPECT_TRUE(all.is_ok()) << all.message();
  for (unsigned thread = 0; thread < kThreads; ++thread)
    for (unsigned file = 0; file < kFiles; ++file)
      expect_copy(fmt::format("f{}-{}", thread, file), (kRounds - 1) * 100 + thread * 10 + file);
  EXPECT_EQ(copier_->status().errors, 0U) << copier_->status().last_error;
}

TEST_F(TierThreadsTest, EndsInTheMiddleAndGoesOn) {
  for (unsigned round = 0; round < 4; ++round) {
    for (unsigned file = 0; file < 12; ++file) ASSERT_TRUE(save(fmt::format("f{}", file), round * 100 + file).is_ok());
    close();
    open();
  }
  const Status all = wait_for<Status>([this](auto done) { copier_->wait_for_all(done); });
  EXPECT_TRUE(all.is_ok()) << all.message();
  for (unsigned file = 0; file < 12; ++file) expect_copy(fmt::format("f{}", file), 300 + file);
}

TEST_F(TierThreadsTest, NamesAreFollowedWhileManyChange) {
  constexpr unsigned kThreads = 4, kRounds = 12;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([this, thread] {
      const auto name = [thread](const char* what) { return fmt::format("{}{}", what, thread); };
      const Handle root = store_->root();
      for (unsigned round = 0; round < kRounds; ++round) {
        EXPECT_TRUE(save(name("new"), round * 10 + thread).is_ok());
        EXPECT_TRUE(store_->rename(root, name("new"), root, name("f"), 0).is_ok());
        // A directory, and then a file, at one path: this store cannot have both.
        EXPECT_TRUE(store_->make_directory(root, name("x"), 0755).is_ok());
        EXPECT_TRUE(store_->rename(root, name("x"), root, name("y"), 0).is_ok());
        EXPECT_TRUE(store_->remove_directory(root, name("y")).is_ok());
        EXPECT_TRUE(store_->symlink("f", root, name("y")).is_ok());
        const Result<Store::Node> node = store_->lookup(root, name("f"));
        EXPECT_TRUE(node.is_ok() && store_->chmod(node->handle.get(), 0600 + round % 8).is_ok());
        EXPECT_TRUE(store_->unlink(root, name("y")).is_ok());
      }
    });
  for (std::thread& thread : threads) thread.join();
  const Status all = wait_for<Status>([this](auto done) { copier_->wait_for_all(done); });
  EXPECT_TRUE(all.is_ok()) << all.message();
  std::set<std::string> expected;
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    const std::string path = fmt::format("f{}", thread);
    expect_copy(path, (kRounds - 1) * 10 + thread);
    expected.insert({path, manifest_key(path)});
    const Result<TierManifest> manifest = decode_manifest(stored(manifest_key(path)));
    EXPECT_EQ(manifest->mode & 07777U, 0600 + (kRounds - 1) % 8);
  }
  EXPECT_EQ(keys(), expected);
}

}  // namespace
}  // namespace fpfs::test
