// Who needs space waits for what was removed before, and for nothing that is removed meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/io/posix_environment.h"
#include "engine/store/store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using std::chrono_literals::operator""s;
constexpr uint32_t kChunk = 64 * kKiB;

class FreeWaitTest : public ::testing::Test {
 protected:
  FreeWaitTest() : directories_{place_ / "a", place_ / "b"}, environment_(4) {
    FormatOptions format;
    format.chunk_size = kChunk;
    EXPECT_TRUE(Array::format(environment_, directories_, format).is_ok());
    StoreOptions options;
    options.buffer_memory = 64 * kChunk;
    options.array.buffered_members = true;
    auto store = Store::open(environment_, directories_, options);
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
    store_->keep_removed([this](uint64_t inode, std::unique_ptr<Store::Removed> removed) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (inode == kept_inode_) kept_ = std::move(removed);
    });
  }
  ~FreeWaitTest() override {
    kept_ = nullptr;
    EXPECT_TRUE(store_->close().is_ok());
  }

  std::shared_ptr<File> create(const std::string& name) {
    Result<Store::Created> created = store_->create(store_->root(), name, 0600);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    if (!created.is_ok()) return nullptr;
    inode_ = created->node.attributes.st_ino;
    created->node.handle.reset();
    return created->file;
  }
  void make_and_remove(const std::string& name) {
    EXPECT_TRUE(store_->make_node(store_->root(), name, S_IFREG | 0600, 0).is_ok());
    EXPECT_TRUE(store_->unlink(store_->root(), name).is_ok());
  }
  // The kernel keeps this one: somebody has it open.
  void remove_and_keep(const std::string& name) {
    create(name);
    kept_inode_ = inode_;
    EXPECT_TRUE(store_->unlink(store_->root(), name).is_ok());
    EXPECT_NE(kept_, nullptr);
  }

  test::TemporaryDirectory place_{test::quick_place()};
  std::vector<std::string> directories_;
  PosixEnvironment environment_;
  std::unique_ptr<Store> store_;
  uint64_t inode_ = 0;
  std::mutex mutex_;
  uint64_t kept_inode_ = 0;
  std::unique_ptr<Store::Removed> kept_;
};

TEST_F(FreeWaitTest, OthersMayRemoveForEver) {
  remove_and_keep("kept");
  std::atomic<bool> stop{false};
  std::vector<std::thread> removers;
  removers.reserve(3);
  for (int i = 0; i < 3; ++i)
    removers.emplace_back([this, &stop, name = "coming" + std::to_string(i)] {
      while (!stop) make_and_remove(name);
    });
  for (int i = 0; i < 3; ++i) {
    auto freed = std::async(std::launch::async, [this] { store_->finish_frees(); });
    auto space = std::async(std::launch::async, [this] { EXPECT_TRUE(store_->space().is_ok()); });
    EXPECT_EQ(freed.wait_for(20s), std::future_status::ready);
    EXPECT_EQ(space.wait_for(20s), std::future_status::ready);
    if (::testing::Test::HasFailure()) stop = true;
  }
  stop = true;
  for (std::thread& remover : removers) remover.join();
}

TEST_F(FreeWaitTest, WhatWasRemovedBeforeIsFreed) {
  for (int i = 0; i < 20; ++i) {
    std::shared_ptr<File> file = create("file");
    std::vector<std::byte> data(5 * kChunk);
    test::fill(data, 1, 0);
    ASSERT_TRUE(store_->write_sync(*file, FileOffset(0), data).is_ok());
    ASSERT_TRUE(store_->commit_sync(*file).is_ok());
    ASSERT_TRUE(store_->unlink(store_->root(), "file").is_ok());
    // Its last user lets go of it a little later.
    std::thread user([file = std::move(file)]() mutable { file = nullptr; });
    user.join();
    store_->finish_frees();
    EXPECT_EQ(store_->status().pending_frees, 0u);
  }
}

}  // namespace
}  // namespace fpfs
