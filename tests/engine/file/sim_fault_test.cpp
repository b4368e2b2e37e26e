// Faults of drives under open files: every failure is reported by the next write, fsync or close of the file that it
// hit, the file keeps what it had committed, other files are unharmed (promise P4); and bytes that are not what was
// written never reach a reader (promise P3).
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

using Call = SimFault::Call;
using Effect = SimFault::Effect;

constexpr size_t kLength = 7 * kTestChunk + 1234;

struct FaultCase {
  const char* name;
  SimFault fault;
  StatusCode expected;
  bool array_turns_read_only;
};

SimFault fault(Call call, SimRole role, int error, Effect effect = Effect::kError) {
  return {.call = call, .effect = effect, .error = error, .filesystem = {}, .role = role};
}

SimFault filesystem_down(unsigned filesystem, uint64_t nth) {
  return {.call = Call::kCheckRunning,
          .effect = Effect::kError,
          .error = EIO,
          .filesystem = filesystem,
          .role = {},
          .nth = nth};
}

const FaultCase kCases[] = {
    {"object_write_io", fault(Call::kWrite, SimRole::kObjects, EIO), StatusCode::kIoError, false},
    {"object_write_full", fault(Call::kWrite, SimRole::kObjects, ENOSPC), StatusCode::kNoSpace, false},
    {"object_write_short", fault(Call::kWrite, SimRole::kObjects, EIO, Effect::kShort), StatusCode::kIoError, false},
    {"object_sync", fault(Call::kSyncFile, SimRole::kObjects, EIO), StatusCode::kIoError, false},
    {"object_directory_sync", fault(Call::kSyncDirectory, SimRole::kObjects, EIO), StatusCode::kIoError, false},
    {"object_allocate_io", fault(Call::kAllocate, SimRole::kObjects, EIO), StatusCode::kIoError, false},
    {"sidecar_write_full", fault(Call::kWrite, SimRole::kTree, ENOSPC), StatusCode::kNoSpace, false},
    {"sidecar_write_io", fault(Call::kWrite, SimRole::kTree, EIO), StatusCode::kIoError, true},
    {"sidecar_sync", fault(Call::kSyncFile, SimRole::kTree, EIO), StatusCode::kIoError, true},
    // Syncs that returned 0 on a filesystem that went down meanwhile. The tree is on the first, asked after its
    // objects.
    {"object_filesystem_down", filesystem_down(2, 1), StatusCode::kIoError, false},
    {"tree_filesystem_down", filesystem_down(1, 2), StatusCode::kIoError, true},
};

// Of every other seed chunks are stored encoded.
bool compresses(uint64_t seed) {
  return seed % 2 == 1;
}

StoreOptions options_of(uint64_t seed) {
  StoreOptions options;
  if (compresses(seed)) options.compression.mode = Compression::Mode::kZstd;
  return options;
}

Bytes make_bytes_of(uint64_t seed, size_t length, uint64_t salt) {
  Bytes data = make_bytes(length, salt);
  if (compresses(seed)) make_shrink(data);
  return data;
}

class FaultTest : public ::testing::TestWithParam<std::tuple<FaultCase, uint64_t>> {
 protected:
  const FaultCase& fault_case() const { return std::get<0>(GetParam()); }
  uint64_t seed() const { return std::get<1>(GetParam()); }

