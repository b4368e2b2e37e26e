#include "engine/file/reservation.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr FileId kFile(77);

class ReservationTest : public ::testing::Test {
 protected:
  ReservationTest() : environment_(2, {.mount_paths = {"/m0", "/m1"}}) {
    FormatOptions format;
    format.chunk_size = kTestChunk;
    EXPECT_TRUE(Array::format(environment_, {"/m0", "/m1"}, format).is_ok());
    members_ = Array::open(environment_, {"/m0", "/m1"}, {}).value();
    stripes_ = members_->stripes();
    room_ = std::make_unique<Room>(environment_.storage(), *members_, kMiB);
    for (const MemberIndex m : members_->members()) at_first_.push_back(left(m));
  }
  // Bytes that still fit on the member.
  uint64_t left(MemberIndex member) {
    uint64_t fits = 0, too_much = uint64_t{1} << 62;
    while (too_much - fits > 1) {
      const uint64_t middle = fits + (too_much - fits) / 2;
      (room_->fits(member, middle) ? fits : too_much) = middle;
    }
    return fits;
  }
  // Chunks of both members for which room is set aside.
  uint64_t chunks_taken() {
    uint64_t bytes = 0;
    for (const MemberIndex m : members_->members()) bytes += at_first_[m] - left(m);
    EXPECT_EQ(bytes % kTestChunk, 0u);
    return bytes / kTestChunk;
  }

  SimEnvironment environment_;
  std::unique_ptr<Array> members_;
  StripeMap stripes_;
  std::unique_ptr<Room> room_;
  PerMember<uint64_t> at_first_;
};

TEST_F(ReservationTest, OfARangeEachMemberHasWhatItsChunksTake) {
  ASSERT_TRUE(stripes_.has_turned_rows);
  for (uint64_t first = 0; first < 9; ++first)
    for (uint64_t stop = first; stop < 18; ++stop) {
      Reservation reserved(*room_, stripes_);
      ChunkRanges added;
      PerMember<bool> members(2, false);
      reserved.add(kFile, ChunkIndex(first), ChunkIndex(stop), added, members);
      PerMember<uint64_t> expected(2, 0);
      for (uint64_t chunk = first; chunk < stop; ++chunk)
        expected[stripes_.member_of(kFile, ChunkIndex(chunk))] += kTestChunk;
      for (const MemberIndex m : members_->members())
        EXPECT_EQ(at_first_[m] - left(m), expected[m]) << first << " to " << stop << ", member " << m.value();
      // Given back piece by piece, from the middle.
      const uint64_t middle = (first + stop) / 2;
      reserved.remove(kFile, ChunkIndex(middle), ChunkIndex(stop));
      reserved.remove(kFile, ChunkIndex(first), ChunkIndex(middle));
      EXPECT_EQ(chunks_taken(), 0u) << first << " to " << stop;
    }
}

TEST_F(ReservationTest, RoomIsSetAsideOnceForEachChunkOnItsMember) {
  Reservation reserved(*room_, stripes_);
  ChunkRanges added;
  PerMember<bool> members(2, false);
  reserved.add(kFile, ChunkIndex(10), ChunkIndex(11), added, members);
  for (const MemberIndex m : members_->members()) {
    const bool has_it = m == stripes_.member_of(kFile, ChunkIndex(10));
    EXPECT_EQ(members[m], has_it);
    EXPECT_EQ(at_first_[m] - left(m), has_it ? kTestChunk : 0);
  }

  ChunkRanges more;
  reserved.add(kFile, ChunkIndex(8), ChunkIndex(13), more, members);
  EXPECT_EQ(chunks_taken(), 5u) << "chunk 10 had its room";
  EXPECT_FALSE(more.contains(ChunkIndex(10)));
  EXPECT_TRUE(more.contains(ChunkIndex(9)) && more.contains(ChunkIndex(12)));
  EXPECT_TRUE(reserved.contains(ChunkIndex(10)));
  reserved.remove(kFile, ChunkIndex(0), kChunksEnd);
}

TEST_F(ReservationTest, WhatIsWrittenGivesItsRoomBackOnce) {
  Reservation reserved(*room_, stripes_);
  ChunkRanges added;
  PerMember<bool> members(2, false);
  reserved.add(kFile, ChunkIndex(0), ChunkIndex(101), added, members);
  EXPECT_EQ(chunks_taken(), 101u);
  reserved.remove(kFile, ChunkIndex(3), ChunkIndex(4));
  reserved.remove(kFile, ChunkIndex(3), ChunkIndex(4));
  EXPECT_EQ(chunks_taken(), 100u);
  EXPECT_FALSE(reserved.contains(ChunkIndex(3)));
  reserved.remove(kFile, ChunkIndex(50), kChunksEnd);
  EXPECT_EQ(chunks_taken(), 49u);
  EXPECT_FALSE(reserved.is_empty());
  reserved.remove(kFile, ChunkIndex(0), ChunkIndex(50));
  EXPECT_EQ(chunks_taken(), 0u);
  EXPECT_TRUE(reserved.is_empty());
}

// What is set aside follows the chunks to other members.
TEST_F(ReservationTest, ItIsCountedAnewWhenChunksGoElsewhere) {
  Reservation reserved(*room_, stripes_);
  ChunkRanges added;
  PerMember<bool> members(2, false);
  reserved.add(kFile, ChunkIndex(0), ChunkIndex(10), added, members);
  reserved.add(kFile, ChunkIndex(20), ChunkIndex(25), added, members);
  const std::vector<MemberIndex> order = {MemberIndex(1)};
  reserved.recount(kFile, [&] { stripes_.order = &order; });
  EXPECT_EQ(at_first_[MemberIndex(0)], left(MemberIndex(0)));
  EXPECT_EQ(at_first_[MemberIndex(1)] - left(MemberIndex(1)), 15 * kTestChunk);
  reserved.remove(kFile, ChunkIndex(0), kChunksEnd);
  EXPECT_EQ(chunks_taken(), 0u);
}

}  // namespace
}  // namespace fpfs::test
