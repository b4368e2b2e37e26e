// Members leave an array that is in use, alone or for another one that takes their place: what they hold is moved, a crash
// at any moment leaves all of it, and nothing is on them when they are none any more.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/file/sim_array.h"
#include "tests/engine/store/expect_clean.h"
#include "tests/support/sanitizers.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 9 * kTestChunk + 1000;
const std::vector<std::string> kAll = {"/m0", "/m1", "/m2"};

StoreOptions options() {
  StoreOptions options;
  options.inline_max = 0;
  return options;
}

Status save(SimArray& array, const std::string& name, size_t length, uint64_t salt) {
  const std::shared_ptr<File> file = array.create(name);
  const Bytes data = make_bytes(length, salt);
  for (size_t at = 0; at < length; at += 8 * kTestChunk)
    FPFS_RETURN_IF_ERROR(
        array.write(*file, at, std::span(data).subspan(at, std::min<size_t>(8 * kTestChunk, length - at))));
  return array.control(*file, ControlRequest::Kind::kClose);
}

unsigned chunks_on(const File& file, uint16_t member) {
  unsigned count = 0;
  for (const File::MappedExtent& mapped : file.map(ChunkIndex(0), 1000))
    if (mapped.extent.is_here() && mapped.extent.member == MemberIndex(member)) ++count;
  return count;
}

// What a removal does with each file. False: the power went.
bool move_away(SimArray& array, const std::shared_ptr<File>& file) {
  const auto under_way = std::make_shared<unsigned>(0);
  for (const File::MappedExtent& mapped : file->map(ChunkIndex(0), 1000)) {
    if (!array.store().array().is_leaving(mapped.extent.member)) continue;
    ++*under_way;
    file->move_chunk(
        mapped.chunk, [] {}, [under_way](const Status&) { --*under_way; });
  }
  array.world().run_until([&] { return array.world().is_off() || *under_way == 0; });
  if (!array.world().is_off()) file->drop_left_objects();
  return !array.world().is_off();
}

// Until no member is leaving any more, or it cannot be done now. False: the power went, or something is left.
bool finish_removals(SimArray& array, const std::vector<std::string>& names) {
  for (unsigned round = 0; round < 3; ++round) {
    for (const std::string& name : names) {
      Result<std::shared_ptr<File>> file = array.try_open(name);
      if (!file.is_ok() || !move_away(array, *file)) return false;
      file->reset();
      array.world().drain();
    }
    const Result<bool> is_any_left = array.store().take_out_members();
    if (!is_any_left.is_ok()) return false;
    if (!*is_any_left) return true;
  }
  return false;
}

bool is_member(SimArray& array, uint16_t index) {
  return index < array.store().array().member_count() && array.store().array().is_present(MemberIndex(index));
}

TEST(LeavingTest, WhatItHoldsIsMovedAndThenItIsNoMember) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(save(array, "before", kLength, 1).is_ok());
  std::shared_ptr<File> during = array.create("during");
  ASSERT_TRUE(array.write(*during, 0, make_bytes(4 * kTestChunk, 2)).is_ok());
  std::shared_ptr<File> open = array.open("before");
  ASSERT_GT(chunks_on(*open, 1), 0u);

  const Status leaves = array.store().remove_member("/m1");
  ASSERT_TRUE(leaves.is_ok()) << leaves.message();
  EXPECT_TRUE(array.store().status().members[1].leaving);
  EXPECT_TRUE(array.store().remove_member("/m1").is_ok()) << "it goes on";
  // Those that are open, too, write nothing to it any more.
  const unsigned before = chunks_on(*during, 1);
  ASSERT_TRUE(array.write(*during, 4 * kTestChunk, make_bytes(8 * kTestChunk, 3)).is_ok());
  ASSERT_TRUE(array.control(*during, ControlRequest::Kind::kClose).is_ok());
  EXPECT_LE(chunks_on(*during, 1), std::max(before, 2u));
  ASSERT_TRUE(save(array, "after", kLength, 4).is_ok());
  EXPECT_EQ(chunks_on(*array.open("after"), 1), 0u);
  EXPECT_TRUE(*array.store().take_out_members()) << "it holds something";
  // What is on it is read, and can be written over.
  EXPECT_EQ(*array.read_all(*open), make_bytes(kLength, 1));
  ASSERT_TRUE(array.write(*open, 0, make_bytes(2 * kTestChunk + 100, 5)).is_ok());
  ASSERT_TRUE(array.control(*open, ControlRequest::Kind::kClose).is_ok());
  Bytes expected = make_bytes(kLength, 1);
  const Bytes changed = make_bytes(2 * kTestChunk + 100, 5);
  std::copy(changed.begin(), changed.end(), expected.begin());

  ASSERT_TRUE(finish_removals(array, {"before", "during", "after"}));
  EXPECT_TRUE(array.store().status().members[1].removed);
  EXPECT_EQ(chunks_on(*open, 1), 0u);
  EXPECT_EQ(*array.read_all(*open), expected);
  ASSERT_TRUE(array.write(*open, kLength, make_bytes(6 * kTestChunk, 6)).is_ok());
  ASSERT_TRUE(array.control(*open, ControlRequest::Kind::kClose).is_ok());
  during.reset();
  open.reset();
  ASSERT_TRUE(array.close().is_ok());

  // With it in the list, it is left out; alone it is nothing.
  expect_clean(array);
  array.open();
  EXPECT_FALSE(is_member(array, 1));
  EXPECT_EQ(*array.read_all(*array.open("after")), make_bytes(kLength, 4));
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths({"/m1"});
  EXPECT_NE(array.try_open_array().message().find("was removed"), std::string::npos);
  array.set_paths({"/m2", "/m0"});
  expect_clean(array);
  array.open();
  EXPECT_EQ(array.store().array().member_count(), 3);
  ASSERT_TRUE(save(array, "last", kLength, 7).is_ok());
  EXPECT_EQ(chunks_on(*array.open("last"), 0) + chunks_on(*array.open("last"), 2), 10u);
  // Its index stays its own; the directory can be a member again.
  const Status added = array.store().add_members({"/m1"});
  ASSERT_TRUE(added.is_ok()) << added.message();
  ASSERT_TRUE(save(array, "again", kLength, 8).is_ok());
  EXPECT_GT(chunks_on(*array.open("again"), 3), 2u);
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths(kAll);
  expect_clean(array);
}