  // Writes in pieces and commits, until something fails.
  static Status save(SimArray& array, File& file, const Bytes& content) {
    for (size_t offset = 0; offset < content.size(); offset += 50'000) {
      const size_t piece = std::min<size_t>(50'000, content.size() - offset);
      FPFS_RETURN_IF_ERROR(array.write(file, offset, std::span(content).subspan(offset, piece)));
    }
    return array.commit(file);
  }
};

TEST_P(FaultTest, IsReportedAndHurtsNothingElse) {
  StoreOptions options = options_of(seed());
  options.inline_max = 0;
  options.spare_least = 1;
  options.spare_life = {};
  SimArray array(seed(), 3, options);
  const Bytes old_content = make_bytes_of(seed(), kLength, 1), new_content = make_bytes_of(seed(), kLength, 2);
  const Bytes other_content = make_bytes_of(seed(), kLength, 3);
  std::shared_ptr<File> hit = array.create("hit");
  std::shared_ptr<File> other = array.create("other");
  ASSERT_TRUE(save(array, *hit, old_content).is_ok());
  ASSERT_TRUE(save(array, *other, other_content).is_ok());
  // A new generation, so that its objects are made and their directories synced again.
  ASSERT_TRUE(array.control(*hit, ControlRequest::Kind::kTruncate, 0).is_ok());

  SimFault plan = fault_case().fault;
  if (plan.role == SimRole::kObjects) plan.nth = 1 + seed() % 2;  // a commit touches the sidecar once
  array.sim().inject(plan);
  const Status failed = save(array, *hit, new_content);
  ASSERT_EQ(array.sim().fault_hits(), 1u) << "the plan must hit";
  EXPECT_EQ(failed.code(), fault_case().expected) << failed.message();
  EXPECT_FALSE(failed.message().empty());
  array.sim().clear_faults();

  // Not retried into success.
  EXPECT_FALSE(array.write(*hit, 0, Bytes(100)).is_ok());
  EXPECT_FALSE(array.commit(*hit).is_ok());
  EXPECT_FALSE(hit->error().is_ok());

  const Result<Bytes> other_read = array.read_all(*other);
  ASSERT_TRUE(other_read.is_ok()) << other_read.status().message();
  EXPECT_TRUE(*other_read == other_content);
  const Status other_saved = save(array, *other, make_bytes_of(seed(), kLength, 4));
  if (fault_case().array_turns_read_only)
    EXPECT_EQ(other_saved.code(), StatusCode::kReadOnly) << other_saved.message();
  else
    EXPECT_TRUE(other_saved.is_ok()) << other_saved.message();
  const Bytes other_expected = fault_case().array_turns_read_only ? other_content : make_bytes_of(seed(), kLength, 4);

  // When its openers are gone, the next one sees what was committed last.
  hit.reset();
  other.reset();
  array.world().drain();
  if (!fault_case().array_turns_read_only) {
    const Result<Bytes> content = array.read_all(*array.open("hit"));
    ASSERT_TRUE(content.is_ok()) << content.status().message();
    EXPECT_TRUE(*content == old_content);
  }
  array.crash();
  array.open();
  const Result<Bytes> after_crash = array.read_all(*array.open("hit"));
  ASSERT_TRUE(after_crash.is_ok()) << after_crash.status().message();
  // When it is unknown whether the record reached the drive, either whole content may be there.
  const bool is_new = fault_case().array_turns_read_only && *after_crash == make_bytes_of(seed(), kLength, 2);
  EXPECT_TRUE(is_new || *after_crash == old_content);
  const Result<Bytes> other_after = array.read_all(*array.open("other"));
  ASSERT_TRUE(other_after.is_ok()) << other_after.status().message();
  EXPECT_TRUE(*other_after == other_expected);
}

// The objects of the save that failed are freed in the background, while the next one makes its own.
class RetryTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RetryTest, IsNotFreedWithTheSaveThatFailed) {
  StoreOptions options;
  options.inline_max = 0;
  options.spare_least = 1;
  options.spare_life = {};
  SimArray array(GetParam(), 3, options);
  const Bytes content = make_bytes(kLength, GetParam());
  std::shared_ptr<File> file = array.create("a");
  ASSERT_TRUE(array.write(*file, 0, make_bytes(kLength, 1)).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
    array.sim().inject(fault(Call::kWrite, SimRole::kObjects, EIO));
    static_cast<void>(array.write(*file, 0, make_bytes(kLength, 2)));
    ASSERT_FALSE(array.commit(*file).is_ok());
    array.sim().clear_faults();
    file.reset();
    file = array.open("a");
  }
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  ASSERT_TRUE(array.write(*file, 0, content).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  array.world().drain();
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  array.open();
  const Result<Bytes> read = array.read_all(*array.open("a"));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == content);
}

