#include "engine/layout/stripe.h"

#include <vector>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

constexpr StripeMap kStripes{.chunk_size = 4096, .member_count = 3};

TEST(StripeMap, ChunksGoRoundTheMembers) {
  constexpr FileId kFile(uint64_t{2} << 32);
  EXPECT_EQ(kStripes.start(kFile), MemberIndex(2));
  EXPECT_EQ(kStripes.member_of(kFile, ChunkIndex(0)), MemberIndex(2));
  EXPECT_EQ(kStripes.member_of(kFile, ChunkIndex(1)), MemberIndex(0));
  EXPECT_EQ(kStripes.member_of(kFile, ChunkIndex(3)), MemberIndex(2));
  EXPECT_EQ(kStripes.natural_slot(ChunkIndex(2)), SlotIndex(0));
  EXPECT_EQ(kStripes.natural_slot(ChunkIndex(3)), SlotIndex(1));
}

// As after members 1 and 3 of five have left, and 5 has taken the place of the former.
TEST(StripeMap, ChunksGoRoundThoseThatTakePart) {
  const std::vector<MemberIndex> order = {MemberIndex(0), MemberIndex(5), MemberIndex(2), MemberIndex(4)};
  const StripeMap stripes{4096, 6, &order};
  EXPECT_EQ(stripes.width(), 4);
  EXPECT_TRUE(stripes.takes_part(MemberIndex(5)));
  EXPECT_FALSE(stripes.takes_part(MemberIndex(3)));
  constexpr FileId kFile(uint64_t{3} << 32);
  EXPECT_EQ(stripes.start(kFile), MemberIndex(4));
  EXPECT_EQ(stripes.member_of(kFile, ChunkIndex(1)), MemberIndex(0));
  EXPECT_EQ(stripes.member_of(kFile, ChunkIndex(2)), MemberIndex(5));
  EXPECT_EQ(stripes.member_of(kFile, ChunkIndex(7)), MemberIndex(2));
  EXPECT_EQ(stripes.natural_slot(ChunkIndex(7)), SlotIndex(1));
  for (const MemberIndex start : order) EXPECT_EQ(stripes.start(stripes.with_start(FileId(UINT64_MAX), start)), start);
  EXPECT_EQ(stripes.with_start(kFile, MemberIndex(1)), kFile) << "none that it could be given";
}

TEST(StripeMap, TurnedRowsHaveOneChunkOnEachMember) {
  for (const uint16_t members : {1, 2, 3, 4, 7, 16, 255}) {
    const StripeMap stripes{.chunk_size = 4096, .member_count = members, .has_turned_rows = true};
    constexpr FileId kFile(uint64_t{5} << 32);
    for (const uint64_t row : {0, 1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 1'000'000, 1 << 30}) {
      std::vector<int> chunks(members);
      for (uint64_t place = 0; place < members; ++place) {
        const ChunkIndex chunk(row * members + place);
        ++chunks[stripes.member_of(kFile, chunk).value()];
        EXPECT_EQ(stripes.natural_slot(chunk), SlotIndex(row));
      }
      EXPECT_EQ(chunks, std::vector<int>(members, 1)) << members << " members, row " << row;
    }
  }
}

// As the beginnings of tensors are, with what a loader reads around each.
TEST(StripeMap, InTurnedRowsChunksThatArePowersOfTwoApartAreOnAllMembers) {
  for (const uint16_t members : {2, 4, 8, 16}) {
    const StripeMap stripes{.chunk_size = 4096, .member_count = members, .has_turned_rows = true};
    for (uint64_t apart = 1; apart <= 4096; apart *= 2) {
      std::vector<unsigned> chunks(members);
      for (uint64_t tensor = 0; tensor < 64 * members; ++tensor)
        ++chunks[stripes.member_of(FileId(1), ChunkIndex(tensor * apart)).value()];
      EXPECT_EQ(chunks, std::vector<unsigned>(members, 64)) << members << " members, " << apart << " chunks apart";
    }
  }
}

TEST(StripeMap, TheFirstRowsOfFourMembers) {
  const StripeMap stripes{.chunk_size = 4096, .member_count = 4, .has_turned_rows = true};
  std::vector<unsigned> members;
  for (uint64_t chunk = 0; chunk < 24; ++chunk)
    members.push_back(stripes.member_of(FileId(1), ChunkIndex(chunk)).value());
  const std::vector<unsigned> expected = {0, 1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2, 1, 2, 3, 0, 2, 3, 0, 1};
  EXPECT_EQ(members, expected);
}

TEST(StripeMap, AnIdIsGivenAStart) {
  for (const uint16_t members : {1, 2, 3, 7, 255, 256})
    for (const uint64_t id : {uint64_t{1}, uint64_t{0x123456789abcdef0}, UINT64_MAX, UINT64_MAX - 1}) {
      const StripeMap stripes{4096, members};
      for (const MemberIndex start : stripes.members()) {
        const FileId with = stripes.with_start(FileId(id), start);
        EXPECT_EQ(stripes.start(with), start);
        EXPECT_EQ(with.value() & UINT32_MAX, id & UINT32_MAX);
      }
    }
}

TEST(StripeMap, ChunksOfARangeHaveItsBytes) {
  EXPECT_EQ(kStripes.chunks_end(FileOffset(0)), ChunkIndex(0));
  EXPECT_EQ(kStripes.chunks_end(FileOffset(1)), ChunkIndex(1));
  EXPECT_EQ(kStripes.chunks_end(FileOffset(4096)), ChunkIndex(1));
  EXPECT_EQ(kStripes.chunks_end(FileOffset(4097)), ChunkIndex(2));
  EXPECT_EQ(kStripes.chunks_end(FileOffset(UINT64_MAX)), ChunkIndex(UINT64_MAX / 4096 + 1)) << "no sum overflows";
  const auto chunks_of = [](uint64_t begin, uint64_t end) {
    std::vector<uint64_t> chunks;
    for (const ChunkIndex chunk : kStripes.chunks_of(FileOffset(begin), FileOffset(end)))
      chunks.push_back(chunk.value());
    return chunks;
  };
  EXPECT_EQ(chunks_of(4095, 4097), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(chunks_of(4096, 8192), (std::vector<uint64_t>{1}));
  EXPECT_EQ(chunks_of(8192, 8192), (std::vector<uint64_t>{}));
  EXPECT_EQ(chunks_of(8192, 4096), (std::vector<uint64_t>{}));
}

}  // namespace
}  // namespace fpfs