// As every name and every object is there, an object without a name is nobody's.
TEST(LeavingTest, AnArrayWithoutARemovedMemberIsWhole) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
  ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
  ASSERT_TRUE(finish_removals(array, {"file"}));
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths({"/m0", "/m2"});
  {
    Storage& storage = array.world().storage();
    const Result<Handle> opened = storage.open_directory("/m2/objects/bc");
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    const ScopedHandle directory(storage, *opened);
    const Result<Handle> made =
        storage.open_at(*opened, Array::object_name(FileId(0xabc), Generation()), O_CREAT | O_RDWR, 0600);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    const ScopedHandle object(storage, *made);
  }
  CheckOptions preen;
  preen.repair = Repair::kPreen;
  const Result<CheckReport> report = check_array(array.world(), array.paths(), preen);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  ASSERT_EQ(report->errors.size(), 1u);
  EXPECT_EQ(report->errors[0].kind, "orphan");
  EXPECT_TRUE(report->errors[0].is_nobodys && report->errors[0].repaired) << report->errors[0].detail;
  expect_clean(array);
}

TEST(LeavingTest, ADirectoryThatWasRemovedCanBeFormatted) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(array.store().remove_member("/m2").is_ok());
  FormatOptions format;
  EXPECT_FALSE(Array::format(array.world(), {"/m2"}, format).is_ok()) << "it is a member";
  ASSERT_TRUE(finish_removals(array, {}));
  const Status formatted = Array::format(array.world(), {"/m2"}, format);
  EXPECT_TRUE(formatted.is_ok()) << formatted.message();
  ASSERT_TRUE(array.close().is_ok());
  EXPECT_FALSE(array.try_open_array().is_ok()) << "it is another array's";
  array.set_paths({"/m0", "/m1"});
  expect_clean(array);
}

// Whoever looked a moment before, and comes late, reaches nothing by the handles that it knew; least of all what was
// opened since. Its directory is nobody's.
TEST(LeavingTest, HandlesOfARemovedMemberLeadToNothing) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
  ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
  ASSERT_TRUE(finish_removals(array, {"file"}));
  Storage& storage = array.world().storage();
  const Member& gone = array.store().array().member(MemberIndex(1));
  for (const Handle handle : {gone.directory, gone.objects}) {
    EXPECT_EQ(storage.open_at(handle, "objects", O_RDONLY | O_DIRECTORY).status().errno_value(), ENOTDIR);
    EXPECT_FALSE(storage.list(handle, [](const DirectoryEntry&) { return true; }).is_ok());
  }
  std::byte byte;
  EXPECT_EQ(storage.pread(gone.lock, {&byte, 1}, 0).status().errno_value(), EBADF);
  const Result<Handle> directory = storage.open_directory("/m1");
  ASSERT_TRUE(directory.is_ok()) << directory.status().message();
  const Result<Handle> lock = storage.open_at(*directory, "lock", O_RDWR);
  ASSERT_TRUE(lock.is_ok()) << lock.status().message();
  EXPECT_TRUE(storage.lock(*lock, true).is_ok());
  storage.close(*lock);
  storage.close(*directory);
  ASSERT_TRUE(array.close().is_ok());
}

