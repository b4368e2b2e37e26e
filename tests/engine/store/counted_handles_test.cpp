// What an open file makes the process hold, and whom that is counted to (Store::shares()): on filesystems where a file's
// own sync covers its names, as on XFS, and on one that promises only what POSIX does.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "tests/engine/file/sim_array.h"

namespace fpfs {
namespace {

using test::Bytes;
using test::kTestChunk;
using test::make_bytes;
using test::SimArray;

constexpr uid_t kUser = 1000;

class CountedHandlesTest : public testing::TestWithParam<std::tuple<bool, uint64_t>> {
 protected:
  CountedHandlesTest() : array_(std::get<1>(GetParam()), 2, few()) {
    EXPECT_TRUE(array_.close().is_ok());
    array_.sim().set_syncs_own_names(covers());
    array_.open();
    at_rest_ = handles();
    all_ = shares().free();
  }
  static StoreOptions few() {
    StoreOptions options;
    options.shared_handles = 30;
    options.inline_max = 0;
    options.spare_least = UINT64_MAX;
    return options;
  }
  static bool covers() { return std::get<0>(GetParam()); }
  Store& store() { return array_.store(); }
  HandleShares& shares() { return store().shares(); }
  size_t counted() { return all_ - shares().free(); }
  // Those of the tree: objects' come and go by their own rules.
  size_t handles() {
    const std::vector<std::string> open = array_.sim().open_handles();
    return static_cast<size_t>(std::count_if(open.begin(), open.end(), [](const std::string& handle) {
      return handle.find("objects") == std::string::npos;
    }));
  }
  size_t held() { return handles() - at_rest_; }
  Store::Created create(const std::string& name) {
    return store().create(store().root(), name, 0644, shares().lease(kUser, store().handles_of_file())).value();
  }
  // As the table of nodes does.
  void keep_in(std::unique_ptr<Store::Removed>& kept, HandleShares::Lease& of_node) {
    store().keep_removed([&](uint64_t, std::unique_ptr<Store::Removed> removed) {
      removed->count_in(of_node.split(0));
      kept = std::move(removed);
    });
  }
  SimArray array_;
  size_t at_rest_ = 0;
  size_t all_ = 0;
};

const auto kSeeds = testing::Combine(testing::Bool(), testing::Range<uint64_t>(1, 21));
INSTANTIATE_TEST_SUITE_P(Seeds, CountedHandlesTest, kSeeds);

TEST_P(CountedHandlesTest, AFileThatIsMadeSharesItsHandleWithItsNode) {
  Store::Created created = create("a");
  const size_t expected = covers() ? 1 : 2;  // the directory's, too, where that is to be synced
  EXPECT_EQ(store().handles_of_file(), expected);
  EXPECT_EQ(held(), expected);
  EXPECT_EQ(counted(), expected);
  ASSERT_TRUE(array_.control(*created.file, ControlRequest::Kind::kClose).is_ok());
  created.file.reset();
  ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
  EXPECT_EQ(held(), 1U) << "the node's";
  EXPECT_EQ(counted(), 1U);
  EXPECT_TRUE(store().attributes(created.node.handle.get()).is_ok());
  created.node.handle.reset();
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(counted(), 0U);
}

TEST_P(CountedHandlesTest, AFileThatOutlivesItsNodeKeepsWhatItIsCountedAs) {
  Store::Created created = create("a");
  created.node.handle.reset();
  EXPECT_EQ(held(), store().handles_of_file());
  EXPECT_EQ(counted(), store().handles_of_file());
  ASSERT_TRUE(array_.write(*created.file, 0, make_bytes(100, 1)).is_ok());
  ASSERT_TRUE(array_.control(*created.file, ControlRequest::Kind::kClose).is_ok());
  created.file.reset();
  ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(counted(), 0U);
}

TEST_P(CountedHandlesTest, WithoutANameItIsTheSame) {
  Store::Created created = store().create_unnamed(store().root(), 0600, shares().lease(kUser, 1)).value();
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(counted(), 1U);
  created.unnamed.reset();
  created.file.reset();
  created.node.handle.reset();
  ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(counted(), 0U);
}

// Renaming it costs a handle only where the new directory has to be synced, however often it is done.
TEST_P(CountedHandlesTest, OneThatIsRenamedWhileOpenHoldsNoMore) {
  Store::Created created = create("a");
  const Bytes content = make_bytes(2 * kTestChunk, 1);
  ASSERT_TRUE(array_.write(*created.file, 0, content).is_ok());
  ASSERT_TRUE(array_.commit(*created.file).is_ok());
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "c")})
    ASSERT_TRUE(store().rename(store().root(), from, store().root(), to, 0).is_ok());
  EXPECT_EQ(held(), store().handles_of_file());
  EXPECT_EQ(counted(), store().handles_of_file());
  // The name that it has then is durable with its next commit, which has nothing else to do.
  ASSERT_TRUE(array_.commit(*created.file).is_ok());
  created.node.handle.reset();
  created.file.reset();
  array_.crash();
  array_.open();
  const Result<std::shared_ptr<File>> file = array_.try_open("c");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(*array_.read_all(**file), content);
}