// Whoever made a save that failed was told. What it has still on its way to other drives keeps its File: that the array
// closes meanwhile makes it no loss.
TEST(FailedSaveTest, IsNoLossWhenTheArrayCloses) {
  unsigned kept = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    StoreOptions options;
    options.inline_max = 0;
    SimArray array(seed, 3, options);
    std::shared_ptr<File> file = array.create("a");
    array.sim().inject(fault(Call::kWrite, SimRole::kObjects, EIO));
    for (unsigned chunk = 0; chunk < 16; ++chunk)
      ASSERT_TRUE(array.write(*file, uint64_t{chunk} * kTestChunk, make_bytes(kTestChunk, chunk)).is_ok());
    ASSERT_TRUE(array.world().run_until([&] { return !file->error().is_ok(); }));
    ASSERT_EQ(array.control(*file, ControlRequest::Kind::kClose).code(), StatusCode::kIoError);
    const uint64_t inode = file->inode();
    file.reset();
    if (array.store().is_in_use(inode)) ++kept;
    const Status closed = array.close();
    EXPECT_TRUE(closed.is_ok()) << closed.message();
  }
  EXPECT_GT(kept, 0u) << "nothing was on its way";
}

// Whoever has not closed yet was not.
TEST(FailedSaveTest, IsNamedWhenItsSaverIsNotDone) {
  StoreOptions options;
  options.inline_max = 0;
  SimArray array(1, 3, options);
  std::shared_ptr<File> file = array.create("a");
  Writer writer({.opener = {1, 1}, .is_new = true});
  file->attach(writer);
  array.sim().inject(fault(Call::kWrite, SimRole::kObjects, EIO));
  ASSERT_TRUE(array.write(*file, 0, make_bytes(kTestChunk, 1)).is_ok());
  ASSERT_TRUE(array.world().run_until([&] { return !file->error().is_ok(); }));
  std::optional<Status> closed;
  array.store().close_async([&closed](const Status& status) { closed = status; });
  ASSERT_TRUE(array.world().run_until([&closed] { return closed.has_value(); }));
  EXPECT_EQ(closed->code(), StatusCode::kIoError) << closed->message();
  static_cast<void>(file->detach(writer));
  file.reset();
  array.kill();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RetryTest, ::testing::Range<uint64_t>(0, 40));

