// Chunks move to other members: as they are stored, checked, and so that a crash leaves each at one place or the other.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/file/sim_array.h"
#include "tests/engine/store/expect_clean.h"

namespace fpfs::test {
namespace {

constexpr size_t kChunks = 9;
constexpr size_t kLength = (kChunks - 1) * kTestChunk + 1000;  // the last one is no whole one

StoreOptions options(Compression::Mode mode) {
  StoreOptions options;
  options.inline_max = 0;
  options.compression.mode = mode;
  return options;
}

// Half of it is zeros: what can be encoded is.
Bytes content(uint64_t salt) {
  Bytes bytes = make_bytes(kLength, salt);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (i / 4096 % 2 == 1) bytes[i] = std::byte{0};
  return bytes;
}

void save(SimArray& array, const std::string& name, uint64_t salt) {
  const std::shared_ptr<File> file = array.create(name);
  ASSERT_TRUE(array.write(*file, 0, content(salt)).is_ok());
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
}

struct Outcome {
  unsigned arrived = 0, moved = 0, left = 0;
  unsigned told() const { return moved + left; }
};

// Asks for every chunk at once, and waits until all has ended, or the power has.
Outcome move_all(SimArray& array, const std::shared_ptr<File>& file) {
  const auto outcome = std::make_shared<Outcome>();
  for (ChunkIndex chunk(0); chunk.value() < kChunks; ++chunk)
    file->move_chunk(
        chunk, [outcome] { ++outcome->arrived; },
        [outcome](const Status& why_left) { ++(why_left.is_ok() ? outcome->moved : outcome->left); });
  array.world().run_until([&] { return array.world().is_off() || outcome->told() == kChunks; });
  return *outcome;
}

unsigned chunks_in_place(const File& file) {
  unsigned count = 0;
  for (ChunkIndex chunk(0); chunk.value() < kChunks; ++chunk) count += file.is_in_place(chunk) ? 1 : 0;
  return count;
}

class MovingTest : public testing::TestWithParam<Compression::Mode> {};

TEST_P(MovingTest, WhatIsStoredIsTheSameAtAnotherPlace) {
  SimArray array(1, 2, options(GetParam()), kTestChunk, 1);
  save(array, "file", 1);
  ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
  array.set_paths({"/m0", "/m1", "/m2"});
  std::shared_ptr<File> file = array.open("file");
  const std::vector<File::MappedExtent> before = file->map(ChunkIndex(0), kChunks);
  ASSERT_LT(chunks_in_place(*file), kChunks);
  const uint64_t sequence = file->info().sequence;

  const auto bytes_written = [&array] {
    return array.sum_over_members([](const MemberStatus& member) { return member.bytes_written; });
  };
  const uint64_t saved = array.store().bytes_saved();
  EXPECT_EQ(saved, bytes_written());

  const Outcome outcome = move_all(array, file);
  EXPECT_EQ(array.store().bytes_saved(), saved) << "nobody saves what moves";
  EXPECT_GT(bytes_written(), saved);
  EXPECT_EQ(outcome.arrived, kChunks);
  EXPECT_EQ(outcome.moved, kChunks);
  EXPECT_EQ(chunks_in_place(*file), kChunks);
  EXPECT_GT(file->info().sequence, sequence);
  const std::vector<File::MappedExtent> after = file->map(ChunkIndex(0), kChunks);
  ASSERT_EQ(after.size(), before.size());
  bool is_any_encoded = false;
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].extent.checksum, before[i].extent.checksum);
    EXPECT_EQ(after[i].extent.codec, before[i].extent.codec);
    EXPECT_EQ(after[i].extent.stored_length, before[i].extent.stored_length);
    EXPECT_EQ(after[i].extent.visible_length, before[i].extent.visible_length);
    is_any_encoded |= after[i].extent.codec != Codec::kRaw;
  }
  EXPECT_EQ(is_any_encoded, GetParam() == Compression::Mode::kZstd);
  EXPECT_EQ(*array.read_all(*file), content(1));
  // What is in its place is passed by: nothing is committed.
  const uint64_t moved = file->info().sequence;
  EXPECT_EQ(move_all(array, file).moved, kChunks);
  EXPECT_EQ(file->info().sequence, moved);
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  expect_clean(array);
  array.open();
  EXPECT_EQ(*array.read_all(*array.open("file")), content(1));
}

INSTANTIATE_TEST_SUITE_P(Compression, MovingTest, testing::Values(Compression::Mode::kOff, Compression::Mode::kZstd));

TEST(MovingTest, AFileThatIsBeingChangedIsLeftAlone) {
  SimArray array(1, 2, options(Compression::Mode::kOff), kTestChunk, 1);
  save(array, "file", 1);
  ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
  array.set_paths({"/m0", "/m1", "/m2"});
  std::shared_ptr<File> file = array.open("file");
  const unsigned in_place = chunks_in_place(*file);
  ASSERT_TRUE(array.write(*file, 0, make_bytes(100, 2)).is_ok());
  const Outcome outcome = move_all(array, file);
  EXPECT_EQ(outcome.arrived, kChunks);
  EXPECT_EQ(outcome.moved, in_place);
  EXPECT_EQ(outcome.left, kChunks - in_place);
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(move_all(array, file).moved, kChunks);
  Bytes expected = content(1);
  const Bytes changed = make_bytes(100, 2);
  std::copy(changed.begin(), changed.end(), expected.begin());
  EXPECT_EQ(*array.read_all(*file), expected);
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  expect_clean(array);
}

