// Spare objects: what one file freed is written over by the next, and nobody ever notices (promises P2, P3).
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 6 * kTestChunk;  // two full chunks on each of three members

StoreOptions options() {
  StoreOptions options;
  options.inline_max = 0;
  options.spare_least = 1;
  options.spare_life = {};  // in a simulation an hour passes as soon as nobody has anything to do
  return options;
}

uint64_t spare_bytes(SimArray& array) {
  return array.sum_over_members([](const MemberStatus& member) { return member.space_spare; });
}

std::vector<std::string> objects_of(SimArray& array) {
  std::vector<std::string> objects;
  for (const std::string& member : array.paths())
    for (const std::string& path : array.sim().files_below(member + "/objects")) objects.push_back(path);
  return objects;
}

uint64_t free_bytes(SimArray& array) {
  const Result<struct statvfs> space = array.store().space();
  EXPECT_TRUE(space.is_ok()) << space.status().message();
  return space->f_bavail * space->f_frsize;
}

void replace(SimArray& array, File& file, const Bytes& content) {
  ASSERT_TRUE(array.control(file, ControlRequest::Kind::kTruncate, 0).is_ok());
  ASSERT_TRUE(array.write(file, 0, content).is_ok());
  ASSERT_TRUE(array.control(file, ControlRequest::Kind::kClose).is_ok());
}

void save(SimArray& array, const std::string& name, const Bytes& content) {
  const std::shared_ptr<File> file = array.create(name);
  ASSERT_TRUE(array.write(*file, 0, content).is_ok());
  ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
}

void expect_content(SimArray& array, const std::string& name, const Bytes& content) {
  const Result<Bytes> read = array.read_all(*array.open(name));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == content) << name;
}

class SpareObjectsTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  SimArray array_{GetParam(), 3, options()};
};

TEST_P(SpareObjectsTest, ARotationAllocatesNothing) {
  std::shared_ptr<File> file = array_.create("a");
  ASSERT_TRUE(array_.write(*file, 0, make_bytes(kLength, 0)).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  replace(array_, *file, make_bytes(kLength, 1));
  array_.world().drain();
  EXPECT_EQ(spare_bytes(array_), kLength);
  EXPECT_EQ(objects_of(array_).size(), 6u);
  for (uint64_t version = 2; version < 6; ++version) {
    // A plan that would hit: nothing is allocated any more.
    array_.sim().inject({.call = SimFault::Call::kAllocate,
                         .effect = SimFault::Effect::kError,
                         .error = EIO,
                         .filesystem = {},
                         .role = SimRole::kObjects});
    replace(array_, *file, make_bytes(kLength, version));
    EXPECT_EQ(array_.sim().fault_hits(), 0u);
    array_.sim().clear_faults();
    array_.world().drain();
    EXPECT_EQ(spare_bytes(array_), kLength);
    EXPECT_EQ(objects_of(array_).size(), 6u);
    expect_content(array_, "a", make_bytes(kLength, version));
  }
  file.reset();
  array_.crash();
  array_.open();
  expect_content(array_, "a", make_bytes(kLength, 5));
  EXPECT_EQ(objects_of(array_).size(), 3u) << "a recovery frees what was spare";
}

TEST_P(SpareObjectsTest, WhatARemovedFileLeavesServesAnotherOfAnySize) {
  for (const size_t length : {kLength / 2, kLength, 2 * kLength + 777}) {
    save(array_, "old", make_bytes(kLength, 1));
    ASSERT_TRUE(array_.store().unlink(array_.store().root(), "old").is_ok());
    array_.world().drain();
    EXPECT_GE(spare_bytes(array_), kLength);
    save(array_, "new", make_bytes(length, length));
    expect_content(array_, "new", make_bytes(length, length));
    // Nothing of the old file is left behind the new one.
    uint64_t stored = 0;
    for (const std::string& path : objects_of(array_)) stored += array_.sim().content_of(path).size();
    EXPECT_LE(stored, round_up(length, kIoAlignment) + spare_bytes(array_));
    ASSERT_TRUE(array_.store().unlink(array_.store().root(), "new").is_ok());
    array_.world().drain();
  }
  ASSERT_TRUE(array_.close().is_ok());
  EXPECT_TRUE(objects_of(array_).empty()) << "spares are freed at unmount: " << objects_of(array_).front();
  array_.open();
}

TEST_P(SpareObjectsTest, CountAsFreeSpaceAndAreGivenUpForIt) {
  constexpr uint64_t kCapacity = 4 * kMiB;
  for (unsigned m = 0; m < array_.paths().size(); ++m) array_.sim().set_capacity(m + 1, kCapacity);
  ASSERT_TRUE(array_.close().is_ok());
  array_.open();
  const uint64_t free_before = free_bytes(array_);
  save(array_, "a", make_bytes(kLength, 1));
  EXPECT_LE(free_bytes(array_) + kLength, free_before);
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "a").is_ok());
  array_.world().drain();
  EXPECT_GT(spare_bytes(array_), 0u);
  EXPECT_GE(free_bytes(array_) + 64 * kKiB, free_before);  // names and sidecars have come and gone
  // More than fits beside the spares, from a writer that cannot use them: no chunk of it is full.
  const std::shared_ptr<File> file = array_.create("b");
  Status written;
  uint64_t stored = 0;
  for (uint64_t chunk = 0; written.is_ok() && stored < free_before; ++chunk, stored += kTestChunk)
    written = array_.write(*file, chunk * kTestChunk, make_bytes(kTestChunk - 1, chunk));
  EXPECT_TRUE(written.is_ok()) << written.message() << " after " << stored << " bytes of " << free_before;
  EXPECT_TRUE(array_.commit(*file).is_ok());
  EXPECT_EQ(spare_bytes(array_), 0u);
}