INSTANTIATE_TEST_SUITE_P(Plans, FaultTest,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Range<uint64_t>(0, 6)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

// --- what drives do silently -----------------------------------------------------------------------------------------

class SilentFaultTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  // Reads all in pieces: each is right or fails with kCorruption. Returns the number of failures.
  static unsigned count_failures(SimArray& array, File& file, const Bytes& expected) {
    unsigned failures = 0;
    for (uint64_t offset = 0; offset < expected.size(); offset += 10'000) {
      const Result<Bytes> data = array.read(file, offset, 10'000);
      if (!data.is_ok()) {
        EXPECT_EQ(data.status().code(), StatusCode::kCorruption) << data.status().message();
        EXPECT_EQ(data.status().errno_value(), EIO);
        EXPECT_GE(data.status().member(), 0);
        ++failures;
        continue;
      }
      EXPECT_TRUE(std::equal(data->begin(), data->end(), expected.begin() + static_cast<ptrdiff_t>(offset)))
          << "wrong bytes reached a reader at " << offset;
    }
    return failures;
  }
};

TEST_P(SilentFaultTest, LostAndMisdirectedWritesAreFound) {
  for (const Effect effect : {Effect::kLost, Effect::kMisdirected}) {
    SimArray array(GetParam(), 3, options_of(GetParam()));
    const Bytes content = make_bytes_of(GetParam(), kLength, GetParam());
    std::shared_ptr<File> file = array.create("a");
    SimFault plan = fault(Call::kWrite, SimRole::kObjects, 0, effect);
    plan.nth = 1 + GetParam() % 8;
    array.sim().inject(plan);
    ASSERT_TRUE(array.write(*file, 0, content).is_ok());
    ASSERT_TRUE(array.commit(*file).is_ok());
    file.reset();
    ASSERT_TRUE(array.close().is_ok());
    ASSERT_EQ(array.sim().fault_hits(), 1u);
    array.open();
    EXPECT_GT(count_failures(array, *array.open("a"), content), 0u);
  }
}

TEST_P(SilentFaultTest, FlippedBitsInObjectsAreFound) {
  SimArray array(GetParam(), 3, options_of(GetParam()));
  const Bytes content = make_bytes_of(GetParam(), kLength, GetParam()),
              other_content = make_bytes_of(GetParam(), kLength, GetParam() + 1);
  std::shared_ptr<File> file = array.create("a");
  ASSERT_TRUE(array.write(*file, 0, content).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  uint64_t shortest = kTestChunk;
  for (const File::MappedExtent& each : file->map(ChunkIndex(0), kLength / kTestChunk))
    shortest = std::min<uint64_t>(shortest, each.extent.stored_length);
  EXPECT_EQ(shortest < kTestChunk, compresses(GetParam()));
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  SimRandom random(GetParam());
  const std::string member = array.paths()[random.below(array.paths().size())];
  const std::vector<std::string> objects = array.sim().files_below(member + "/objects");
  ASSERT_EQ(objects.size(), 1u);
  // What pads a chunk in its last block, and the rest of its slot, is nobody's content.
  const uint64_t offset = random.below(2) * kTestChunk + random.below(shortest);
  ASSERT_TRUE(array.sim().flip_bit(objects[0], offset, static_cast<unsigned>(random.below(8))));
  array.open();
  EXPECT_GT(count_failures(array, *array.open("a"), content), 0u);
  // Writing the whole file anew heals it.
  file = array.open("a");
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  ASSERT_TRUE(array.write(*file, 0, other_content).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  EXPECT_EQ(count_failures(array, *file, other_content), 0u);
}

// Whatever bit of a sidecar flips: the file opens with content that was committed, or it does not open.
TEST_P(SilentFaultTest, FlippedBitsInSidecarsNeverGiveWrongContent) {
  SimRandom random(GetParam());
  SimArray array(GetParam());
  std::vector<Bytes> versions = {{}};
  std::shared_ptr<File> file = array.create("a");
  for (int i = 0; i < 4; ++i) {
    const Bytes data = make_bytes(random.chance(50) ? 3000 : 2 * kTestChunk, random.next());
    ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
    ASSERT_TRUE(array.write(*file, 0, data).is_ok());
    ASSERT_TRUE(array.commit(*file).is_ok());
    versions.push_back(data);
  }
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  const size_t length = array.sim().content_of("/m0/tree/a").size();
  ASSERT_TRUE(array.sim().flip_bit("/m0/tree/a", random.below(length), static_cast<unsigned>(random.below(8))));
  array.open();
  const Result<std::shared_ptr<File>> opened = array.try_open("a");
  if (!opened.is_ok()) {
    EXPECT_EQ(opened.status().code(), StatusCode::kCorruption) << opened.status().message();
    return;
  }
  const Result<Bytes> content = array.read_all(**opened);
  if (content.is_ok()) {
    EXPECT_TRUE(std::find(versions.begin(), versions.end(), *content) != versions.end());
  }
}

TEST_P(SilentFaultTest, FailedReadsAreReportedAndNotRemembered) {
  SimArray array(GetParam(), 3, options_of(GetParam()));
  const Bytes content = make_bytes_of(GetParam(), kLength, GetParam());
  std::shared_ptr<File> file = array.create("a");
  ASSERT_TRUE(array.write(*file, 0, content).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
  file.reset();
  ASSERT_TRUE(array.close().is_ok());
  array.open();
  file = array.open("a");
  SimFault plan = fault(Call::kRead, SimRole::kObjects, EIO);
  plan.count = SimFault::kForever;
  array.sim().inject(plan);
  const Result<Bytes> failed = array.read(*file, 5000, 1000);
  EXPECT_EQ(failed.status().code(), StatusCode::kIoError);
  // A write over part of a chunk needs the rest of it, so it fails too, and the file is not spoiled by that.
  EXPECT_EQ(array.write(*file, 100, Bytes(10)).code(), StatusCode::kIoError);
  array.sim().clear_faults();
  const Result<Bytes> read = array.read_all(*file);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == content);
  ASSERT_TRUE(array.write(*file, 100, Bytes(10)).is_ok());
  ASSERT_TRUE(array.commit(*file).is_ok());
}

INSTANTIATE_TEST_SUITE_P(Seeds, SilentFaultTest, ::testing::Range<uint64_t>(0, 10));

// A drive that turns full behind the engine's back: the saver hears of it, what was committed stays, and with space
// again everything works.
TEST(FullDriveTest, SuddenLackOfSpaceIsReportedAndPasses) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SimArray array(seed);
    std::shared_ptr<File> small = array.create("small");
    const Bytes kept = make_bytes(3 * kTestChunk, seed);
    ASSERT_TRUE(array.write(*small, 0, kept).is_ok());
    ASSERT_TRUE(array.control(*small, ControlRequest::Kind::kClose).is_ok());
    array.sim().set_capacity(2, 0);
    std::shared_ptr<File> big = array.create("big");
    Status status;
    const Bytes piece = make_bytes(4 * kTestChunk, seed + 1);
    for (uint64_t i = 0; i < 16 && status.is_ok(); ++i) status = array.write(*big, i * piece.size(), piece);
    if (status.is_ok()) status = array.commit(*big);
    EXPECT_EQ(status.code(), StatusCode::kNoSpace) << status.message();
    EXPECT_EQ(array.commit(*big).code(), StatusCode::kNoSpace);
    big.reset();
    array.world().drain();
    array.sim().set_capacity(2, kSimCapacityUnlimited);
    const Result<Bytes> read = array.read_all(*small);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == kept);
    std::shared_ptr<File> again = array.open("big");
    EXPECT_EQ(again->size(), 0u) << "it was never committed";
    ASSERT_TRUE(array.write(*again, 0, piece).is_ok());
    ASSERT_TRUE(array.commit(*again).is_ok());
  }
}

