#include "fs/nodes/inode_table.h"

#include <fcntl.h>

#include <cerrno>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/posix_storage.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

class InodeTableTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Handle> opened = storage_.open_directory(directory_.path());
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    root_ = *opened;
    table_ = std::make_unique<InodeTable>(storage_, root_, attributes(root_));
  }
  void TearDown() override {
    table_ = nullptr;
    storage_.close(root_);
  }

  struct stat attributes(Handle handle) {
    Result<struct stat> found = storage_.fstat(handle);
    EXPECT_TRUE(found.is_ok());
    return found.is_ok() ? *found : (struct stat){};
  }
  Store::Node node(Handle handle) { return {ScopedHandle(storage_, handle), attributes(handle)}; }
  void make(const std::string& name) {
    Result<Handle> made = storage_.open_at(root_, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    storage_.close(*made);
  }
  Inode& look_up(const std::string& name) {
    Result<Handle> handle = storage_.open_at(root_, name, O_PATH, 0);
    EXPECT_TRUE(handle.is_ok()) << handle.status().message();
    Result<Inode*> inode = table_->remember(node(*handle), {});
    EXPECT_TRUE(inode.is_ok());
    return **inode;
  }
  static bool is_open(Handle handle) { return ::fcntl(handle, F_GETFD) >= 0; }

  test::TemporaryDirectory directory_;
  PosixStorage storage_;
  Handle root_ = kNoHandle;
  std::unique_ptr<InodeTable> table_;
};

TEST_F(InodeTableTest, RootIsNodeOneAndIsNeverForgotten) {
  Inode& root = table_->get(InodeTable::kRootNode);
  EXPECT_EQ(root.handle, root_);
  EXPECT_EQ(table_->node(root), InodeTable::kRootNode);
  EXPECT_TRUE(table_->is_root(root));
  table_->forget(InodeTable::kRootNode, 1000);
  EXPECT_EQ(table_->get(InodeTable::kRootNode).handle, root_);
}

TEST_F(InodeTableTest, ANodeIsFoundByItsAttributesAndStaysWhileItIsHeld) {
  make("a");
  const struct stat entry = storage_.stat_at(root_, "a").value();
  EXPECT_EQ(table_->find_and_hold(entry), nullptr);  // nobody has looked it up
  Inode& inode = look_up("a");
  EXPECT_EQ(table_->find_and_hold(entry), &inode);
  struct stat elsewhere = entry;
  ++elsewhere.st_dev;
  EXPECT_EQ(table_->find_and_hold(elsewhere), nullptr);
  const Handle handle = inode.handle;
  table_->forget(table_->node(inode), 1);
  EXPECT_TRUE(is_open(handle));
  table_->forget(table_->node(inode), 1);
  EXPECT_FALSE(is_open(handle));
  EXPECT_EQ(table_->find_and_hold(entry), nullptr);
}

TEST_F(InodeTableTest, ListingsAreOutdatedWhenAttributesAreNotKnownAnyMore) {
  make("a");
  Inode& inode = look_up("a");
  const uint64_t before = table_->listings_outdated();
  inode.set_attributes_known(true);
  inode.set_attributes_known(true);
  EXPECT_EQ(table_->listings_outdated(), before);
  inode.set_attributes_known(false);
  EXPECT_EQ(table_->listings_outdated(), before + 1);
  inode.set_attributes_known(false);
  EXPECT_EQ(table_->listings_outdated(), before + 1);
  inode.set_attributes_known(true);
  table_->forget(table_->node(inode), 1);  // with the node go its attributes
  EXPECT_EQ(table_->listings_outdated(), before + 2);
}

TEST_F(InodeTableTest, ANodeIsCountedOnceUntilItIsForgotten) {
  HandleShares shares(30);
  make("a");
  Inode* inode = nullptr;
  for (unsigned i = 0; i < 3; ++i) {
    const Handle handle = storage_.open_at(root_, "a", O_PATH, 0).value();
    inode = table_->remember(node(handle), shares.lease(1, 1)).value();
    EXPECT_EQ(shares.free(), 29U);
  }
  table_->remember(*inode);
  table_->forget(table_->node(*inode), 3);
  EXPECT_EQ(shares.free(), 29U) << "a name was linked to it";
  table_->forget(table_->node(*inode), 1);
  EXPECT_EQ(shares.free(), 30U);
}

TEST_F(InodeTableTest, NodeNumberLeadsBack) {
  make("a");
  make("b");
  Inode& a = look_up("a");
  Inode& b = look_up("b");
  EXPECT_NE(&a, &b);
  EXPECT_EQ(&table_->get(table_->node(a)), &a);
  EXPECT_EQ(&table_->get(table_->node(b)), &b);
  EXPECT_NE(a.generation, b.generation);
  EXPECT_FALSE(table_->is_root(a));
  EXPECT_EQ(table_->size(), 2U);
}

TEST_F(InodeTableTest, HardLinksShareOneInodeAndOneHandle) {
  make("a");
  Inode& a = look_up("a");
  ASSERT_TRUE(storage_.link(a.handle, root_, "second").is_ok());
  const Handle kept = a.handle;
  Inode& second = look_up("second");
  EXPECT_EQ(&second, &a);
  EXPECT_EQ(second.handle, kept);
  EXPECT_EQ(table_->size(), 1U);
  table_->forget(table_->node(a), 1);
  EXPECT_TRUE(is_open(kept));
  table_->forget(table_->node(a), 1);
  EXPECT_FALSE(is_open(kept));
  EXPECT_EQ(table_->size(), 0U);
}