// A drive that fails is the one to leave.
TEST(LeavingTest, AMemberThatCannotAllBeLookedAtLeaves) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
  array.sim().inject({.call = SimFault::Call::kLook, .filesystem = 2, .role = SimRole::kObjects, .nth = 5, .count = 1});
  const Status leaves = array.store().remove_member("/m1");
  EXPECT_TRUE(leaves.is_ok()) << leaves.message();
  EXPECT_EQ(array.sim().fault_hits(), 1u);
  array.sim().clear_faults();
  ASSERT_TRUE(finish_removals(array, {"file"}));
  EXPECT_EQ(*array.read_all(*array.open("file")), make_bytes(kLength, 1));
  ASSERT_TRUE(array.close().is_ok());
  expect_clean(array);
}

TEST(LeavingTest, WhatCannotBeRemovedIsRefusedAndNothingIsChanged) {
  SimArray array(1, 2, options(), kTestChunk, 1);
  const auto refusal = [&](const std::string& path) { return array.store().remove_member(path).message(); };
  EXPECT_NE(refusal("/m0").find("names"), std::string::npos) << refusal("/m0");
  EXPECT_NE(refusal("/m2").find("no member"), std::string::npos) << refusal("/m2");
  EXPECT_NE(refusal("/nowhere").find("no member"), std::string::npos) << refusal("/nowhere");
  EXPECT_NE(array.store().take_back_member("/m1").message().find("not leaving"), std::string::npos);
  EXPECT_FALSE(array.store().replace_member("/m1", "/m0").is_ok());
  EXPECT_FALSE(array.store().replace_member("/m0", "/m2").is_ok());
  ASSERT_TRUE(save(array, "file", 60 * kTestChunk, 1).is_ok());
  array.sim().set_capacity(1, 40 * kTestChunk);  // "/m0", which has half of them
  EXPECT_NE(refusal("/m1").find("room"), std::string::npos) << refusal("/m1");
  array.sim().set_capacity(3, 20 * kTestChunk);
  EXPECT_NE(array.store().replace_member("/m1", "/m2").message().find("room"), std::string::npos);
  EXPECT_FALSE(array.store().array().is_any_leaving());
  EXPECT_EQ(array.store().array().superblock().incompatible & ~kFeatureCommitLog, 0u) << "nothing was begun";
  ASSERT_TRUE(array.close().is_ok());
  EXPECT_TRUE(array.try_open_array(true).is_ok());
  EXPECT_FALSE(array.store().remove_member("/m1").is_ok());
  array.kill();
  expect_clean(array);
}

// What fsck has set aside is not moved: it is named, and nobody needs room for it.
TEST(LeavingTest, WhatWasSetAsideIsNamedAndNeedsNoRoom) {
  SimArray array(1, 2, options(), kTestChunk, 1);
  ASSERT_TRUE(save(array, "file", 4 * kTestChunk, 1).is_ok());
  ASSERT_TRUE(save(array, "aside", 60 * kTestChunk, 2).is_ok());
  array.world().drain();
  Storage& storage = array.store().storage();
  const Handle names = array.store().array().metadata_directory();
  ASSERT_TRUE(storage.make_directory(names, "lost+found", 0700).is_ok());
  const Handle lost = *storage.open_at(names, "lost+found", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(storage.rename(array.store().root(), "aside", lost, "1-aside.sidecar", 0).is_ok());
  array.sim().set_capacity(1, 40 * kTestChunk);  // "/m0", which has half of both
  const Status removed = array.store().remove_member("/m1");
  ASSERT_TRUE(removed.is_ok()) << removed.message();
  EXPECT_FALSE(finish_removals(array, {"file"}));
  EXPECT_EQ(chunks_on(*array.open("file"), 1), 0u);
  std::vector<Store::KeepsMember> kept = array.store().what_keeps_members();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].path, "/m0/lost+found/1-aside.sidecar");
  EXPECT_NE(kept[0].why.find("/m1: "), std::string::npos) << kept[0].why;
  EXPECT_FALSE(kept[0].is_unnamed);
  // Nobody knows whose it is now: it stays all the same.
  ASSERT_TRUE(storage.unlink(lost, "1-aside.sidecar").is_ok());
  EXPECT_FALSE(finish_removals(array, {"file"}));
  kept = array.store().what_keeps_members();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].path.find("/m1/objects/"), 0u) << kept[0].path;
  EXPECT_TRUE(kept[0].is_unnamed);
  EXPECT_TRUE(is_member(array, 1));
  storage.close(lost);
}

TEST(LeavingTest, OneThatIsTakenBackIsAMemberAsBefore) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(save(array, "before", kLength, 1).is_ok());
  std::shared_ptr<File> file = array.open("before");
  const unsigned before = chunks_on(*file, 1);
  ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
  ASSERT_TRUE(move_away(array, file));
  array.world().drain();
  EXPECT_EQ(chunks_on(*file, 1), 0u);
  const Status back = array.store().take_back_member("/m1");
  ASSERT_TRUE(back.is_ok()) << back.message();
  // Of a file that has lost its object there meanwhile, too.
  ASSERT_TRUE(array.write(*file, 0, make_bytes(kLength, 2)).is_ok());
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(chunks_on(*file, 1), before);
  file.reset();
  ASSERT_TRUE(save(array, "after", kLength, 3).is_ok());
  EXPECT_GE(chunks_on(*array.open("after"), 1), 3u);
  ASSERT_TRUE(array.close().is_ok());
  expect_clean(array);
  array.open();
  EXPECT_EQ(*array.read_all(*array.open("before")), make_bytes(kLength, 2));
}