// A drive that is known to be nearly full: the write that does not fit is refused, and only that write.
class NearlyFullTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  static constexpr uint64_t kCapacity = 2 * kMiB;

  NearlyFullTest() : array_(GetParam()) {
    EXPECT_TRUE(array_.close().is_ok());
    for (unsigned m = 0; m < 3; ++m) array_.sim().set_capacity(m + 1, kCapacity);
    array_.open();
  }
  // Writes pieces until one is refused; how many bytes were taken.
  uint64_t fill(File& file, uint64_t seed) {
    for (uint64_t offset = 0;; offset += kPiece) {
      const Status status = array_.write(file, offset, make_bytes(kPiece, seed + offset));
      if (!status.is_ok()) {
        EXPECT_EQ(status.code(), StatusCode::kNoSpace) << status.message();
        return offset;
      }
      EXPECT_LT(offset, 4 * kCapacity) << "more than the drives hold";
      if (offset >= 4 * kCapacity) return offset;
    }
  }
  bool holds(File& file, uint64_t seed, uint64_t length) {
    const Result<Bytes> content = array_.read_all(file);
    EXPECT_TRUE(content.is_ok()) << content.status().message();
    if (!content.is_ok() || content->size() != length) return false;
    for (uint64_t offset = 0; offset < length; offset += kPiece) {
      const Bytes piece = make_bytes(kPiece, seed + offset);
      if (!std::equal(piece.begin(), piece.end(), content->begin() + static_cast<ptrdiff_t>(offset))) return false;
    }
    return true;
  }
  static constexpr uint64_t kPiece = 50'000;
  SimArray array_;
};

TEST_P(NearlyFullTest, RefusesWhatDoesNotFitAndKeepsTheRest) {
  std::shared_ptr<File> file = array_.create("file");
  const uint64_t taken = fill(*file, 1);
  EXPECT_GT(taken, 2 * kCapacity);
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  file.reset();
  array_.world().drain();
  ASSERT_TRUE(array_.close().is_ok());
  array_.open();
  file = array_.open("file");
  EXPECT_TRUE(holds(*file, 1, taken));
}

