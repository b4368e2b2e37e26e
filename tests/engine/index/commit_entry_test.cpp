// The commit log's bytes (engine/index/commit_entry.h): what was written is read, and nothing else is taken for an entry.
#include "engine/index/commit_entry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/base/bytes.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;

const Uuid kArray = {std::byte{1}, std::byte{2}, std::byte{3}};
const Uuid kOther = {std::byte{9}};

CommitEntry some_entry(uint64_t number, size_t sidecar_bytes) {
  CommitEntry entry;
  entry.number = number;
  entry.directory = "directory " + std::to_string(number);
  entry.name = "name" + std::to_string(number);
  entry.file = std::string("file\0x", 6);
  entry.inode = 1000 + number;
  entry.mode = 0640;
  entry.owner = 12;
  entry.group = 34;
  entry.mtime = {-5, 999'999'999};
  entry.sidecar.resize(sidecar_bytes, static_cast<std::byte>(number));
  return entry;
}

Bytes some_log(uint64_t first) {
  Bytes log(kCommitLogBytes);
  std::ranges::copy(encode_commit_header(kArray, first), log.begin());
  return log;
}

void put(Bytes& log, unsigned slot, const CommitEntry& entry) {
  Bytes bytes;
  encode_commit_entry(kArray, entry, bytes);
  std::ranges::copy(bytes, log.begin() + static_cast<ptrdiff_t>(commit_slot_offset(slot)));
}

TEST(CommitEntryTest, WhatWasWrittenIsRead) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3584}, size_t{3585}, size_t{7680}}) {
    const CommitEntry entry = some_entry(7, size);
    ASSERT_TRUE(fits_commit_entry(entry));
    Bytes bytes;
    encode_commit_entry(kArray, entry, bytes);
    EXPECT_EQ(bytes.size(), size <= 3584 ? kCommitBlock : kCommitSlotBytes);
    const auto read = decode_commit_entry(kArray, bytes);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->number, 7U);
    EXPECT_EQ(read->directory, entry.directory);
    EXPECT_EQ(read->name, entry.name);
    EXPECT_EQ(read->file, entry.file);
    EXPECT_EQ(read->inode, 1007U);
    EXPECT_EQ(read->mode, 0640U);
    EXPECT_EQ(read->owner, 12U);
    EXPECT_EQ(read->group, 34U);
    EXPECT_EQ(read->mtime.tv_sec, -5);
    EXPECT_EQ(read->mtime.tv_nsec, 999'999'999);
    EXPECT_EQ(read->sidecar, entry.sidecar);
    EXPECT_FALSE(decode_commit_entry(kOther, bytes).has_value());
  }
}

TEST(CommitEntryTest, WhatHasNoRoomHasNoEntry) {
  EXPECT_FALSE(fits_commit_entry(some_entry(1, 7681)));
  CommitEntry entry = some_entry(1, 100);
  entry.name = std::string(255, 'n');
  EXPECT_TRUE(fits_commit_entry(entry));
  entry.name += 'n';
  EXPECT_FALSE(fits_commit_entry(entry));
  entry = some_entry(1, 100);
  entry.file = std::string(kCommitIdentityMax + 1, 'i');
  EXPECT_FALSE(fits_commit_entry(entry));
  entry.file.clear();  // nobody knows it
  EXPECT_FALSE(fits_commit_entry(entry));
}

// A power cut keeps each sector or loses it.
TEST(CommitEntryTest, WithoutOneOfItsSectorsItIsNone) {
  Bytes whole;
  encode_commit_entry(kArray, some_entry(3, 4384), whole);
  for (size_t at = 0; at < kCommitHeadBytes + 4384; at += 512) {
    Bytes torn = whole;
    std::fill_n(torn.begin() + static_cast<ptrdiff_t>(at), 512, std::byte{0});
    EXPECT_FALSE(decode_commit_entry(kArray, torn).has_value()) << at;
  }
  for (size_t at = 0; at < kCommitHeadBytes + 4384; at += 7) {
    Bytes damaged = whole;
    damaged[at] ^= std::byte{4};
    const auto read = decode_commit_entry(kArray, damaged);
    EXPECT_FALSE(read.has_value()) << at;
  }
}

TEST(CommitLogImageTest, EntriesCountFromTheHeadersNumberOn) {
  Bytes log = some_log(5);
  put(log, 0, some_entry(6, 100));
  put(log, 1, some_entry(4, 5000));  // retired
  put(log, 200, some_entry(5, 5000));
  const Result<CommitLogImage> image = decode_commit_log(kArray, log);
  ASSERT_TRUE(image.is_ok());
  ASSERT_EQ(image->entries.size(), 2U);
  EXPECT_EQ(image->entries[0].number, 5U);
  EXPECT_EQ(image->entries[1].number, 6U);
  EXPECT_EQ(image->next, 7U);
}

// Whoever saves a file decides what is in the second block of a slot, and of what was there before.
TEST(CommitLogImageTest, NoContentIsTakenForAnEntry) {
  CommitEntry forged = some_entry(1000, 100);
  forged.owner = 0;
  forged.mode = 04755;
  Bytes bytes;
  encode_commit_entry(kArray, forged, bytes);
  CommitEntry entry = some_entry(5, 7680);
  std::ranges::copy(std::span(bytes).first(kCommitBlock),
                    entry.sidecar.begin() + static_cast<ptrdiff_t>(kCommitBlock - kCommitHeadBytes));
  Bytes log = some_log(5);
  put(log, 0, entry);
  put(log, 0, some_entry(6, 10));  // shorter: the second block stays
  const Result<CommitLogImage> image = decode_commit_log(kArray, log);
  ASSERT_TRUE(image.is_ok());
  ASSERT_EQ(image->entries.size(), 1U);
  EXPECT_EQ(image->entries[0].number, 6U);
}

TEST(CommitLogImageTest, ADamagedHeaderIsSaid) {
  Bytes log = some_log(5);
  log[20] ^= std::byte{1};
  EXPECT_EQ(decode_commit_log(kArray, log).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(decode_commit_log(kOther, some_log(5)).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(decode_commit_log(kArray, Bytes(100)).status().code(), StatusCode::kCorruption);
  Bytes cut = some_log(5);
  cut.resize(kCommitLogBytes - 1);
  EXPECT_EQ(decode_commit_log(kArray, cut).status().code(), StatusCode::kCorruption);
  const Result<CommitLogImage> unused = decode_commit_log(kArray, Bytes(kCommitLogBytes));
  ASSERT_TRUE(unused.is_ok());
  EXPECT_TRUE(unused->entries.empty());
}

}  // namespace
}  // namespace fpfs
