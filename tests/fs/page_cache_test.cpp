#include "fs/nodes/page_cache.h"

#include <fcntl.h>

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/posix_storage.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

class PageCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Handle> root = storage_.open_directory(directory_.path());
    ASSERT_TRUE(root.is_ok()) << root.status().message();
    root_ = *root;
    inodes_ = std::make_unique<InodeTable>(storage_, root_, *storage_.fstat(root_));
    Result<Handle> made = storage_.open_at(root_, "file", O_RDWR | O_CREAT | O_EXCL, 0600);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    Result<Inode*> inode = inodes_->remember({ScopedHandle(storage_, *made), *storage_.fstat(*made)}, {});
    ASSERT_TRUE(inode.is_ok());
    inode_ = *inode;
    cache_ = std::make_unique<PageCache>(
        *inodes_, [this](uint64_t) { ++dropped_; },
        [this](PageCache::Then task) { tasks_.push_back(std::move(task)); });
  }
  void TearDown() override {
    cache_ = nullptr;
    inodes_ = nullptr;
    storage_.close(root_);
  }

  struct OpenOne {
    CacheUse use;
    bool open = false;
  };
  // As operations::open does it.
  OpenOne& open(int mode, bool must_reach_us = false, bool cached_reads = true) {
    opened_.push_back(std::make_unique<OpenOne>());
    OpenOne& handle = *opened_.back();
    handle.use.may_read = mode != O_WRONLY;
    handle.use.may_write = mode != O_RDONLY;
    handle.use.prefers_past = handle.use.may_write ? mode != O_RDWR : !cached_reads;
    if (handle.use.may_write) inode_->writers.fetch_add(1);
    cache_->enter({*inode_, [this] { return commit_; }, handle.use, is_small_, must_reach_us},
                  [&handle] { handle.open = true; });
    return handle;
  }
  void close(OpenOne& handle) {
    EXPECT_TRUE(handle.open);
    cache_->leave(*inode_, handle.use);
    if (handle.use.may_write) inode_->writers.fetch_sub(1);
    handle.open = false;
  }
  void open_and_close(int mode) { close(open(mode)); }
  // What was begun in the background. Returns how often the kernel was told to drop pages.
  int run_tasks() {
    const int before = dropped_;
    while (!tasks_.empty()) {
      const PageCache::Then task = std::move(tasks_.front());
      tasks_.erase(tasks_.begin());
      task();
    }
    return dropped_ - before;
  }

  test::TemporaryDirectory directory_;
  PosixStorage storage_;
  Handle root_ = kNoHandle;
  std::unique_ptr<InodeTable> inodes_;
  Inode* inode_ = nullptr;
  std::unique_ptr<PageCache> cache_;
  std::vector<std::unique_ptr<OpenOne>> opened_;
  std::vector<PageCache::Then> tasks_;
  uint64_t commit_ = 1;
  bool is_small_ = false;
  int dropped_ = 0;
};

TEST_F(PageCacheTest, WhatTheKernelCannotHaveIsNotDropped) {
  open_and_close(O_WRONLY);
  commit_ = 2;
  OpenOne& reader = open(O_RDONLY, /*must_reach_us=*/true);
  EXPECT_TRUE(reader.open);
  EXPECT_TRUE(tasks_.empty());
}

TEST_F(PageCacheTest, PagesOfTheSameCommitStay) {
  open_and_close(O_RDONLY);
  PageCache::note_pages(*inode_);
  EXPECT_TRUE(open(O_RDONLY).open);
  EXPECT_TRUE(tasks_.empty());
}

TEST_F(PageCacheTest, PagesOfOtherContentGoBeforeTheOpenIsAnswered) {
  for (const bool changed : {true, false}) {
    open_and_close(O_RDONLY);
    run_tasks();
    PageCache::note_pages(*inode_);
    if (changed) ++commit_;
    OpenOne& reader = open(O_RDONLY, /*must_reach_us=*/!changed);
    OpenOne& writer = open(O_RDWR);  // a write could be under way, so it waits as well
    EXPECT_FALSE(reader.open || writer.open);
    EXPECT_EQ(run_tasks(), 1);
    EXPECT_TRUE(reader.open && writer.open);
    close(reader);
    close(writer);
  }
}