TEST_P(NearlyFullTest, WhatWasSetAsideIsKeptForItsFile) {
  const std::shared_ptr<File> file = array_.create("file"), other = array_.create("other");
  constexpr uint64_t kSetAside = kCapacity / kPiece * kPiece;
  bool in_flight = false;
  Room::Sent sent;
  EXPECT_EQ(file->reserve(FileOffset(0), 3 * kCapacity, sent, in_flight).code(), StatusCode::kNoSpace);
  ASSERT_TRUE(file->reserve(FileOffset(0), kSetAside, sent, in_flight).is_ok());
  EXPECT_EQ(other->reserve(FileOffset(0), 2 * kCapacity, sent, in_flight).code(), StatusCode::kNoSpace);
  const uint64_t taken = fill(*other, 1);
  EXPECT_GT(taken, kCapacity);
  EXPECT_LT(taken, 2 * kCapacity);
  for (uint64_t offset = 0; offset < kSetAside; offset += kPiece) {
    const Status status = array_.write(*file, offset, make_bytes(kPiece, 2 + offset));
    ASSERT_TRUE(status.is_ok()) << offset << ": " << status.message();
  }
  ASSERT_TRUE(array_.commit(*file).is_ok());
  ASSERT_TRUE(array_.commit(*other).is_ok());
  EXPECT_TRUE(holds(*file, 2, kSetAside));
  EXPECT_TRUE(holds(*other, 1, taken));
}

// Truncation, holes and the last close give back what was set aside.
TEST_P(NearlyFullTest, WhatWasSetAsideIsGivenBack) {
  std::shared_ptr<File> file = array_.create("file");
  bool in_flight = false;
  Room::Sent sent;
  const std::shared_ptr<File> other = array_.create("other");
  const auto set_aside = [&] {
    ASSERT_TRUE(file->reserve(FileOffset(0), 2 * kCapacity, sent, in_flight).is_ok());
    ASSERT_EQ(other->reserve(FileOffset(0), 2 * kCapacity, sent, in_flight).code(), StatusCode::kNoSpace);
  };
  const auto is_free = [&] {
    const bool fits = other->reserve(FileOffset(0), 2 * kCapacity, sent, in_flight).is_ok();
    EXPECT_TRUE(array_.control(*other, ControlRequest::Kind::kTruncate, 1).is_ok());
    EXPECT_TRUE(array_.control(*other, ControlRequest::Kind::kTruncate, 0).is_ok());
    return fits;
  };
  set_aside();
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 2 * kCapacity).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  EXPECT_TRUE(is_free());
  set_aside();
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 2 * kCapacity).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kPunchHole, 0, 2 * kCapacity).is_ok());
  EXPECT_TRUE(is_free());
  set_aside();
  ASSERT_TRUE(array_.commit(*file).is_ok());
  file.reset();
  array_.world().drain();
  EXPECT_TRUE(is_free());
}

TEST_P(NearlyFullTest, SpaceGivenUpIsThereForTheNextWrite) {
  uint64_t taken = 0;
  for (uint64_t round = 0; round < 4; ++round) {
    const std::string name = "file" + std::to_string(round);
    std::shared_ptr<File> file = array_.create(name);
    const uint64_t fitted = fill(*file, round);
    EXPECT_GE(fitted + 8 * kPiece, taken) << "what was removed is still in the way";
    taken = std::max(taken, fitted);
    ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
    EXPECT_TRUE(holds(*file, round, fitted));
    file.reset();
    array_.world().drain();
    ASSERT_TRUE(array_.store().unlink(array_.store().root(), name).is_ok());
    // Nothing runs from here on: the next writer has to see to it.
  }
}

TEST_P(NearlyFullTest, ReplacementThatDoesNotFitLeavesTheOldContent) {
  std::shared_ptr<File> file = array_.create("file");
  const Bytes old_content = make_bytes(2 * kCapacity, 5);
  for (uint64_t offset = 0; offset < old_content.size(); offset += kPiece)
    ASSERT_TRUE(
        array_
            .write(*file, offset,
                   std::span(old_content).subspan(offset, std::min<uint64_t>(kPiece, old_content.size() - offset)))
            .is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  fill(*file, 1);
  EXPECT_EQ(array_.control(*file, ControlRequest::Kind::kClose).code(), StatusCode::kNoSpace);
  file.reset();
  array_.world().drain();
  file = array_.open("file");
  const Result<Bytes> content = array_.read_all(*file);
  ASSERT_TRUE(content.is_ok()) << content.status().message();
  EXPECT_TRUE(*content == old_content);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NearlyFullTest, ::testing::Range<uint64_t>(0, 8));

}  // namespace
}  // namespace fpfs::test
