#include "engine/file/slot_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/io/sim/sim_random.h"

namespace fpfs::test {
namespace {

using Gaps = std::vector<std::pair<uint64_t, uint64_t>>;

Gaps gaps_of(const SlotMap& map) {
  Gaps gaps;
  map.for_each_gap(SlotIndex(0), [&gaps](SlotIndex first, uint64_t count) { gaps.emplace_back(first.value(), count); });
  return gaps;
}

TEST(SlotMapTest, AChunkGetsItsNaturalSlotWhenItIsFree) {
  SlotMap map;
  EXPECT_EQ(map.end(), SlotIndex(0));
  EXPECT_EQ(map.allocate(SlotIndex(5)), SlotIndex(5));
  EXPECT_EQ(map.end(), SlotIndex(6));
  EXPECT_EQ(gaps_of(map), (Gaps{{0, 5}}));
}

TEST(SlotMapTest, GapsAreFoundFromASlotOn) {
  SlotMap map;
  for (const uint64_t slot : {2, 3, 6, 9}) map.take(SlotIndex(slot));
  const auto from = [&map](uint64_t first) {
    Gaps gaps;
    map.for_each_gap(SlotIndex(first),
                     [&gaps](SlotIndex slot, uint64_t count) { gaps.emplace_back(slot.value(), count); });
    return gaps;
  };
  EXPECT_EQ(from(0), (Gaps{{0, 2}, {4, 2}, {7, 2}}));
  EXPECT_EQ(from(1), (Gaps{{1, 1}, {4, 2}, {7, 2}}));
  for (const uint64_t taken : {2, 3, 4}) EXPECT_EQ(from(taken), (Gaps{{4, 2}, {7, 2}})) << taken;
  EXPECT_EQ(from(5), (Gaps{{5, 1}, {7, 2}}));
  EXPECT_EQ(from(8), (Gaps{{8, 1}}));
  for (const uint64_t behind : {9, 10, 100}) EXPECT_TRUE(from(behind).empty()) << behind;
}

TEST(SlotMapTest, ElseTheLowestFreeOne) {
  SlotMap map;
  for (const uint64_t slot : {0, 1, 3}) map.take(SlotIndex(slot));
  EXPECT_EQ(map.allocate(SlotIndex(1)), SlotIndex(2));
  EXPECT_EQ(map.allocate(SlotIndex(1)), SlotIndex(4)) << "behind the last";
  EXPECT_TRUE(gaps_of(map).empty());
}

TEST(SlotMapTest, ASparseFilesHighChunkLiesNearTheOthers) {
  SlotMap map;
  map.take(SlotIndex(0));
  EXPECT_EQ(map.allocate(SlotIndex(uint64_t{1} << 40)), SlotIndex(1));
  EXPECT_EQ(map.allocate(SlotIndex(1000)), SlotIndex(1000)) << "as far as writers of one file are apart";
}

TEST(SlotMapTest, AgainstASetOfSlots) {
  constexpr uint64_t kSlots = 40;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimRandom random(seed);
    SlotMap map;
    std::vector<bool> taken(kSlots, false);
    for (unsigned step = 0; step < 400; ++step) {
      const uint64_t slot = random.below(kSlots);
      if (taken[slot])
        map.release(SlotIndex(slot));
      else
        map.take(SlotIndex(slot));
      taken[slot] = !taken[slot];
      Gaps gaps;
      uint64_t end = 0;
      for (uint64_t s = 0; s < kSlots; ++s) {
        ASSERT_EQ(map.is_taken(SlotIndex(s)), taken[s]) << "seed " << seed << ", slot " << s;
        if (!taken[s]) continue;
        if (s > end) gaps.emplace_back(end, s - end);
        end = s + 1;
      }
      ASSERT_EQ(map.end(), SlotIndex(end));
      ASSERT_EQ(gaps_of(map), gaps);
    }
  }
}

TEST(SlotMapDeathTest, ASlotIsTakenOnceAndReleasedOnce) {
  SlotMap map;
  map.take(SlotIndex(1));
  EXPECT_DEATH(map.take(SlotIndex(1)), "taken once");
  EXPECT_DEATH(map.release(SlotIndex(2)), "only a taken slot");
}

}  // namespace
}  // namespace fpfs::test
