// Encoding, decoding and folding of sidecars that are whole.
#include "engine/index/sidecar.h"

#include <gtest/gtest.h>

#include "tests/engine/index/sidecar_testing.h"

namespace fpfs {
namespace {

using namespace sidecar_testing;

TEST(SidecarHeader, RoundTripAndRefusals) {
  SidecarHeader header{test_array(), FileId(0x0123456789abcdef), kChunkSize};
  std::vector<std::byte> bytes = encode_sidecar_header(header);
  ASSERT_EQ(bytes.size(), kSidecarHeaderSize);
  const auto decoded = decode_sidecar_header(bytes);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  EXPECT_EQ(decoded->array_id, header.array_id);
  EXPECT_EQ(decoded->file_id, header.file_id);
  EXPECT_EQ(decoded->chunk_size, header.chunk_size);
  EXPECT_EQ(decode_sidecar_header(std::span(bytes).first(127)).status().code(), StatusCode::kCorruption);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_EQ(decode_sidecar_header(bytes).status().code(), StatusCode::kCorruption) << "bit " << bit;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
}

TEST(SidecarFold, EmptySidecarIsAnEmptyFile) {
  SidecarFindings findings;
  const auto image = fold({}, &findings);
  ASSERT_TRUE(image.is_ok());
  EXPECT_EQ(image->sequence, 0u);
  EXPECT_EQ(image->end, SidecarOffset(0));
  EXPECT_EQ(image->size, 0u);
  EXPECT_FALSE(findings.torn_tail);
}

TEST(SidecarFold, EveryPrefixOfALongLogMatchesTheModel) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogWriter log(seed);
    for (int commit = 0; commit < 120; ++commit) {
      log.commit_random();
      SidecarFindings findings;
      const auto image = fold(log.bytes, &findings);
      ASSERT_TRUE(image.is_ok()) << "seed " << seed << ": " << image.status().message();
      ASSERT_EQ(difference(*image, log.states.back()), "") << "seed " << seed << " commit " << commit;
      EXPECT_EQ(image->file_id, log.header.file_id);
      EXPECT_EQ(image->snapshot_offset, SidecarOffset(log.snapshot_offset));
      EXPECT_FALSE(findings.torn_tail);
    }
  }
}

TEST(SidecarFold, TheTrailerAloneAnswersStat) {
  LogWriter log(5);
  for (int commit = 0; commit < 60; ++commit) {
    log.commit_random();
    const Model& model = log.states.back();
    const auto tail = std::span(log.bytes).last(kSidecarTrailerSize);
    const auto summary = decode_sidecar_trailer(tail, SidecarOffset(log.bytes.size()));
    ASSERT_TRUE(summary.is_ok()) << summary.status().message();
    EXPECT_EQ(summary->file_id, log.header.file_id);
    EXPECT_EQ(summary->sequence, model.sequence);
    EXPECT_EQ(summary->generation, model.generation);
    EXPECT_EQ(summary->size, model.size);
    EXPECT_EQ(summary->allocated, model.allocated());
    EXPECT_EQ(summary->is_inline, model.is_inline);
    EXPECT_EQ(summary->record_offset, SidecarOffset(log.record_offset));
    EXPECT_EQ(summary->snapshot_offset, SidecarOffset(log.snapshot_offset));
    EXPECT_EQ(decode_sidecar_trailer(tail, SidecarOffset(log.bytes.size() + 1)).status().code(),
              StatusCode::kCorruption);
    EXPECT_FALSE(decode_sidecar_trailer(tail.first(63), SidecarOffset(log.bytes.size())).is_ok());
  }
}

TEST(SidecarFold, TheDeadPrefixBeforeASnapshotMayBePunched) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    LogWriter log(seed);
    while (log.bytes.size() < 20'000) log.commit_random();
    log.commit_snapshot();
    const uint64_t snapshot = log.record_offset;
    const size_t commits_after = seed % 4;
    for (size_t i = 0; i < commits_after; ++i) log.commit_extents(3);

    MemoryReader reader(log.bytes);
    reader.punch(4096, snapshot);
    const auto image = fold(reader);
    ASSERT_TRUE(image.is_ok()) << image.status().message();
    EXPECT_EQ(difference(*image, log.states.back()), "");
    EXPECT_EQ(image->snapshot_offset, SidecarOffset(snapshot));

    // With a torn tail the trailer does not help: the snapshot is searched for.
    LogWriter longer = log;
    longer.commit_extents(30);
    longer.bytes.resize(log.bytes.size() + 500);
    MemoryReader torn(longer.bytes);
    torn.punch(4096, snapshot);
    SidecarFindings findings;
    const auto before = fold(torn, &findings);
    ASSERT_TRUE(before.is_ok()) << before.status().message();
    EXPECT_EQ(difference(*before, log.states.back()), "");
    EXPECT_TRUE(findings.torn_tail);
    EXPECT_EQ(findings.torn_bytes, 500u);
  }
}