// A handle of the directory waits with a file that was removed while it was open. It is counted; and who may have no
// more of them costs a sync of all names instead, before anything of the file is freed.
TEST_P(CountedHandlesTest, ARemovedFileCountsTheHandleOfItsDirectoryOrHasNone) {
  const Bytes content = make_bytes(3 * kTestChunk, 1);
  for (const bool may_have_more : {true, false}) {
    SCOPED_TRACE(may_have_more);
    {
      const std::shared_ptr<File> made = array_.create("a");
      ASSERT_TRUE(array_.write(*made, 0, content).is_ok());
      ASSERT_TRUE(array_.control(*made, ControlRequest::Kind::kClose).is_ok());
    }
    ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
    std::shared_ptr<File> file = array_.open("a");
    file->hold(shares().lease(kUser, 1), shares().lease_some(kUser, 1).split(0));
    HandleShares::Lease others;
    if (!may_have_more) others = shares().lease_some(kUser, all_);
    ASSERT_TRUE(store().unlink(store().root(), "a").is_ok());
    EXPECT_EQ(held(), may_have_more ? 2U : 1U);
    EXPECT_EQ(counted(), others.count() + held());
    EXPECT_EQ(*array_.read_all(*file), content) << "whoever has it open goes on reading it";
    others = {};
    file.reset();
    ASSERT_TRUE(array_.world().run_until(
        [this] { return store().status().open_files == 0 && store().status().pending_frees == 0; }));
    EXPECT_EQ(held(), 0U);
    EXPECT_EQ(counted(), 0U);
    // What it had is gone, and a power cut does not bring its name back.
    array_.crash();
    array_.open();
    EXPECT_EQ(array_.try_open("a").status().errno_value(), ENOENT);
    all_ = shares().free();
    at_rest_ = handles();
  }
}

// The same of one that nobody has open, and that somebody could still open (Store::Keeper).
TEST_P(CountedHandlesTest, ARemovedFileThatIsKeptCountsTheHandleOfItsDirectoryOrHasNone) {
  for (const bool may_have_more : {true, false}) {
    SCOPED_TRACE(may_have_more);
    HandleShares::Lease of_node = shares().lease(kUser, 1), others;
    std::unique_ptr<Store::Removed> kept;
    keep_in(kept, of_node);
    {
      const std::shared_ptr<File> made = array_.create("a");
      ASSERT_TRUE(array_.write(*made, 0, make_bytes(3 * kTestChunk, 1)).is_ok());
      ASSERT_TRUE(array_.control(*made, ControlRequest::Kind::kClose).is_ok());
    }
    ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
    if (!may_have_more) others = shares().lease_some(kUser, all_);
    ASSERT_TRUE(store().unlink(store().root(), "a").is_ok());
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(held(), may_have_more ? 1U : 0U);
    EXPECT_EQ(counted(), 1 + others.count() + held());
    others = {};
    kept.reset();
    ASSERT_TRUE(array_.world().run_until([this] { return store().status().pending_frees == 0; }));
    EXPECT_EQ(held(), 0U);
    EXPECT_EQ(counted(), 1U);
    of_node = {};
    array_.crash();
    array_.open();
    EXPECT_EQ(array_.try_open("a").status().errno_value(), ENOENT);
    at_rest_ = handles();
    all_ = shares().free();
  }
}

// And of one that the process itself has open when it is removed, as a copier has: from then on it is open for the user.
TEST_P(CountedHandlesTest, ARemovedFileThatIsKeptOpenIsCounted) {
  {
    HandleShares::Lease of_node = shares().lease(kUser, 1);
    std::unique_ptr<Store::Removed> kept;
    keep_in(kept, of_node);
    std::shared_ptr<File> file = array_.create("a");
    ASSERT_TRUE(array_.write(*file, 0, make_bytes(3 * kTestChunk, 1)).is_ok());
    ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
    EXPECT_EQ(counted(), 1U);
    ASSERT_TRUE(store().unlink(store().root(), "a").is_ok());
    file.reset();
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(held(), 2U) << "its index, and the directory";
    EXPECT_EQ(counted(), 1U + 2U);
    kept.reset();
    ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
    EXPECT_EQ(counted(), 1U);
  }
  EXPECT_EQ(counted(), 0U);
}

// Somebody opens one that was made by mknod(2), and has leased for itself only, before it is done with.
TEST_P(CountedHandlesTest, WhoOpensAFileCountsWhatItsMakerDidNot) {
  Store::Created created = store().create(store().root(), "a", 0644, shares().lease(kUser, 1)).value();
  EXPECT_EQ(counted(), 1U);
  HandleShares::Lease opener = shares().lease(kUser, store().handles_of_file()), sidecar = opener.split(1);
  created.file->hold(std::move(sidecar), std::move(opener));
  EXPECT_EQ(counted(), store().handles_of_file());
  EXPECT_EQ(held(), store().handles_of_file());
  created.node.handle.reset();
  created.file.reset();
  EXPECT_EQ(counted(), 0U);
}

// The name of a file whose commit failed is not known to be durable, and the next commit sees to it: by the handle that
// the file has anyway, where that does it.
TEST_P(CountedHandlesTest, OneThatIsOpenedAgainHoldsNoMore) {
  std::shared_ptr<File> file = array_.create("a");
  SimFault fault;
  fault.role = SimRole::kObjects;
  fault.count = SimFault::kForever;
  array_.sim().inject(fault);
  ASSERT_TRUE(array_.write(*file, 0, make_bytes(3 * kTestChunk, 1)).is_ok());
  EXPECT_FALSE(array_.commit(*file).is_ok());
  array_.sim().clear_faults();
  file.reset();
  ASSERT_TRUE(array_.world().run_until([this] { return store().status().open_files == 0; }));
  const size_t before = handles();
  file = array_.open("a");
  EXPECT_EQ(handles() - before, store().handles_of_file());
}

}  // namespace
}  // namespace fpfs