TEST(SpareObjectsLifeTest, AreFreedWhenNobodyWantsThem) {
  StoreOptions with_life = options();
  with_life.spare_life = std::chrono::minutes(7);
  SimArray array(1, 3, with_life);
  save(array, "a", make_bytes(kLength, 1));
  ASSERT_TRUE(array.store().unlink(array.store().root(), "a").is_ok());
  array.world().drain();
  ASSERT_GE(spare_bytes(array), kLength);
  const time_t kept = array.world().now().tv_sec;
  ASSERT_TRUE(array.world().run_until([&array] { return spare_bytes(array) == 0; }));
  EXPECT_GE(array.world().now().tv_sec - kept, 7 * 60);
  array.world().drain();
  EXPECT_TRUE(objects_of(array).empty());
}

TEST_P(SpareObjectsTest, WhatFailedIsNotUsedAgain) {
  std::shared_ptr<File> file = array_.create("a");
  array_.sim().inject({.call = SimFault::Call::kWrite,
                       .effect = SimFault::Effect::kError,
                       .error = EIO,
                       .filesystem = {},
                       .role = SimRole::kObjects,
                       .nth = 4});
  static_cast<void>(array_.write(*file, 0, make_bytes(kLength, 1)));
  EXPECT_FALSE(array_.commit(*file).is_ok());
  array_.sim().clear_faults();
  file.reset();
  array_.world().drain();
  EXPECT_EQ(spare_bytes(array_), 0u);
  EXPECT_TRUE(objects_of(array_).empty());
}

