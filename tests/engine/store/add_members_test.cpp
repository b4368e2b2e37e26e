// Members are added to an array that is in use: files go on, new ones use them, and a crash at any moment leaves the old
// members or the new ones.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/file/sim_array.h"
#include "tests/engine/store/expect_clean.h"

namespace fpfs::test {
namespace {

const std::vector<std::string> kOld = {"/m0", "/m1"}, kNew = {"/m0", "/m1", "/m2"};

StoreOptions options() {
  StoreOptions options;
  options.inline_max = 0;
  return options;
}

// Chunks of a file on each member.
std::vector<unsigned> chunks_by_member(const File& file) {
  std::vector<unsigned> counts(3);
  for (const File::MappedExtent& mapped : file.map(ChunkIndex(0), 1000))
    if (mapped.extent.is_here()) ++counts[mapped.extent.member.value()];
  return counts;
}

Status save(SimArray& array, const std::string& name, size_t length, uint64_t salt) {
  const std::shared_ptr<File> file = array.create(name);
  FPFS_RETURN_IF_ERROR(array.write(*file, 0, make_bytes(length, salt)));
  return array.control(*file, ControlRequest::Kind::kClose);
}

TEST(AddMembersTest, FilesThatAreOpenGoOnAndNewOnesUseTheNewMembers) {
  SimArray array(1, 2, options(), kTestChunk, 1);
  constexpr size_t kLength = 9 * kTestChunk;
  ASSERT_TRUE(save(array, "before", kLength, 1).is_ok());
  std::shared_ptr<File> during = array.create("during");
  ASSERT_TRUE(array.write(*during, 0, make_bytes(4 * kTestChunk, 2)).is_ok());

  const Status added = array.store().add_members({"/m2"});
  ASSERT_TRUE(added.is_ok()) << added.message();
  EXPECT_EQ(array.store().array().member_count(), 3);
  EXPECT_EQ(array.store().status().members.size(), 3u);
  ASSERT_TRUE(array.write(*during, 4 * kTestChunk, make_bytes(4 * kTestChunk, 3)).is_ok());
  ASSERT_TRUE(array.control(*during, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(chunks_by_member(*during), (std::vector<unsigned>{4, 4, 0}));
  during.reset();
  ASSERT_TRUE(save(array, "after", kLength, 4).is_ok());
  EXPECT_EQ(chunks_by_member(*array.open("after")), (std::vector<unsigned>{3, 3, 3}));
  ASSERT_TRUE(array.close().is_ok());

  // The old list of directories is not enough any more, and what is missing is said.
  const Status refused = array.try_open_array();
  EXPECT_EQ(refused.code(), StatusCode::kNotFound) << refused.message();
  EXPECT_NE(refused.message().find("has 3 members"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("missing 2"), std::string::npos) << refused.message();

  array.set_paths({"/m2", "/m0", "/m1"});
  expect_clean(array);
  array.open();
  EXPECT_EQ(*array.read_all(*array.open("before")), make_bytes(kLength, 1));
  EXPECT_EQ(*array.read_all(*array.open("after")), make_bytes(kLength, 4));
  // A file of before is replaced over all members, and one that grows uses them for what is new.
  std::shared_ptr<File> grown = array.open("before");
  ASSERT_TRUE(array.write(*grown, kLength, make_bytes(9 * kTestChunk, 5)).is_ok());
  ASSERT_TRUE(array.control(*grown, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(chunks_by_member(*grown)[2], 3u);
  grown.reset();
  ASSERT_TRUE(array.close().is_ok());
  expect_clean(array);
}

TEST(AddMembersTest, WhatCannotBeAMemberIsRefusedAndNothingIsChanged) {
  SimArray array(1, 2, options(), kTestChunk, 2);
  for (const std::string path : {"/m0", "/m1/objects", "/nowhere/at/all"}) {
    const Status refused = array.store().add_members({path});
    EXPECT_FALSE(refused.is_ok()) << path;
    EXPECT_NE(refused.message().find(path), std::string::npos) << refused.message();
  }
  EXPECT_FALSE(array.store().add_members({"/m2", "/m2"}).is_ok());
  array.sim().set_direct_io(4, false);  // "/m3"
  const Status refused = array.store().add_members({"/m2", "/m3"});
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported) << refused.message();
  EXPECT_EQ(array.store().array().member_count(), 2);
  // What the attempt left is no obstacle, for this array or another one.
  const Status added = array.store().add_members({"/m2"});
  EXPECT_TRUE(added.is_ok()) << added.message();
  ASSERT_TRUE(save(array, "file", 9 * kTestChunk, 1).is_ok());
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths(kNew);
  expect_clean(array);
}

TEST(AddMembersTest, AFailureAtTheMomentOfTheChangeMakesTheArrayReadOnly) {
  SimArray array(1, 2, options(), kTestChunk, 1);
  // Of the directory with the names, which is synced behind the renaming of its superblock.
  array.sim().inject({.call = SimFault::Call::kSyncDirectory, .filesystem = 1, .role = {}});
  EXPECT_EQ(array.store().add_members({"/m2"}).code(), StatusCode::kReadOnly);
  EXPECT_EQ(array.sim().fault_hits(), 1u);
  array.sim().clear_faults();
  EXPECT_EQ(array.store().add_members({"/m2"}).code(), StatusCode::kReadOnly) << "not tried again";
  EXPECT_TRUE(array.store().read_only());
}

// Cuts the power at moments of an addition, mostly at its end, where it is decided; then goes on from there.
TEST(AddMembersTest, ACrashLeavesTheOldMembersOrTheNewOnes) {
  constexpr size_t kLength = 7 * kTestChunk;
  uint64_t length = 0;
  unsigned old_count = 0, new_count = 0, unfinished_count = 0;
  const auto run = [&](uint64_t seed, uint64_t cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut) + " of " + std::to_string(length));
    SimArray array(seed, 2, options(), kTestChunk, 1);
    ASSERT_TRUE(save(array, "kept", kLength, 1).is_ok());
    const uint64_t begin = array.world().boundaries();
    if (cut > 0) array.world().cut_at(begin + cut);
    const Status added = array.store().add_members({"/m2"});
    if (cut == 0) length = array.world().boundaries() - begin;
    const bool is_saved = added.is_ok() && !array.world().is_off() && save(array, "later", kLength, 2).is_ok();
    array.world().cut_at(0);
    array.crash();

    // Whatever list somebody gives: old members or new ones, and the old list only when the new one is not needed.
    const Status with_old = array.try_open_array();
    const bool has_old = with_old.is_ok();
    EXPECT_FALSE(has_old && added.is_ok()) << "what was added is durable";
    if (has_old) {
      ++old_count;
      EXPECT_EQ(array.store().array().member_count(), 2);
      array.kill();
      array.set_paths(kNew);
      if (array.try_open_array(true).is_ok()) {
        ++unfinished_count;
        EXPECT_EQ(array.store().array().member_count(), 2) << "it is left out";
        array.kill();
      }
      array.set_paths(kOld);
      array.open();
      const Status again = array.store().add_members({"/m2"});
      ASSERT_TRUE(again.is_ok()) << again.message();
    } else {
      ++new_count;
      array.set_paths(kNew);
      array.open();
    }
    EXPECT_EQ(array.store().array().member_count(), 3);
    EXPECT_EQ(*array.read_all(*array.open("kept")), make_bytes(kLength, 1));
    if (is_saved) {
      EXPECT_EQ(*array.read_all(*array.open("later")), make_bytes(kLength, 2));
    }
    ASSERT_TRUE(save(array, "last", kLength, 3).is_ok());
    ASSERT_TRUE(array.close().is_ok());
    array.set_paths(kNew);
    expect_clean(array);
    array.open();
    EXPECT_EQ(*array.read_all(*array.open("last")), make_bytes(kLength, 3));
  };
  run(1, 0);
  ASSERT_GT(length, 60u);
  for (uint64_t back = 0; back < 40 && !HasFailure(); ++back) run(back + 2, length - back);
  for (uint64_t cut = 1; cut < length && !HasFailure(); cut += length / 20) run(cut, cut);
  EXPECT_GT(old_count, 0u);
  EXPECT_GT(new_count, 3u);
  EXPECT_GT(unfinished_count, 0u);
}

// A second attempt took another directory: the first one's says that it is the same member, and is none.
TEST(AddMembersTest, ADirectoryOfAnAttemptThatFailedIsNoMember) {
  SimArray array(1, 2, options(), kTestChunk, 2);
  const uint64_t begin = array.world().boundaries();
  ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
  const uint64_t length = array.world().boundaries() - begin;
  for (uint64_t cut = length; cut > length / 2; --cut) {
    SimArray other(2, 2, options(), kTestChunk, 2);
    other.world().cut_at(other.world().boundaries() + cut);
    static_cast<void>(other.store().add_members({"/m2"}));
    other.crash();
    if (!other.try_open_array().is_ok()) continue;  // it became one
    ASSERT_TRUE(other.store().add_members({"/m3"}).is_ok());
    other.kill();
    other.set_paths({"/m0", "/m1", "/m2"});
    const Status refused = other.try_open_array();
    ASSERT_FALSE(refused.is_ok());
    EXPECT_NE(refused.message().find("nothing was changed"), std::string::npos) << refused.message();
    other.set_paths({"/m0", "/m1", "/m3"});
    EXPECT_TRUE(other.try_open_array().is_ok());
    return;
  }
  FAIL() << "no cut left an attempt";
}

}  // namespace
}  // namespace fpfs::test
