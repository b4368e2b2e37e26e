// Names of files are durable when the file is said to be (P1), on filesystems where a file's own sync covers what was
// done to its names, as ext4, XFS and btrfs do it, and on one that promises only what POSIX does.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "tests/engine/file/sim_array.h"

namespace fpfs {
namespace {

using test::Bytes;
using test::make_bytes;
using test::SimArray;

// Whether they do; and what is drawn: the order of the journal, and what of it a power cut leaves.
class OwnNamesTest : public testing::TestWithParam<std::tuple<bool, uint64_t>> {
 protected:
  explicit OwnNamesTest(const StoreOptions& options = {}) : array_(std::get<1>(GetParam()), 2, options) {
    EXPECT_TRUE(array_.close().is_ok());
    array_.sim().set_syncs_own_names(covers());
    array_.open();
  }
  static bool covers() { return std::get<0>(GetParam()); }
  void expect_after_a_crash(const std::string& name) {
    array_.crash();
    array_.open();
    Result<std::shared_ptr<File>> file = array_.try_open(name);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    const Result<Bytes> content = array_.read_all(**file);
    ASSERT_TRUE(content.is_ok()) << content.status().message();
    EXPECT_EQ(*content, content_);
    file->reset();
    EXPECT_TRUE(array_.close().is_ok());
  }
  SimArray array_;
  const Bytes content_ = make_bytes(100, 1);
};

// A close promises nothing.
class LazyNamesTest : public OwnNamesTest {
 protected:
  LazyNamesTest() : OwnNamesTest(lazy()) {}
  static StoreOptions lazy() {
    StoreOptions options;
    options.durable = StoreOptions::Durable::kFsync;
    return options;
  }
};

const auto kSeeds = testing::Combine(testing::Bool(), testing::Range<uint64_t>(1, 21));
INSTANTIATE_TEST_SUITE_P(Seeds, OwnNamesTest, kSeeds);
INSTANTIATE_TEST_SUITE_P(Seeds, LazyNamesTest, kSeeds);

TEST_P(OwnNamesTest, OfANewFile) {
  std::shared_ptr<File> file = array_.create("new");
  ASSERT_TRUE(array_.write(*file, 0, content_).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  file.reset();
  expect_after_a_crash("new");
}

TEST_P(OwnNamesTest, OfALink) {
  std::shared_ptr<File> file = array_.create("first");
  ASSERT_TRUE(array_.write(*file, 0, content_).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  {
    const Store::Node node = array_.store().lookup(array_.store().root(), "first").value();
    ASSERT_TRUE(array_.store().link(node.handle.get(), array_.store().root(), "second").is_ok());
  }
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "first").is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  file.reset();
  expect_after_a_crash("second");
}

// An exchange need not touch the files themselves: on XFS it does not, so their own sync says nothing of it.
TEST_P(OwnNamesTest, OfExchangedFiles) {
  for (const bool is_open : {true, false}) {
    const std::string one = is_open ? "one" : "first", other = is_open ? "other" : "second";
    std::shared_ptr<File> file = array_.create(one);
    ASSERT_TRUE(array_.write(*file, 0, content_).is_ok());
    ASSERT_TRUE(array_.commit(*file).is_ok());
    std::shared_ptr<File> second = array_.create(other);
    ASSERT_TRUE(array_.write(*second, 0, make_bytes(50, 2)).is_ok());
    ASSERT_TRUE(array_.commit(*second).is_ok());
    second.reset();
    if (!is_open) {
      const std::weak_ptr<File> closed = file;
      file.reset();
      ASSERT_TRUE(array_.world().run_until([&closed] { return closed.expired(); }));
    }
    ASSERT_TRUE(
        array_.store().rename(array_.store().root(), one, array_.store().root(), other, RENAME_EXCHANGE).is_ok());
    if (!is_open) file = array_.open(other);
    ASSERT_TRUE(array_.commit(*file).is_ok());
    file.reset();
    expect_after_a_crash(other);
    array_.open();
  }
}

TEST_P(LazyNamesTest, OfAFileThatWasClosedWithoutASync) {
  std::shared_ptr<File> file = array_.create("lazy");
  ASSERT_TRUE(array_.write(*file, 0, content_).is_ok());
  SimArray::Answer<ControlRequest> closing;
  closing.request.kind = ControlRequest::Kind::kClose;
  closing.request.lazy = true;
  file->control(closing.request);
  ASSERT_TRUE(array_.wait(closing).is_ok());
  const std::weak_ptr<File> closed = file;
  file.reset();
  ASSERT_TRUE(array_.world().run_until([&closed] { return closed.expired(); }));
  file = array_.open("lazy");
  ASSERT_TRUE(array_.commit(*file).is_ok());
  file.reset();
  expect_after_a_crash("lazy");
}

// Where they do, the directory need not be opened for it; where not, it is, before the name is there.
TEST_P(OwnNamesTest, ANewFileHoldsItsDirectory) {
  const size_t before = array_.sim().open_handles().size();
  std::shared_ptr<File> file = array_.create("held");
  EXPECT_EQ(array_.sim().open_handles().size(), before + (covers() ? 1 : 2));
  file.reset();
}

// A name that may not be durable is kept for who saves to the file again: not when it is removed before that, so that its
// inode is free. (Seen where a handle of the file is kept; else it is one of the directory, as others are.)
TEST(OwnNames, OfANewFileThatFailedAndIsRemovedAreNotKept) {
  SimArray array(1, 2);
  ASSERT_TRUE(array.close().is_ok());
  array.sim().set_syncs_own_names(true);
  array.open();
  const auto remove = [&array] { return array.store().unlink(array.store().root(), "failed"); };
  // More than a sidecar holds: its failure is the file's, not the array's.
  const Bytes content = make_bytes(1'000'000, 1);
  enum class Removed : uint8_t { kBeforeItFails, kWhileOpen, kWhenClosed };
  for (const Removed when : {Removed::kBeforeItFails, Removed::kWhileOpen, Removed::kWhenClosed}) {
    std::shared_ptr<File> file = array.create("failed");
    SimFault fault;
    fault.role = SimRole::kObjects;
    fault.count = SimFault::kForever;
    array.sim().inject(fault);
    ASSERT_TRUE(array.write(*file, 0, content).is_ok());
    if (when == Removed::kBeforeItFails) {
      ASSERT_TRUE(remove().is_ok());
    }
    (void)array.commit(*file);  // of a file without a name nothing is committed
    ASSERT_TRUE(array.world().run_until([&file] { return !file->error().is_ok(); }));
    array.sim().clear_faults();
    if (when == Removed::kWhileOpen) {
      ASSERT_TRUE(remove().is_ok());
    }
    const std::weak_ptr<File> gone = file;
    file.reset();
    ASSERT_TRUE(array.world().run_until([&gone] { return gone.expired(); }));
    if (when == Removed::kWhenClosed) {
      ASSERT_TRUE(remove().is_ok());
    }
    for (const std::string& handle : array.sim().open_handles())
      EXPECT_EQ(handle.find("no name"), std::string::npos) << handle << ", " << static_cast<int>(when);
  }
  EXPECT_TRUE(array.close().is_ok());
}

}  // namespace
}  // namespace fpfs