// Readers of the old version are on their way while its objects become spare and are wanted by the next file.
TEST_P(SpareObjectsTest, AreNotWrittenUnderReaders) {
  const Bytes old_content = make_bytes(kLength, 1), new_content = make_bytes(kLength, 2);
  save(array_, "a", old_content);
  ASSERT_TRUE(array_.close().is_ok());
  array_.open();  // nothing of it is in memory
  const std::shared_ptr<File> file = array_.open("a");
  std::vector<std::unique_ptr<SimArray::Read>> reads;
  for (uint64_t chunk = 0; chunk < 6; ++chunk) {
    auto& read = *reads.emplace_back(std::make_unique<SimArray::Read>(chunk * kTestChunk, 1000));
    file->read(read.request);
  }
  replace(array_, *file, new_content);
  save(array_, "b", make_bytes(kLength, 3));
  save(array_, "c", make_bytes(kLength, 4));
  for (uint64_t chunk = 0; chunk < 6; ++chunk) {
    SimArray::Read& read = *reads[chunk];
    const Status status = array_.wait(read);
    ASSERT_TRUE(status.is_ok()) << status.message();
    const auto at = static_cast<ptrdiff_t>(chunk * kTestChunk);
    EXPECT_TRUE(read.data.empty() || std::equal(read.data.begin(), read.data.end(), old_content.begin() + at) ||
                std::equal(read.data.begin(), read.data.end(), new_content.begin() + at));
  }
  expect_content(array_, "a", new_content);
  expect_content(array_, "b", make_bytes(kLength, 3));
  expect_content(array_, "c", make_bytes(kLength, 4));
}

// Chunks that are stored in less than their slots leave holes behind them.
class CompressedSparesTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  static StoreOptions compressing() {
    StoreOptions with_zstd = options();
    with_zstd.compression.mode = Compression::Mode::kZstd;
    with_zstd.buffer_memory = 48 * kTestChunk;
    return with_zstd;
  }
  // A third of each chunk is as good as empty.
  static Bytes content(uint64_t salt) {
    Bytes bytes = make_bytes(kLength, salt);
    for (size_t at = 0; at < kLength; at += kTestChunk)
      std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), kTestChunk / 3, static_cast<std::byte>(salt));
    return bytes;
  }
  SimArray array_{GetParam(), 3, compressing()};
};

TEST_P(CompressedSparesTest, ARotationUsesThemAgain) {
  const std::shared_ptr<File> file = array_.create("a");
  ASSERT_TRUE(array_.write(*file, 0, content(0)).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  EXPECT_GT(file->info().codec_chunks[static_cast<size_t>(Codec::kBlocks)], 0u);
  for (uint64_t version = 1; version < 6; ++version) {
    replace(array_, *file, content(version));
    array_.world().drain();
    EXPECT_EQ(objects_of(array_).size(), 6u) << "three in use, three to be used again";
    EXPECT_GT(spare_bytes(array_), kLength / 2);
    EXPECT_LT(spare_bytes(array_), kLength) << "what they take, and not how long they are";
    expect_content(array_, "a", content(version));
  }
}

TEST_P(CompressedSparesTest, AreGivenUpWhenTheirHolesCannotBeFilled) {
  const std::shared_ptr<File> file = array_.create("a");
  ASSERT_TRUE(array_.write(*file, 0, content(0)).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  replace(array_, *file, content(1));
  array_.world().drain();
  ASSERT_EQ(objects_of(array_).size(), 6u);
  array_.sim().inject({.call = SimFault::Call::kAllocate,
                       .effect = SimFault::Effect::kError,
                       .error = ENOSPC,
                       .filesystem = {},
                       .role = SimRole::kObjects});
  replace(array_, *file, content(2));
  EXPECT_GT(array_.sim().fault_hits(), 0u);
  array_.sim().clear_faults();
  array_.world().drain();
  EXPECT_LE(objects_of(array_).size(), 6u);
  expect_content(array_, "a", content(2));
}

INSTANTIATE_TEST_SUITE_P(Seeds, CompressedSparesTest, ::testing::Range<uint64_t>(0, 10));
INSTANTIATE_TEST_SUITE_P(Seeds, SpareObjectsTest, ::testing::Range<uint64_t>(0, 30));

}  // namespace
}  // namespace fpfs::test
