#include "engine/base/strong_number.h"

#include <type_traits>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "engine/io/stall_domain.h"

namespace fpfs {
namespace {

struct PlaceKind : IndexKind<uint64_t> {};
using Place = StrongNumber<PlaceKind>;
struct SeatKind : IndexKind<uint64_t> {};
using Seat = StrongNumber<SeatKind>;
struct NameKind : IdKind<uint32_t> {};
using Name = StrongNumber<NameKind>;

template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a == b;
};
template <typename A, typename B>
concept HasDistance = requires(A a, B b) {
  a - b;
};

static_assert(!std::is_convertible_v<Place, Seat> && !std::is_constructible_v<Place, Seat>);
static_assert(!std::is_convertible_v<Place, uint64_t> && !std::is_convertible_v<uint64_t, Place>);
static_assert(Comparable<Place, Place> && !Comparable<Place, Seat> && !Comparable<Place, uint64_t>);
static_assert(HasDistance<Place, Place> && !HasDistance<Place, Seat>);
template <typename A>
concept CanStep = requires(A a) {
  ++a;
};
template <typename A>
concept CanMove = requires(A a) {
  a + 1U;
  a - 1U;
};
static_assert(CanStep<Place> && CanMove<Place>);
static_assert(!CanStep<Name> && !CanMove<Name> && !HasDistance<Name, Name> && Comparable<Name, Name>);
static_assert(sizeof(Place) == sizeof(uint64_t) && std::is_trivially_copyable_v<Place>);

TEST(StrongNumber, IsComparedSteppedAndMoved) {
  Place place;
  EXPECT_EQ(place.value(), 0u);
  EXPECT_EQ((++place).value(), 1u);
  EXPECT_EQ((place + 4).value(), 5u);
  EXPECT_EQ(place + 4 - place, 4u);
  EXPECT_EQ((place + 4 - 2).value(), 3u);
  EXPECT_LT(place, place + 1);
  EXPECT_NE(place, place + 1);
}

TEST(StrongNumber, IsShownAndKeptAsItsNumber) {
  EXPECT_EQ(fmt::format("{} {:03}", Place(7), Seat(8)), "7 008");
  const std::unordered_set<Place> places = {Place(1), Place(2), Place(1)};
  EXPECT_EQ(places.size(), 2u);
}

TEST(StrongNumber, RangesGoFromTheFirstToBeforeTheLast) {
  std::vector<uint64_t> seen;
  for (const Place place : IndexRange(Place(3), Place(6))) seen.push_back(place.value());
  EXPECT_EQ(seen, (std::vector<uint64_t>{3, 4, 5}));
  for (const Place place : IndexRange(Place(3), Place(3))) FAIL() << place.value();
  for (const Place place : IndexRange(Place(3), Place(2))) FAIL() << place.value();
}

template <typename Vector, typename Index>
concept FindsBy = requires(Vector vector, Index index) {
  vector[index];
};
static_assert(FindsBy<IndexedVector<Place, int>, Place>);
static_assert(!FindsBy<IndexedVector<Place, int>, Seat> && !FindsBy<IndexedVector<Place, int>, size_t>);

TEST(IndexedVector, IsFoundByItsIndexAlone) {
  IndexedVector<Place, int> squares;
  for (const int number : {0, 1, 2, 3}) squares.push_back(number * number);
  EXPECT_EQ(squares[Place(3)], 9);
  uint64_t seen = 0;
  for (const Place place : squares.indices()) {
    EXPECT_EQ(place.value(), seen++);
    EXPECT_EQ(squares[place], static_cast<int>(place.value() * place.value()));
  }
  EXPECT_EQ(seen, squares.size());
}

TEST(IndexedVectorDeathTest, BehindTheLastIsADefect) {
  const IndexedVector<Place, int> two(2, 7);
  EXPECT_EQ(two[Place(1)], 7);
  EXPECT_DEATH(static_cast<void>(two[Place(2)]), "an index of another vector");
  IndexedVector<Place, bool> flags(2, false);
  flags[Place(1)] = true;
  EXPECT_TRUE(flags[Place(1)]);
  EXPECT_DEATH(static_cast<void>(flags[Place(2)]), "an index of another vector");
}

TEST(StallDomain, EachMemberIsOneAndTheNamesAreAnother) {
  EXPECT_EQ(member_of(domain_of(MemberIndex(7))), MemberIndex(7));
  EXPECT_EQ(member_of(domain_of(MemberIndex(kMemberCountMax - 1))), MemberIndex(kMemberCountMax - 1));
  EXPECT_EQ(member_of(kTreeDomain), std::nullopt);
  EXPECT_EQ(member_of(kElsewhereDomain), std::nullopt);
}

static_assert(!std::is_convertible_v<FileOffset, ObjectOffset> && !std::is_constructible_v<FileOffset, ObjectOffset>);
static_assert(!std::is_convertible_v<FileOffset, SidecarOffset> && !std::is_convertible_v<SidecarOffset, FileOffset>);
static_assert(!std::is_convertible_v<FileOffset, uint64_t> && !std::is_convertible_v<uint64_t, FileOffset>);

TEST(FileOffset, LiesInOneChunk) {
  constexpr uint32_t kChunk = 1 << 20;
  EXPECT_EQ(offset_of(ChunkIndex(5000), kChunk), FileOffset(uint64_t{5000} << 20)) << "more than 32 bits";
  for (const uint64_t chunk : {uint64_t{0}, uint64_t{5000}, kFileSizeMax / kChunk}) {
    const FileOffset begin = offset_of(ChunkIndex(chunk), kChunk);
    for (const uint32_t within : {0U, 1U, kChunk - 1}) {
      EXPECT_EQ(chunk_of(begin + within, kChunk), ChunkIndex(chunk)) << within;
      EXPECT_EQ(offset_in_chunk(begin + within, kChunk), within) << chunk;
    }
  }
}

TEST(FileOffset, OfTheLargestFile) {
  constexpr FileOffset kEnd(kFileSizeMax);
  EXPECT_TRUE(fits_a_file(FileOffset(0), kFileSizeMax));
  EXPECT_TRUE(fits_a_file(kEnd, 0));
  EXPECT_TRUE(fits_a_file(kEnd - 10, 10));
  EXPECT_FALSE(fits_a_file(kEnd - 10, 11));
  EXPECT_FALSE(fits_a_file(kEnd + 1, 0));
  EXPECT_FALSE(fits_a_file(FileOffset(0), kFileSizeMax + 1));
  EXPECT_FALSE(fits_a_file(FileOffset(UINT64_MAX), 1)) << "the sum is 0";
  EXPECT_FALSE(fits_a_file(FileOffset(10), UINT64_MAX - 5)) << "the sum is 4";
}

TEST(SidecarOffset, IsRoundedAsNumbersAre) {
  EXPECT_EQ(round_up(SidecarOffset(0), 8), SidecarOffset(0));
  EXPECT_EQ(round_up(SidecarOffset(1), 8), SidecarOffset(8));
  EXPECT_EQ(round_up(SidecarOffset(4096), 4096), SidecarOffset(4096));
  EXPECT_EQ(round_down(SidecarOffset(4095), 4096), SidecarOffset(0));
  EXPECT_EQ(round_down(SidecarOffset(uint64_t{1} << 40 | 5), 4096), SidecarOffset(uint64_t{1} << 40));
}

TEST(SlotIndex, LiesAChunkBehindTheOneBefore) {
  EXPECT_EQ(offset_of(SlotIndex(0), 1 << 20), ObjectOffset(0));
  EXPECT_EQ(offset_of(SlotIndex(5000), 1 << 20), ObjectOffset(uint64_t{5000} << 20)) << "more than 32 bits";
}

}  // namespace
}  // namespace fpfs