// What takes part has less room than was counted on, but there is some: chunks go where it is.
TEST(LeavingTest, WhatDoesNotFitInItsPlaceGoesToAnotherMember) {
  SimArray array(1, 3, options());
  ASSERT_TRUE(save(array, "file", 60 * kTestChunk, 1).is_ok());
  array.world().drain();
  ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
  array.sim().set_capacity(3, 26 * kTestChunk);  // "/m2", which has 20 of them
  EXPECT_TRUE(finish_removals(array, {"file"}));
  std::shared_ptr<File> file = array.open("file");
  EXPECT_EQ(chunks_on(*file, 1), 0u);
  EXPECT_GT(chunks_on(*file, 0), 30u);
  EXPECT_TRUE(*array.read_all(*file) == make_bytes(60 * kTestChunk, 1));
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths({"/m0", "/m2"});
  expect_clean(array);
}

// Also where there is none any more: it stays a member, and the rest goes later.
TEST(LeavingTest, WhatFitsNowhereStays) {
  SimArray array(1, 2, options());
  ASSERT_TRUE(save(array, "file", 40 * kTestChunk, 1).is_ok());
  ASSERT_TRUE(save(array, "other", 40 * kTestChunk, 2).is_ok());
  array.world().drain();
  ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
  array.sim().set_capacity(1, 60 * kTestChunk);
  EXPECT_FALSE(finish_removals(array, {"file", "other"}));
  EXPECT_TRUE(array.store().array().is_leaving(MemberIndex(1)));
  EXPECT_FALSE(array.store().read_only());
  EXPECT_TRUE(*array.read_all(*array.open("file")) == make_bytes(40 * kTestChunk, 1));
  ASSERT_TRUE(array.store().unlink(array.store().root(), "other").is_ok());
  ASSERT_TRUE(array.close().is_ok());
  expect_clean(array);
  array.open();
  EXPECT_TRUE(array.store().array().is_leaving(MemberIndex(1)));
  EXPECT_TRUE(finish_removals(array, {"file"}));
  EXPECT_TRUE(*array.read_all(*array.open("file")) == make_bytes(40 * kTestChunk, 1));
}

// It has no name to be found by, and no commit moves it.
TEST(LeavingTest, AFileWithoutANameKeepsAMemberUntilItIsClosed) {
  SimArray array(1, 3, options());
  std::shared_ptr<File> file = array.create("file");
  ASSERT_TRUE(array.write(*file, 0, make_bytes(kLength, 1)).is_ok());
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
  ASSERT_TRUE(array.store().unlink(array.store().root(), "file").is_ok());
  ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
  EXPECT_FALSE(finish_removals(array, {}));
  EXPECT_TRUE(*array.read_all(*file) == make_bytes(kLength, 1));
  file.reset();
  array.world().drain();
  EXPECT_TRUE(finish_removals(array, {}));
}