TEST_F(PageCacheTest, PagesOfASmallFileGoAtOnce) {
  is_small_ = true;
  open_and_close(O_RDONLY);
  PageCache::note_pages(*inode_);
  ++commit_;
  EXPECT_TRUE(open(O_RDONLY).open);
  EXPECT_EQ(dropped_, 1);
  EXPECT_TRUE(tasks_.empty());
}

TEST_F(PageCacheTest, NothingIsDroppedWhileAHandleIsOpen) {
  for (const int mode : {O_RDONLY, O_WRONLY, O_RDWR}) {
    OpenOne& other = open(mode);
    run_tasks();
    PageCache::note_pages(*inode_);
    ++commit_;
    OpenOne& reader = open(O_RDONLY, /*must_reach_us=*/true);
    EXPECT_TRUE(reader.open);
    close(reader);
    close(other);
    EXPECT_EQ(run_tasks(), 0);
    // But the next one that finds nobody there does it.
    OpenOne& later = open(O_RDONLY);
    EXPECT_EQ(run_tasks(), 1);
    close(later);
  }
}

TEST_F(PageCacheTest, UncommittedContentIsNotTrusted) {
  commit_ = 0;  // it failed, say
  open_and_close(O_RDONLY);
  PageCache::note_pages(*inode_);
  commit_ = 1;
  OpenOne& reader = open(O_RDONLY);
  EXPECT_FALSE(reader.open);
  EXPECT_EQ(run_tasks(), 1);
  EXPECT_TRUE(reader.open);
}

TEST_F(PageCacheTest, WritersGoPastTheCacheUnlessOneGoesThroughIt) {
  OpenOne& first = open(O_WRONLY);
  EXPECT_TRUE(first.use.goes_past);
  OpenOne& mapper = open(O_RDWR);
  EXPECT_FALSE(mapper.use.goes_past);
  OpenOne& beside = open(O_WRONLY);
  EXPECT_FALSE(beside.use.goes_past);
  close(mapper);
  EXPECT_FALSE(open(O_WRONLY).use.goes_past);  // `beside` is still there
  for (const auto& handle : opened_)
    if (handle->open) close(*handle);
  EXPECT_TRUE(open(O_WRONLY).use.goes_past);
}

TEST_F(PageCacheTest, NobodyWritesThroughTheCacheBesideAMappableHandlePastIt) {
  OpenOne& reader = open(O_RDONLY, false, /*cached_reads=*/false);
  EXPECT_TRUE(reader.use.goes_past);
  OpenOne& writer = open(O_RDWR);
  EXPECT_TRUE(writer.use.goes_past);
  close(reader);
  EXPECT_TRUE(open(O_RDWR).use.goes_past);
  for (const auto& handle : opened_)
    if (handle->open) close(*handle);
  EXPECT_FALSE(open(O_RDWR).use.goes_past);
  EXPECT_FALSE(open(O_RDONLY, false, /*cached_reads=*/false).use.goes_past);
}

TEST_F(PageCacheTest, DropWaitsForTheLastWriterThroughTheCache) {
  OpenOne& reader = open(O_RDONLY);
  OpenOne& first = open(O_RDWR);
  OpenOne& second = open(O_WRONLY);
  bool dropped = false;
  cache_->drop(*inode_, [&dropped] { dropped = true; });
  EXPECT_TRUE(open(O_RDONLY).open);
  close(first);
  EXPECT_EQ(run_tasks(), 0);
  close(second);
  OpenOne& late = open(O_RDWR);
  EXPECT_FALSE(late.open);
  EXPECT_EQ(run_tasks(), 1);
  EXPECT_TRUE(dropped && late.open && reader.open);
}

TEST_F(PageCacheTest, DropThatIsAskedForWhileOneRunsComesAfterIt) {
  int done = 0;
  cache_->drop(*inode_, [&done] { ++done; });
  cache_->drop(*inode_, [&done] { ++done; });
  EXPECT_EQ(tasks_.size(), 1u);
  EXPECT_EQ(run_tasks(), 2);
  EXPECT_EQ(done, 2);
}

TEST_F(PageCacheTest, DropKeepsTheNodeUntilItIsDone) {
  bool dropped = false;
  cache_->drop(*inode_, [&dropped] { dropped = true; });
  inodes_->forget(inodes_->node(*inode_), 1);
  EXPECT_EQ(inodes_->size(), 1u);
  run_tasks();
  EXPECT_TRUE(dropped);
  EXPECT_EQ(inodes_->size(), 0u);
}

}  // namespace
}  // namespace fpfs