// A chunk that is damaged is not given a new place, where it would look as if it had been written so.
TEST(MovingTest, WhatCannotBeReadStaysWhereItIs) {
  SimArray array(1, 2, options(Compression::Mode::kOff), kTestChunk, 1);
  save(array, "file", 1);
  ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
  array.set_paths({"/m0", "/m1", "/m2"});
  std::shared_ptr<File> file = array.open("file");
  const unsigned in_place = chunks_in_place(*file);
  array.sim().inject({.call = SimFault::Call::kRead, .filesystem = {}, .role = {}, .count = SimFault::kForever});
  const Outcome outcome = move_all(array, file);
  array.sim().clear_faults();
  EXPECT_EQ(outcome.arrived, kChunks);
  EXPECT_EQ(outcome.left, kChunks - in_place);
  EXPECT_EQ(move_all(array, file).moved, kChunks);
  EXPECT_EQ(*array.read_all(*file), content(1));
}

// Also where reads are not checked: what was read wrong once would be so for ever.
TEST(MovingTest, WhatMovesIsCheckedAlsoWhereReadsAreNot) {
  StoreOptions unchecked = options(Compression::Mode::kOff);
  unchecked.verify = false;
  SimArray array(1, 2, unchecked, kTestChunk, 1);
  save(array, "file", 1);
  array.world().drain();
  ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
  array.set_paths({"/m0", "/m1", "/m2"});
  std::shared_ptr<File> file = array.open("file");
  const std::vector<File::MappedExtent> before = file->map(ChunkIndex(0), kChunks);
  const unsigned in_place = chunks_in_place(*file);
  ASSERT_LT(in_place, kChunks);
  for (const char* const objects : {"/m0/objects", "/m1/objects"})
    for (const std::string& path : array.sim().files_below(objects))
      for (uint64_t at = 0; at < array.sim().content_of(path).size(); at += kTestChunk)
        EXPECT_TRUE(array.sim().flip_bit(path, at + 17, 3));
  const Outcome outcome = move_all(array, file);
  EXPECT_EQ(outcome.left, kChunks - in_place);
  const std::vector<File::MappedExtent> after = file->map(ChunkIndex(0), kChunks);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].extent.checksum, before[i].extent.checksum);
}

// What a move that failed has made is found when the file is opened again: its name may not be on the drive.
TEST(MovingTest, WhatAFailedMoveHasMadeIsMadeDurableByTheNext) {
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimArray array(seed, 2, options(Compression::Mode::kOff), kTestChunk, 1);
    save(array, "file", 1);
    ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
    array.set_paths({"/m0", "/m1", "/m2"});
    std::shared_ptr<File> file = array.open("file");
    array.sim().inject({.call = SimFault::Call::kSyncDirectory, .filesystem = 3, .role = SimRole::kObjects});
    EXPECT_GT(move_all(array, file).left, 0u);
    EXPECT_EQ(array.sim().fault_hits(), 1u);
    array.sim().clear_faults();
    file.reset();
    array.world().drain();
    file = array.open("file");
    EXPECT_EQ(move_all(array, file).moved, kChunks);
    file.reset();
    array.crash();
    array.open();
    const Result<Bytes> read = array.read_all(*array.open("file"));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == content(1));
  }
}

// Whenever it is the file is whole, and the rest can be done afterwards.
TEST(MovingTest, ACrashLeavesEachChunkAtOnePlaceOrTheOther) {
  uint64_t length = 0;
  for (uint64_t cut = 0; cut <= length && !testing::Test::HasFailure(); cut += 1 + length / 40) {
    SCOPED_TRACE("cut at " + std::to_string(cut) + " of " + std::to_string(length));
    SimArray array(cut + 1, 2, options(Compression::Mode::kOff), kTestChunk, 1);
    save(array, "file", 1);
    ASSERT_TRUE(array.store().add_members({"/m2"}).is_ok());
    array.set_paths({"/m0", "/m1", "/m2"});
    std::shared_ptr<File> file = array.open("file");
    const uint64_t begin = array.world().boundaries();
    if (cut > 0) array.world().cut_at(begin + cut);
    const Outcome outcome = move_all(array, file);
    array.world().run_until([&] { return array.world().is_off(); });  // what is freed behind the commit
    if (cut == 0) length = array.world().boundaries() - begin;
    file.reset();
    array.world().cut_at(0);
    array.crash();
    array.open();
    file = array.open("file");
    const unsigned now = chunks_in_place(*file);
    EXPECT_GE(now, outcome.moved) << "what was told is durable";
    EXPECT_EQ(*array.read_all(*file), content(1));
    EXPECT_EQ(move_all(array, file).moved, kChunks);
    EXPECT_EQ(*array.read_all(*file), content(1));
    file.reset();
    ASSERT_TRUE(array.close().is_ok());
    expect_clean(array);
  }
  EXPECT_GT(length, 10u);
}

}  // namespace
}  // namespace fpfs::test