// Only where the names lie apart can all go that there were when it was opened.
TEST(LeavingTest, AFileThatKnowsNoOtherMemberKeepsItsOwn) {
  SimArray array(1, 2, options(), kTestChunk, 1);
  ASSERT_TRUE(array.close().is_ok());
  FormatOptions format;
  format.chunk_size = kTestChunk;
  format.metadata_directory = "/m1";
  format.force = true;
  ASSERT_TRUE(Array::format(array.world(), {"/m0"}, format).is_ok());
  array.set_paths({"/m0"});
  array.open();
  std::shared_ptr<File> file = array.create("file");
  ASSERT_TRUE(array.write(*file, 0, make_bytes(kTestChunk, 1)).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  const Status replaced = array.store().replace_member("/m0", "/m2");
  ASSERT_TRUE(replaced.is_ok()) << replaced.message();
  array.set_paths({"/m0", "/m2"});
  // Nothing of it is there for a moment.
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kPunchHole, 0, kTestChunk).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  array.world().drain();
  file->drop_left_objects();
  ASSERT_EQ(chunks_on(*file, 0), 0u);
  EXPECT_EQ(array.sim().files_below("/m0/objects").size(), 1u) << "what may be written to stays";
  const Result<bool> is_any_left = array.store().take_out_members();
  EXPECT_TRUE(is_any_left.is_ok() && *is_any_left);
  ASSERT_TRUE(array.write(*file, 0, make_bytes(kLength, 2)).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  file.reset();
  array.world().drain();
  EXPECT_TRUE(finish_removals(array, {"file"}));
  EXPECT_EQ(*array.read_all(*array.open("file")), make_bytes(kLength, 2));
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths({"/m2"});
  expect_clean(array);
}

// A commit is under way when the member begins to leave, and is not lost with its object.
TEST(LeavingTest, WhatIsOnItsWayToItArrives) {
  for (uint64_t seed = 1; seed <= alike(60) && !HasFailure(); ++seed) {
    SimArray array(seed, 3, options());
    std::shared_ptr<File> file = array.create("file");
    SimArray::Answer<WriteRequest> write;
    const Bytes data = make_bytes(kLength, seed);
    write.request.length = static_cast<uint32_t>(data.size());
    write.request.data = data.data();
    file->write(write.request);
    SimArray::Answer<ControlRequest> commit;
    commit.request.kind = ControlRequest::Kind::kClose;
    file->control(commit.request);
    for (uint64_t steps = array.world().random().below(60); steps > 0; --steps) array.world().step();
    ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
    file->drop_left_objects();
    ASSERT_TRUE(array.store().take_out_members().is_ok());
    ASSERT_TRUE(array.wait(write).is_ok());
    ASSERT_TRUE(array.wait(commit).is_ok());
    EXPECT_TRUE(*array.read_all(*file) == data);
    file.reset();
    EXPECT_TRUE(finish_removals(array, {"file"}));
    EXPECT_TRUE(*array.read_all(*array.open("file")) == data);
    ASSERT_TRUE(array.close().is_ok());
    expect_clean(array);
  }
}

// A read that has begun finds its bytes, wherever they are by then.
TEST(LeavingTest, WhatIsReadWhileItIsMovedIsRead) {
  uint64_t length = 0;
  for (uint64_t seed = 0; seed <= alike(100) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StoreOptions options = test::options();
    options.verify = seed % 2 == 0;  // without checksums nothing else tells
    SimArray array(seed + 1, 3, options);
    ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
    array.world().drain();
    ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
    const std::shared_ptr<File> file = array.open("file");
    for (const File::MappedExtent& mapped : file->map(ChunkIndex(0), 1000))
      if (mapped.extent.member == MemberIndex(1))
        file->move_chunk(
            mapped.chunk, [] {}, [](const Status&) {});
    if (seed == 0) {
      while (array.world().step()) ++length;
      ASSERT_EQ(chunks_on(*file, 1), 0u);
      continue;
    }
    for (uint64_t steps = array.world().random().below(length); steps > 0; --steps) array.world().step();
    std::vector<std::unique_ptr<SimArray::Read>> reads;
    for (uint64_t at = 0; at < kLength; at += kTestChunk) {
      reads.push_back(std::make_unique<SimArray::Read>(at, kTestChunk));
      file->read(reads.back()->request);
    }
    Bytes content;
    for (const std::unique_ptr<SimArray::Read>& read : reads) {
      const Status status = array.wait(*read);
      EXPECT_TRUE(status.is_ok()) << status.message();
      content.insert(content.end(), read->data.begin(), read->data.end());
    }
    EXPECT_TRUE(content == make_bytes(kLength, 1));
  }
}

TEST(LeavingTest, BehindAReplacementThatWasCancelledARemovalIsEnough) {
  SimArray array(1, 3, options(), kTestChunk, 1);
  ASSERT_TRUE(array.store().replace_member("/m1", "/m3").is_ok());
  ASSERT_TRUE(array.store().take_back_member("/m1").is_ok());
  const Status again = array.store().replace_member("/m1", "/m3");
  EXPECT_NE(again.message().find("fpfs member remove with /m1 alone"), std::string::npos) << again.message();
  EXPECT_TRUE(array.store().remove_member("/m1").is_ok());
}

TEST(LeavingTest, AnotherOneTakesItsPlaceInTheStripe) {
  SimArray array(1, 3, options(), kTestChunk, 1);
  ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
  std::shared_ptr<File> file = array.open("file");
  std::vector<unsigned> before;
  for (uint16_t member = 0; member < 3; ++member) before.push_back(chunks_on(*file, member));
  file.reset();
  const Status replaced = array.store().replace_member("/m1", "/m3");
  ASSERT_TRUE(replaced.is_ok()) << replaced.message();
  EXPECT_FALSE(array.store().replace_member("/m1", "/m3").is_ok());
  ASSERT_TRUE(finish_removals(array, {"file"}));
  file = array.open("file");
  EXPECT_EQ(chunks_on(*file, 0), before[0]);
  EXPECT_EQ(chunks_on(*file, 1), 0u);
  EXPECT_EQ(chunks_on(*file, 2), before[2]);
  EXPECT_EQ(chunks_on(*file, 3), before[1]) << "what was on the one";
  for (const File::MappedExtent& mapped : file->map(ChunkIndex(0), 1000)) EXPECT_TRUE(file->is_in_place(mapped.chunk));
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  array.set_paths({"/m0", "/m2", "/m3"});
  expect_clean(array);
  array.open();
  EXPECT_EQ(*array.read_all(*array.open("file")), make_bytes(kLength, 1));
}

TEST(LeavingTest, AFailureAtTheMomentOfTheChangeMakesTheArrayReadOnly) {
  for (const bool at_end : {false, true}) {
    SimArray array(1, 3, options());
    if (at_end) {
      ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
    }
    array.sim().inject({.call = SimFault::Call::kSyncDirectory, .filesystem = 1, .role = {}});
    const Status failed = at_end ? array.store().take_out_members().status() : array.store().remove_member("/m1");
    EXPECT_EQ(failed.code(), StatusCode::kReadOnly) << failed.message();
    array.sim().clear_faults();
    EXPECT_TRUE(array.store().read_only());
    array.kill();
    expect_clean(array);
  }
}

// It counts changes of the members that never were, and the array has made others since.
TEST(LeavingTest, ADirectoryThatWasNeverAddedIsLeftOutAlsoAfterOtherChanges) {
  std::vector<std::string> with_it = kAll;
  with_it.emplace_back("/m3");
  uint64_t length = 0;
  unsigned cases = 0;
  for (uint64_t back = 0; back <= length && cases < 3 && !HasFailure(); ++back) {
    SimArray array(back + 1, 3, options(), kTestChunk, 2);
    ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
    const uint64_t begin = array.world().boundaries();
    if (length > 0) array.world().cut_at(begin + length - back);
    static_cast<void>(array.store().add_members({"/m3"}));
    if (length == 0) length = array.world().boundaries() - begin;
    array.world().cut_at(0);
    array.crash();
    array.set_paths(with_it);
    if (!array.try_open_array().is_ok()) break;  // it is nothing yet
    if (is_member(array, 3)) continue;
    ++cases;
    ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
    for (const bool is_removed : {false, true}) {
      ASSERT_TRUE(array.close().is_ok());
      const Status opened = array.try_open_array();
      ASSERT_TRUE(opened.is_ok()) << opened.message();
      EXPECT_FALSE(is_member(array, 3));
      if (!is_removed) {
        ASSERT_TRUE(finish_removals(array, {"file"}));
      }
    }
    EXPECT_EQ(*array.read_all(*array.open("file")), make_bytes(kLength, 1));
    // Another one gets its index: the two are not taken for copies.
    ASSERT_TRUE(array.store().add_members({"/m4"}).is_ok());
    ASSERT_TRUE(array.close().is_ok());
    array.set_paths({"/m0", "/m2", "/m4", "/m3"});
    const std::string both = array.try_open_array().message();
    EXPECT_NE(both.find("give only one of them"), std::string::npos) << both;
    array.set_paths({"/m0", "/m2", "/m3"});
    EXPECT_FALSE(array.try_open_array().is_ok());
    array.set_paths({"/m0", "/m2", "/m4"});
    array.open();
    ASSERT_TRUE(array.close().is_ok());
  }
  EXPECT_GT(cases, 0u);
}

// What is read back of a commit whose sync failed may be gone with the power: what it has replaced is needed then.
TEST(LeavingTest, ACommitThatMayBeLostKeepsWhatItReplaced) {
  unsigned old = 0;
  for (uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimArray array(seed, 3, options());
    ASSERT_TRUE(save(array, "file", kLength, 1).is_ok());
    array.world().drain();
    ASSERT_TRUE(array.store().remove_member("/m1").is_ok());
    std::shared_ptr<File> file = array.open("file");
    ASSERT_TRUE(array.write(*file, 0, make_bytes(kLength, 2)).is_ok());
    array.world().drain();
    array.sim().inject({.call = SimFault::Call::kSyncFile, .filesystem = 1, .role = SimRole::kTree});
    EXPECT_FALSE(array.commit(*file).is_ok());
    array.sim().clear_faults();
    file.reset();
    array.world().drain();
    ASSERT_TRUE(array.store().read_only());
    // As the removal that goes on finds it.
    Result<Store::Node> node = array.store().lookup(array.store().root(), "file");
    ASSERT_TRUE(node.is_ok());
    Result<std::shared_ptr<File>> again = array.store().open_file(node->handle.get(), false);
    node->handle.reset();
    ASSERT_TRUE(again.is_ok());
    (*again)->drop_left_objects();
    again->reset();
    EXPECT_FALSE(array.store().take_out_members().is_ok());
    array.crash();
    array.open();
    const Result<Bytes> content = array.read_all(*array.open("file"));
    ASSERT_TRUE(content.is_ok()) << content.status().message();
    if (*content == make_bytes(kLength, 1)) ++old;
    EXPECT_TRUE(*content == make_bytes(kLength, 1) || *content == make_bytes(kLength, 2));
  }
  EXPECT_GT(old, 0u);
}

// Cuts the power at moments of a removal, or of a replacement, mostly where they are decided; then goes on from there.
class LeavingCutTest : public testing::TestWithParam<bool> {};

TEST_P(LeavingCutTest, ACrashLeavesAllOfItAndTheRestCanBeDone) {
  const bool replaces = GetParam();
  const std::vector<std::string> names = {"kept", "more"};
  uint64_t first = 0, length = 0;
  unsigned not_begun = 0, leaving = 0, gone = 0;
  const auto run = [&](uint64_t seed, uint64_t cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut) + " of " + std::to_string(length));
    SimArray array(seed, 3, options(), kTestChunk, 1);
    for (size_t i = 0; i < names.size(); ++i) {
      ASSERT_TRUE(save(array, names[i], kLength, i + 1).is_ok());
    }
    std::shared_ptr<File> written = array.open("more");
    const uint64_t begin = array.world().boundaries();
    if (cut > 0) array.world().cut_at(begin + cut);
    const Status begun = replaces ? array.store().replace_member("/m1", "/m3") : array.store().remove_member("/m1");
    if (cut == 0) first = array.world().boundaries() - begin;
    // Changes that are not committed, at the end of what is.
    const bool is_written = begun.is_ok() && array.write(*written, kLength, make_bytes(kTestChunk, 9)).is_ok();
    const bool is_kept = is_written && array.control(*written, ControlRequest::Kind::kClose).is_ok();
    written.reset();
    const bool is_done = begun.is_ok() && finish_removals(array, names);
    if (cut == 0) {
      EXPECT_TRUE(is_done);
      length = array.world().boundaries() - begin;
    }
    array.world().cut_at(0);
    array.crash();

    array.set_paths(replaces ? std::vector<std::string>{"/m0", "/m1", "/m2", "/m3"} : kAll);
    if (replaces && !array.try_open_array().is_ok()) {  // the new one may be nothing yet
      array.set_paths(kAll);
      array.open();
    } else if (!replaces) {
      array.open();
    }
    const bool is_in = is_member(array, 1);
    const bool is_leaving = is_in && array.store().array().is_leaving(MemberIndex(1));
    ++(is_leaving ? leaving : is_in ? not_begun : gone);
    if (is_done) {
      EXPECT_FALSE(is_in);
    }
    if (begun.is_ok()) {
      EXPECT_TRUE(!is_in || is_leaving);
    }
    Bytes more = make_bytes(kLength, 2);
    const Bytes tail = make_bytes(kTestChunk, 9);
    if (is_kept || array.size_of("more") > kLength) more.insert(more.end(), tail.begin(), tail.end());
    EXPECT_EQ(*array.read_all(*array.open("kept")), make_bytes(kLength, 1));
    EXPECT_TRUE(*array.read_all(*array.open("more")) == more);
    if (is_in) {
      const Status again =
          replaces && !is_leaving ? array.store().replace_member("/m1", "/m3") : array.store().remove_member("/m1");
      ASSERT_TRUE(again.is_ok()) << again.message();
      ASSERT_TRUE(finish_removals(array, names));
    }
    ASSERT_TRUE(save(array, "last", kLength, 3).is_ok());
    ASSERT_TRUE(array.close().is_ok());
    array.set_paths(replaces ? std::vector<std::string>{"/m0", "/m2", "/m3"} : std::vector<std::string>{"/m0", "/m2"});
    expect_clean(array);
    array.open();
    EXPECT_EQ(*array.read_all(*array.open("kept")), make_bytes(kLength, 1));
    EXPECT_TRUE(*array.read_all(*array.open("more")) == more);
    EXPECT_EQ(*array.read_all(*array.open("last")), make_bytes(kLength, 3));
  };
  run(1, 0);
  ASSERT_GT(length, first);
  for (uint64_t back = 0; back < 30 && !HasFailure(); ++back) run(back + 2, length - back);
  for (uint64_t back = 0; back < first && !HasFailure(); back += 1 + first / 25) run(back + 2, first - back);
  for (uint64_t cut = 1; cut < length && !HasFailure(); cut += 1 + length / alike(40)) run(cut, cut);
  EXPECT_GT(not_begun, 0u);
  EXPECT_GT(leaving, 0u);
  EXPECT_GT(gone, 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LeavingCutTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Replaced" : "Removed"; });

// Lives of arrays: files are written, replaced, removed and renamed, members come and go, and the power fails. What was
// committed is there, and nothing else is left.
TEST(LeavingTest, LivesInWhichMembersComeAndGo) {
  constexpr unsigned kDrives = 5;
  unsigned removed = 0, crashes = 0;
  const uint64_t lives = alike(60);
  for (uint64_t seed = 1; seed <= lives && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StoreOptions options = test::options();
    if (seed % 2 == 0) options.spare_least = UINT64_MAX;
    SimArray array(seed, 2, options, kTestChunk, kDrives - 2);
    SimRandom random(seed * 77);
    std::map<std::string, Bytes> files;
    std::vector<std::string> all;
    for (unsigned drive = 0; drive < kDrives; ++drive) all.push_back("/m" + std::to_string(drive));
    std::shared_ptr<File> held;
    std::string held_name;
    // Those that are members now; the power may have decided. Whoever is none is left out, or is no directory of any.
    const auto open_again = [&] {
      std::vector<std::string> paths;
      for (const std::string& path : all) {
        const Result<Handle> directory = array.sim().open_directory(path);
        if (!directory.is_ok()) continue;
        const ScopedHandle scoped(array.sim(), *directory);
        if (array.sim().stat_at(*directory, "superblock").is_ok()) paths.push_back(path);
      }
      array.set_paths(paths);
      array.open();
    };
    const auto crash = [&] {
      ++crashes;
      held.reset();
      array.crash();
      open_again();
      // With what was not committed or without it.
      if (!held_name.empty()) files[held_name] = *array.read_all(*array.open(held_name));
      held_name.clear();
    };
    const auto names = [&files] {
      std::vector<std::string> all_names;
      all_names.reserve(files.size());
      for (const auto& [name, content] : files) all_names.push_back(name);
      return all_names;
    };
    for (unsigned step = 0; step < 40 && !HasFailure(); ++step) {
      const std::string name = "f" + std::to_string(random.below(6));
      const std::string member = all[1 + random.below(kDrives - 1)];
      switch (random.below(9)) {
        case 0:
        case 1: {  // a file, new or written over in part
          if (name == held_name) break;
          const bool is_new = !files.contains(name);
          std::shared_ptr<File> file = is_new ? array.create(name) : array.open(name);
          const uint64_t offset = random.below(6 * kTestChunk);
          const Bytes data = make_bytes(1 + random.below(8 * kTestChunk), seed * 1000 + step);
          if (is_new) {
            ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
          }
          ASSERT_TRUE(array.write(*file, offset, data).is_ok());
          ASSERT_TRUE(array.commit(*file).is_ok());
          Bytes& content = files[name];
          content.resize(std::max(content.size(), offset + data.size()));
          std::copy(data.begin(), data.end(), content.begin() + static_cast<std::ptrdiff_t>(offset));
          break;
        }
        case 2:  // replaced as a whole
          if (name == held_name || !files.contains(name)) break;
          {
            std::shared_ptr<File> file = array.open(name);
            const Bytes data = make_bytes(random.below(9 * kTestChunk), seed * 1000 + step);
            ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
            if (!data.empty()) {
              ASSERT_TRUE(array.write(*file, 0, data).is_ok());
            }
            ASSERT_TRUE(array.commit(*file).is_ok());
            files[name] = data;
          }
          break;
        case 3:
          if (name == held_name || !files.contains(name)) break;
          ASSERT_TRUE(array.store().unlink(array.store().root(), name).is_ok());
          ASSERT_TRUE(array.store().sync_directory(array.store().root()).is_ok());
          files.erase(name);
          break;
        case 4:  // held open, with changes that are not committed
          if (held != nullptr) {
            static_cast<void>(array.control(*held, ControlRequest::Kind::kClose));
            files[held_name] = *array.read_all(*held);
            held.reset();
            held_name.clear();
          } else if (files.contains(name)) {
            held = array.open(name);
            held_name = name;
            ASSERT_TRUE(array.write(*held, 0, make_bytes(2 * kTestChunk, step)).is_ok());
          }
          break;
        case 5:
        case 6:
        case 7: {  // members come and go; the power may fail meanwhile
          const bool is_cut = random.chance(25);
          if (is_cut) array.world().cut_at(array.world().boundaries() + 1 + random.below(200));
          const auto members = [&array] {
            const Array& of = array.store().array();
            unsigned count = 0;
            for (const MemberIndex m : of.members()) count += of.is_present(m) ? 1 : 0;
            return count;
          };
          const unsigned before = members();
          switch (random.below(6)) {
            case 0:
              static_cast<void>(array.store().add_members({member}));
              break;
            case 1:
            case 2:
              static_cast<void>(array.store().remove_member(member));
              if (random.chance(20)) static_cast<void>(array.store().take_back_member(member));
              break;
            case 3:
              static_cast<void>(array.store().replace_member(member, all[1 + random.below(kDrives - 1)]));
              break;
            default:
              finish_removals(array, names());
              removed += before > members() ? before - members() : 0;
          }
          array.world().cut_at(0);
          if (!is_cut) break;
          crash();
          break;
        }
        default:
          if (random.chance(50)) {
            crash();
            break;
          }
          held.reset();
          if (!held_name.empty()) files[held_name] = *array.read_all(*array.open(held_name));
          held_name.clear();
          ASSERT_TRUE(array.close().is_ok());
          open_again();
          expect_clean(array);
          break;
      }
      if (random.chance(50)) array.world().drain();
    }
    held.reset();
    array.world().drain();
    for (const auto& [name, content] : files) {
      if (name == held_name) continue;
      EXPECT_TRUE(*array.read_all(*array.open(name)) == content) << name;
    }
  }
  EXPECT_GT(removed, lives / 4);
  EXPECT_GT(crashes, 3 * lives);
}

}  // namespace
}  // namespace fpfs::test