TEST_F(InodeTableTest, ForgetsCountLookups) {
  make("a");
  Inode& a = look_up("a");
  for (int i = 0; i < 4; ++i) look_up("a");
  table_->forget(table_->node(a), 4);
  EXPECT_EQ(table_->size(), 1U);
  table_->forget(table_->node(a), 1);
  EXPECT_EQ(table_->size(), 0U);
}

TEST_F(InodeTableTest, AnUnlinkedFileKeepsItsNumberUntilForgotten) {
  make("a");
  Inode& a = look_up("a");
  const uint64_t number = a.number;
  ASSERT_TRUE(storage_.unlink(root_, "a").is_ok());
  // Filesystems hand out the lowest free number first; none of these may be that of the file still known.
  for (int i = 0; i < 50; ++i) {
    make("new" + std::to_string(i));
    Inode& other = look_up("new" + std::to_string(i));
    EXPECT_NE(other.number, number);
    EXPECT_NE(&other, &a);
  }
}

TEST_F(InodeTableTest, AReusedNumberIsANewGeneration) {
  make("a");
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (int i = 0; i < 20; ++i) {
    Inode& inode = look_up("a");
    EXPECT_TRUE(seen.emplace(table_->node(inode), inode.generation).second);
    table_->forget(table_->node(inode), 1);
    ASSERT_TRUE(storage_.unlink(root_, "a").is_ok());
    make("a");
  }
}

TEST_F(InodeTableTest, AnotherDeviceIsRefusedAndItsHandleClosed) {
  make("a");
  Result<Handle> handle = storage_.open_at(root_, "a", O_PATH, 0);
  ASSERT_TRUE(handle.is_ok());
  struct stat foreign = attributes(*handle);
  foreign.st_dev += 1;
  Result<Inode*> inode = table_->remember({ScopedHandle(storage_, *handle), foreign}, {});
  ASSERT_FALSE(inode.is_ok());
  EXPECT_EQ(inode.status().errno_value(), EXDEV);
  EXPECT_FALSE(is_open(*handle));
  EXPECT_EQ(table_->size(), 0U);
}

TEST_F(InodeTableTest, DestructionClosesWhatWasNeverForgotten) {
  make("a");
  const Handle handle = look_up("a").handle;
  EXPECT_TRUE(is_open(handle));
  table_ = nullptr;
  EXPECT_FALSE(is_open(handle));
}

TEST_F(InodeTableTest, ThreadsLookUpAndForgetTheSameNames) {
  constexpr int kNames = 4, kThreads = 4, kRounds = 2000;
  for (int i = 0; i < kNames; ++i) make("n" + std::to_string(i));
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([this, t] {
      for (int round = 0; round < kRounds; ++round) {
        Inode& inode = look_up("n" + std::to_string((round + t) % kNames));
        // The lookup just counted keeps it: the handle must be open and lead to this very file.
        EXPECT_EQ(attributes(inode.handle).st_ino, inode.number);
        table_->forget(table_->node(inode), 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table_->size(), 0U);
}

TEST_F(InodeTableTest, PicksEachUnusedNodeInTurn) {
  std::set<uint64_t> unused;
  for (int i = 0; i < 100; ++i) {
    make(std::to_string(i));
    Inode& inode = look_up(std::to_string(i));
    if (i % 10 == 0)
      inode.opens.store(1);
    else
      unused.insert(table_->node(inode));
  }
  std::set<uint64_t> seen;
  for (int i = 0; i < 30; ++i)
    for (const uint64_t node : table_->pick_unused(30)) seen.insert(node);
  EXPECT_EQ(seen, unused);
  EXPECT_LE(table_->pick_unused(7).size(), 7U);
}

TEST_F(InodeTableTest, PicksNamesWithTheirDirectories) {
  ASSERT_TRUE(storage_.make_directory(root_, "dir", 0700).is_ok());
  Inode& directory = look_up("dir");
  make("a");
  make("gone");
  look_up("a");
  look_up("gone");
  ASSERT_TRUE(storage_.unlink(root_, "gone").is_ok());
  ASSERT_TRUE(storage_.rename(root_, "a", root_, "renamed", 0).is_ok());
  Result<Handle> made = storage_.open_at(directory.handle, "below", O_RDWR | O_CREAT, 0600);
  ASSERT_TRUE(made.is_ok());
  storage_.close(*made);
  Result<Handle> below = storage_.open_at(directory.handle, "below", O_PATH, 0);
  ASSERT_TRUE(below.is_ok() && table_->remember(node(*below), {}).is_ok());
  std::set<std::pair<uint64_t, std::string>> seen;
  for (const InodeTable::Entry& entry : table_->pick_unused_entries(100)) seen.insert({entry.directory, entry.name});
  const std::set<std::pair<uint64_t, std::string>> expected = {{InodeTable::kRootNode, "renamed"},
                                                               {table_->node(directory), "below"}};
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace fpfs