TEST(SidecarFold, ASnapshotIsReadWithoutTheLogBeforeIt) {
  LogWriter log(77);
  for (int commit = 0; commit < 2000; ++commit) log.commit_extents(20);
  log.commit_snapshot();
  MemoryReader reader(log.bytes);
  const auto image = fold(reader);
  ASSERT_TRUE(image.is_ok());
  EXPECT_EQ(difference(*image, log.states.back()), "");
  EXPECT_LT(reader.bytes_read, 300'000u);
  EXPECT_GT(log.bytes.size(), 1'000'000u);
  EXPECT_LE(image->live_bytes, log.bytes.size() - log.record_offset + kSidecarHeaderSize);
}

TEST(SidecarFold, RecordsAreBoundToArrayFileAndPlace) {
  LogWriter log(3), other(4);
  for (int commit = 0; commit < 4; ++commit) {
    log.commit_extents(4);
    other.commit_extents(4);
  }
  // Another array's file.
  Uuid foreign = test_array();
  foreign[3] ^= std::byte{1};
  MemoryReader reader(log.bytes);
  const auto as_foreign = fold_sidecar(reader, foreign, kMembers, kChunkSize, nullptr);
  ASSERT_EQ(as_foreign.status().code(), StatusCode::kCorruption);
  EXPECT_NE(as_foreign.status().message().find("another array"), std::string::npos);
  // Another chunk size.
  EXPECT_EQ(fold_sidecar(reader, test_array(), kMembers, 2 * kChunkSize, nullptr).status().code(),
            StatusCode::kCorruption);
  // The last record of another file at the same place.
  std::vector<std::byte> mixed = log.bytes;
  mixed.resize(log.record_offset);
  const auto stolen = std::span(other.bytes).subspan(other.record_offset);
  mixed.insert(mixed.end(), stolen.begin(), stolen.end());
  EXPECT_EQ(fold(mixed).status().code(), StatusCode::kCorruption);
  // The own last record once more, behind itself.
  std::vector<std::byte> repeated = log.bytes;
  const std::vector<std::byte> last(log.bytes.begin() + log.record_offset, log.bytes.end());
  repeated.insert(repeated.end(), last.begin(), last.end());
  EXPECT_EQ(fold(repeated).status().code(), StatusCode::kCorruption);
}

// Values that pass every checksum and still make no sense are errors, never used.
TEST(SidecarFold, ImpossibleValuesAreRefused) {
  const auto folded = [](const std::function<void(SidecarRecord&)>& change) {
    LogWriter log(9);
    SidecarRecord record = log.empty_record();
    for (const uint64_t chunk : {3, 4, 9}) {
      Extent extent;
      extent.codec = Codec::kRaw;
      extent.stored_length = extent.raw_length = extent.visible_length = 1000;
      extent.member = MemberIndex(1);
      record.extents.emplace_back(chunk, extent);
    }
    change(record);
    log.commit(record);
    return fold(log.bytes).status();
  };
  EXPECT_TRUE(folded([](SidecarRecord&) {}).is_ok());
  const auto away = [](const std::function<void(Extent&)>& change) {
    return [change](SidecarRecord& record) {
      Extent& extent = record.extents[1].second;
      extent.codec = Codec::kAway;
      extent.stored_length = 0;
      extent.member = MemberIndex(0);
      change(extent);
    };
  };
  EXPECT_TRUE(folded(away([](Extent&) {})).is_ok());
  const std::vector<std::function<void(SidecarRecord&)>> changes = {
      [](SidecarRecord& record) { record.extents[1].second.member = MemberIndex(kMembers); },
      [](SidecarRecord& record) { record.extents[1].second.stored_length = kChunkSize + 1; },
      [](SidecarRecord& record) { record.extents[1].second.stored_length = 0; },
      [](SidecarRecord& record) { record.extents[1].second.raw_length = 999; },
      [](SidecarRecord& record) { record.extents[1].second.visible_length = 1001; },
      [](SidecarRecord& record) { record.extents[1].second.slot = SlotIndex(UINT64_MAX / kChunkSize); },
      [](SidecarRecord& record) { record.extents[1].second.codec = static_cast<Codec>(kCodecs); },
      [](SidecarRecord& record) { record.extents[1].second.codec = static_cast<Codec>(200); },
      [](SidecarRecord& record) { record.extents[1].first = ChunkIndex(3); },
      [](SidecarRecord& record) { record.extents[1].first = ChunkIndex(10); },
      [](SidecarRecord& record) { record.extents[2].first = ChunkIndex(UINT64_MAX); },
      away([](Extent& extent) { extent.stored_length = 1; }),
      away([](Extent& extent) { extent.slot = SlotIndex(1); }),
      away([](Extent& extent) { extent.member = MemberIndex(1); }),
      away([](Extent& extent) { extent.visible_length = 999; }),
      away([](Extent& extent) { extent.raw_length = extent.visible_length = 0; }),
      away([](Extent& extent) { extent.raw_length = extent.visible_length = kChunkSize + 1; }),
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const Status status = folded(changes[i]);
    EXPECT_FALSE(status.is_ok()) << "change " << i;
    EXPECT_NE(status.message().find("record 1 at offset 128"), std::string::npos) << status.message();
  }
}

TEST(SidecarFold, SequencesHaveNoGaps) {
  LogWriter log(21);
  log.commit_extents(2);
  SidecarRecord record = log.empty_record();
  record.sequence = 3;
  encode_sidecar_record(log.header, record, SidecarOffset(log.bytes.size()), SidecarOffset(0), log.bytes);
  EXPECT_EQ(fold(log.bytes).status().code(), StatusCode::kCorruption);
}

}  // namespace
}  // namespace fpfs
