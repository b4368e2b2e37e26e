#include "engine/file/chunk_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace fpfs {
namespace {

// Against a plain set of numbers: the parts that are reported are exactly what changed, and apart from each other.
TEST(ChunkRangesTest, IsTheSetOfItsChunks) {
  constexpr uint64_t kEnd = 40;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    ChunkRanges ranges;
    std::set<ChunkIndex> expected;
    for (unsigned turn = 0; turn < 60; ++turn) {
      const ChunkIndex first(random() % kEnd);
      const ChunkIndex stop = first + random() % (ChunkIndex(kEnd) - first + 1);
      const bool adds = random() % 2 == 0;
      std::set<ChunkIndex> changed;
      for (const ChunkIndex chunk : IndexRange(first, stop))
        if (expected.contains(chunk) != adds) changed.insert(chunk);
      std::set<ChunkIndex> reported;
      const auto report = [&reported](ChunkIndex from, ChunkIndex to) {
        EXPECT_LT(from, to);
        for (const ChunkIndex chunk : IndexRange(from, to)) EXPECT_TRUE(reported.insert(chunk).second) << "twice";
      };
      if (adds) {
        ranges.add(first, stop, report);
        expected.insert(changed.begin(), changed.end());
      } else {
        ranges.remove(first, stop, report);
        for (ChunkIndex chunk : changed) expected.erase(chunk);
      }
      ASSERT_EQ(reported, changed) << "seed " << seed << " turn " << turn;
      for (const ChunkIndex chunk : IndexRange(ChunkIndex(0), ChunkIndex(kEnd + 1)))
        ASSERT_EQ(ranges.contains(chunk), expected.contains(chunk));
      ASSERT_EQ(ranges.is_empty(), expected.empty());
    }
  }
}

TEST(ChunkRangesTest, ReachesToTheLargestNumbers) {
  ChunkRanges ranges;
  ranges.add(ChunkIndex(0), kChunksEnd, [](ChunkIndex, ChunkIndex) {});
  ranges.remove(ChunkIndex(5), ChunkIndex(6), [](ChunkIndex, ChunkIndex) {});
  EXPECT_TRUE(ranges.contains(ChunkIndex(4)));
  EXPECT_FALSE(ranges.contains(ChunkIndex(5)));
  EXPECT_TRUE(ranges.contains(ChunkIndex(UINT64_MAX - 1)));
  ranges.remove(ChunkIndex(0), kChunksEnd, [](ChunkIndex, ChunkIndex) {});
  EXPECT_TRUE(ranges.is_empty());
}

}  // namespace
}  // namespace fpfs
