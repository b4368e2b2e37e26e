// What power cuts and failing drives leave of a sidecar. The rules that these tests hold fold_sidecar() to:
//
// - A power cut during an append (file too short, any 512-byte sectors of the append missing) gives the state before
// it.
// - Any single flipped bit in the header or at or behind the newest snapshot is kCorruption, in the last record too.
//   A bit before the newest snapshot (behind the header) is dead: the result does not change.
// - Damage that turns whole sectors of the last record into zeros is the one kind that looks like a power cut. The same
//   damage anywhere else is kCorruption.
#include <gtest/gtest.h>

#include <set>

#include "engine/codec/hash.h"
#include "engine/index/sidecar_format.h"
#include "tests/engine/index/sidecar_testing.h"
#include "tests/support/sanitizers.h"

namespace fpfs {
namespace {

using namespace sidecar_testing;

// A log with a snapshot somewhere inside, and records of every kind.
LogWriter make_log(uint64_t seed, int commits) {
  LogWriter log(seed);
  for (int commit = 0; commit < commits; ++commit) log.commit_random();
  return log;
}

TEST(SidecarTorn, EveryPrefixOfTheLastAppendGivesTheStateBefore) {
  for (uint64_t seed = 1; seed <= test::alike(60); ++seed) {
    LogWriter log = make_log(seed, static_cast<int>(seed % 7));
    seed % 5 == 0 ? log.commit_snapshot() : log.commit_random();
    const Model& before = log.states[log.states.size() - 2];
    for (uint64_t length = log.appended_from; length < log.bytes.size(); ++length) {
      SidecarFindings findings;
      const auto image = fold({log.bytes.begin(), log.bytes.begin() + length}, &findings);
      ASSERT_TRUE(image.is_ok()) << "seed " << seed << " cut at " << length << ": " << image.status().message();
      ASSERT_EQ(difference(*image, before), "") << "seed " << seed << " cut at " << length;
      ASSERT_EQ(findings.torn_tail, length > log.appended_from);
      ASSERT_EQ(findings.torn_bytes, length - log.appended_from);
    }
  }
}

TEST(SidecarTorn, AnyMissingSectorsOfTheLastAppendGiveTheStateBefore) {
  constexpr uint64_t kSector = 512;
  unsigned rolled_back = 0;
  for (uint64_t seed = 1; seed <= test::alike(3000); ++seed) {
    SCOPED_TRACE(seed);
    LogWriter log = make_log(seed, static_cast<int>(seed % 9));
    seed % 4 == 0 ? log.commit_snapshot() : log.commit_extents(seed % 100);
    const Model& before = log.states[log.states.size() - 2];

    std::vector<std::byte> bytes = log.bytes;
    std::vector<std::pair<uint64_t, uint64_t>> missing;
    const unsigned keep_of_8 = static_cast<unsigned>(log.random() % 9);
    for (uint64_t at = log.appended_from; at < bytes.size(); at = at / kSector * kSector + kSector) {
      if (log.random() % 8 < keep_of_8) continue;
      missing.emplace_back(at, std::min(bytes.size(), at / kSector * kSector + kSector));
    }
    MemoryReader reader(bytes);
    for (const auto& [begin, end] : missing) {
      reader.punch(begin, end);
      std::fill(bytes.begin() + begin, bytes.begin() + end, std::byte{0});
    }
    SidecarFindings findings;
    const auto image = fold(reader, &findings);
    ASSERT_TRUE(image.is_ok()) << image.status().message();
    const bool complete = bytes == log.bytes;  // only sectors of zeros were missing
    ASSERT_EQ(difference(*image, complete ? log.states.back() : before), "");
    ASSERT_EQ(findings.torn_tail, !complete);
    rolled_back += !complete;

    // The same with the size not grown to the end.
    bytes.resize(log.appended_from + log.random() % (bytes.size() - log.appended_from));
    const auto shorter = fold(bytes);
    ASSERT_TRUE(shorter.is_ok()) << shorter.status().message();
    ASSERT_EQ(difference(*shorter, before), "");
  }
  EXPECT_GT(rolled_back, test::alike(2000));
}

// Wherever in a sector the record begins: its head may reach into one that is zeros but for the head's last bytes.
TEST(SidecarTorn, AnyMissingSectorOfContentThatBeginsWithZerosGivesTheStateBefore) {
  constexpr uint64_t kSector = 512;
  std::vector<std::byte> content(3000, std::byte{7});
  std::fill_n(content.begin(), 1000, std::byte{0});
  for (size_t before = 8; before <= kSector; before += 8) {
    LogWriter log(1);
    log.commit_inline(std::vector<std::byte>(before, std::byte{1}));
    log.commit_inline(content);
    for (uint64_t at = log.appended_from; at < log.bytes.size(); at = at / kSector * kSector + kSector) {
      std::vector<std::byte> bytes = log.bytes;
      const uint64_t end = std::min<uint64_t>(bytes.size(), at / kSector * kSector + kSector);
      std::fill(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(end), std::byte{0});
      SidecarFindings findings;
      const auto image = fold(bytes, &findings);
      ASSERT_TRUE(image.is_ok()) << log.appended_from << ", sector at " << at << ": " << image.status().message();
      const bool complete = bytes == log.bytes;
      ASSERT_EQ(difference(*image, log.states[complete ? log.states.size() - 1 : log.states.size() - 2]), "");
    }
  }
}

TEST(SidecarTorn, InlineContentOfZerosIsNoTornTail) {
  LogWriter log(8);
  log.commit_inline(std::vector<std::byte>(kInlineSizeMax));
  const auto image = fold(log.bytes);
  ASSERT_TRUE(image.is_ok());
  EXPECT_EQ(difference(*image, log.states.back()), "");
}

TEST(SidecarTorn, AppendingGoesOnWhereTheTornTailWasCut) {
  LogWriter log = make_log(31, 6);
  LogWriter torn = log;
  torn.commit_extents(200);
  torn.bytes.resize(torn.bytes.size() - 1);
  const auto image = fold(torn.bytes);
  ASSERT_TRUE(image.is_ok());
  ASSERT_EQ(image->end, SidecarOffset(log.bytes.size()));
  log.commit_extents(3);
  EXPECT_EQ(difference(*fold(log.bytes), log.states.back()), "");
}

TEST(SidecarDamage, EveryFlippedBitIsFoundOrDead) {
  for (uint64_t seed = 1; seed <= test::alike(10); ++seed) {
    LogWriter log(seed);
    log.commit_extents(3);
    log.commit_inline(log.random_bytes(600, false));
    if (seed % 2 == 0) log.commit_snapshot();
    for (uint64_t i = 0; i < seed % 4; ++i) log.commit_extents(4);
    if (seed % 3 == 0) log.commit_inline(std::vector<std::byte>(1500));
    if (seed % 5 == 0) log.commit_snapshot();
    std::vector<std::byte> bytes = log.bytes;
    for (uint64_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const uint64_t offset = bit / 8;
      bytes[offset] ^= std::byte(1 << bit % 8);
      const auto image = fold(bytes);
      if (offset >= kSidecarHeaderSize && offset < log.snapshot_offset) {
        ASSERT_TRUE(image.is_ok()) << "seed " << seed << " offset " << offset << ": " << image.status().message();
        ASSERT_EQ(difference(*image, log.states.back()), "") << "seed " << seed << " offset " << offset;
      } else {
        ASSERT_EQ(image.status().code(), StatusCode::kCorruption) << "seed " << seed << " offset " << offset;
      }
      bytes[offset] ^= std::byte(1 << bit % 8);
    }
  }
}

// Overwrites [offset, offset + length) of a log and folds it.
Result<FileImage> fold_overwritten(const LogWriter& log, uint64_t offset, uint64_t length, bool zeros) {
  std::vector<std::byte> bytes = log.bytes;
  std::mt19937_64 random(offset);
  for (uint64_t i = offset; i < std::min(bytes.size(), offset + length); ++i)
    bytes[i] = zeros ? std::byte{0} : static_cast<std::byte>(random() | 1);
  return fold(bytes);
}

TEST(SidecarDamage, LostSectorsBeforeTheLastRecordAreNeverRolledBack) {
  for (uint64_t seed = 1; seed <= test::alike(12); ++seed) {
    SCOPED_TRACE(seed);
    LogWriter log(seed);
    for (int i = 0; i < 4; ++i) log.commit_extents(40);
    if (seed % 3 == 0) log.commit_snapshot();
    for (int i = 0; i < 4; ++i) log.commit_extents(40);
    // The sector that holds the end of the record before the last; what follows it holds nothing but the last.
    const uint64_t before_last = (log.record_offset - 1) / 512 * 512;
    for (uint64_t offset = 0; offset < log.bytes.size(); offset += 512) {
      if (offset > 0 && offset < log.snapshot_offset) continue;
      const auto garbage = fold_overwritten(log, offset, 512, false);
      EXPECT_EQ(garbage.status().code(), StatusCode::kCorruption) << "garbage at " << offset;
      const auto zeros = fold_overwritten(log, offset, 512, true);
      if (offset <= before_last) {
        EXPECT_EQ(zeros.status().code(), StatusCode::kCorruption) << "zeros at " << offset;
      } else {
        ASSERT_TRUE(zeros.is_ok()) << "zeros at " << offset << ": " << zeros.status().message();
        EXPECT_EQ(difference(*zeros, log.states[log.states.size() - 2]), "");
      }
    }
  }
}

TEST(SidecarDamage, MessagesNameBothPlaces) {
  LogWriter log(17);
  for (int i = 0; i < 5; ++i) log.commit_extents(10);
  log.bytes[log.record_offsets[2] + 100] ^= std::byte{4};
  const std::string with_trailer = fold(log.bytes).status().message();
  EXPECT_NE(with_trailer.find(std::to_string(log.record_offsets[2])), std::string::npos) << with_trailer;
  EXPECT_NE(with_trailer.find(std::to_string(log.record_offsets[4])), std::string::npos) << with_trailer;
  log.bytes.pop_back();
  const std::string with_torn_tail = fold(log.bytes).status().message();
  EXPECT_NE(with_torn_tail.find(std::to_string(log.record_offsets[2])), std::string::npos) << with_torn_tail;
  EXPECT_NE(with_torn_tail.find(std::to_string(log.record_offsets[3])), std::string::npos) << with_torn_tail;
}

TEST(SidecarDamage, ADamagedSnapshotBehindAPunchedPrefixIsNotReplacedByAncientRecords) {
  for (const bool damage_trailer : {false, true}) {
    LogWriter log(23);
    while (log.bytes.size() < 30'000) log.commit_extents(5);
    log.commit_snapshot();
    std::vector<std::byte> bytes = log.bytes;
    bytes[damage_trailer ? bytes.size() - 10 : log.record_offset + 500] ^= std::byte{1};
    MemoryReader reader(bytes);
    reader.punch(4096, log.record_offset);
    EXPECT_EQ(fold(reader).status().code(), StatusCode::kCorruption);
  }
}

TEST(SidecarDamage, ALostHeaderOfACommittedSidecarIsCorruption) {
  LogWriter log(12);
  log.commit_extents(30);
  // One commit, first sector missing: what a power cut during the first commit leaves.
  std::vector<std::byte> bytes = log.bytes;
  std::fill_n(bytes.begin(), 512, std::byte{0});
  SidecarFindings findings;
  const auto first = fold(bytes, &findings);
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(difference(*first, Model()), "");
  EXPECT_TRUE(findings.torn_tail);
  EXPECT_EQ(findings.torn_bytes, bytes.size());
  // With a second commit behind it, it was not that. Neither with the last bytes lost as well.
  log.commit_extents(30);
  bytes = log.bytes;
  std::fill_n(bytes.begin(), 512, std::byte{0});
  EXPECT_EQ(fold(bytes).status().code(), StatusCode::kCorruption);
  bytes.resize(bytes.size() - 1);
  EXPECT_EQ(fold(bytes).status().code(), StatusCode::kCorruption);
}

TEST(SidecarGarbage, RandomBytesAreNeverBelieved) {
  std::mt19937_64 random(1);
  for (int round = 0; round < static_cast<int>(test::alike(3000)); ++round) {
    std::vector<std::byte> bytes(1 + random() % 6000);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    const auto image = fold(bytes);
    if (bytes.size() < kSidecarHeaderSize) continue;  // may be the beginning of a first commit
    ASSERT_EQ(image.status().code(), StatusCode::kCorruption);
  }
}

TEST(SidecarGarbage, MutatedLogsNeverGiveAStateThatWasNotCommitted) {
  for (uint64_t seed = 1; seed <= test::alike(3000); ++seed) {
    LogWriter log = make_log(seed, 8);
    std::vector<std::byte>& bytes = log.bytes;
    for (uint64_t mutation = 0; mutation <= seed % 4; ++mutation) {
      const size_t at = log.random() % bytes.size();
      const size_t length = std::min<size_t>(bytes.size() - at, log.random() % 700);
      switch (log.random() % 5) {
        case 0:
          bytes[at] = static_cast<std::byte>(log.random());
          break;
        case 1:
          std::fill_n(bytes.begin() + at, length, std::byte{0});
          break;
        case 2:
          bytes.resize(at + 1);
          break;
        case 3:
          bytes.insert(bytes.end(), bytes.begin() + at, bytes.begin() + at + length);
          break;
        case 4:
          bytes.erase(bytes.begin() + at, bytes.begin() + at + length / 2);
          break;
      }
      if (bytes.empty()) bytes.resize(1);
    }
    const auto image = fold(bytes);
    if (!image.is_ok()) continue;
    ASSERT_LT(image->sequence, log.states.size());
    ASSERT_EQ(difference(*image, log.states[image->sequence]), "") << "seed " << seed;
  }
}

// Damage that a checksum does not show (made by hand here): nothing is allocated or read beyond the file.
TEST(SidecarGarbage, ForgedRecordsAreHarmless) {
  using namespace sidecar;
  unsigned refused = 0;
  for (uint64_t seed = 1; seed <= test::alike(20000); ++seed) {
    LogWriter log(seed);
    log.commit_extents(6);
    const std::span<std::byte> record = std::span(log.bytes).subspan(log.record_offset);
    const std::span<std::byte> trailer = record.last(kSidecarTrailerSize);
    for (uint64_t i = 0; i <= seed % 3; ++i) {
      const size_t at = 8 + log.random() % (record.size() - 8);
      record[at] = static_cast<std::byte>(log.random());
    }
    const uint64_t place = record_seed(log.header.array_id, log.header.file_id, SidecarOffset(log.record_offset));
    const auto body = record.subspan(kHeadSize, record.size() - kHeadSize - kSidecarTrailerSize);
    put_u64(&record[head_at::kBodyChecksum], hash_bytes(body, place));
    put_u64(&record[head_at::kHeadChecksum], hash_bytes(record.first(head_at::kHeadChecksum), place));
    put_u64(&trailer[trailer_at::kChecksum],
            hash_bytes(trailer.first(trailer_at::kChecksum), 0x6c69617472504653 ^ log.bytes.size()));
    const auto image = fold(log.bytes);
    if (!image.is_ok()) ++refused;
  }
  EXPECT_GT(refused, test::alike(1000));
}

}  // namespace
}  // namespace fpfs
