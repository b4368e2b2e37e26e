#include "engine/index/extent_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace fpfs {
namespace {

Extent extent_of(uint64_t number) {
  Extent extent;
  extent.codec = static_cast<Codec>(1 + number % (kCodecs - 1));
  extent.checksum = number * 0x9e3779b97f4a7c15;
  if (extent.is_away()) return extent;
  extent.slot = SlotIndex(number * 7);
  extent.stored_length = static_cast<uint32_t>(1 + number % 10000);
  extent.member = MemberIndex(static_cast<uint16_t>(number % 11));
  return extent;
}

void expect_same(const ExtentTable& table, const std::map<ChunkIndex, Extent>& model, ChunkIndex first) {
  ASSERT_EQ(table.count(), model.size());
  uint64_t allocated = 0;
  for (const auto& [chunk, extent] : model) allocated += (extent.stored_length + 4095) / 4096 * 4096;
  EXPECT_EQ(table.allocated_bytes(), allocated);
  auto expected = model.lower_bound(first);
  table.for_each(first, [&](ChunkIndex chunk, const Extent& extent) {
    if (expected == model.end()) {
      ADD_FAILURE() << "chunk " << chunk.value() << " should not exist";
      return false;
    }
    EXPECT_EQ(chunk, expected->first);
    EXPECT_EQ(extent, expected->second);
    ++expected;
    return true;
  });
  EXPECT_EQ(expected, model.end());
}

TEST(ExtentTable, MissingChunksAreHoles) {
  ExtentTable table;
  EXPECT_FALSE(table.get(ChunkIndex(0)).exists());
  EXPECT_FALSE(table.get(ChunkIndex(UINT64_MAX)).exists());
  table.set(ChunkIndex(5), extent_of(5));
  table.set(ChunkIndex(5), Extent());
  EXPECT_EQ(table.count(), 0u);
  EXPECT_EQ(table.allocated_bytes(), 0u);
  table.set(ChunkIndex(1'000'000'000'000), Extent());  // removing what is not there
  EXPECT_EQ(table.count(), 0u);
}

TEST(ExtentTable, HighestChunkWorks) {
  ExtentTable table;
  table.set(ChunkIndex(UINT64_MAX), extent_of(3));
  EXPECT_EQ(table.get(ChunkIndex(UINT64_MAX)), extent_of(3));
  unsigned visited = 0;
  table.for_each(ChunkIndex(UINT64_MAX),
                 [&](ChunkIndex chunk, const Extent&) { return visited++, chunk == ChunkIndex(UINT64_MAX); });
  EXPECT_EQ(visited, 1u);
  table.remove_from(ChunkIndex(UINT64_MAX), nullptr);
  EXPECT_EQ(table.count(), 0u);
}

TEST(ExtentTable, VisitStopsWhenToldTo) {
  ExtentTable table;
  for (uint64_t chunk = 0; chunk < 600; ++chunk) table.set(ChunkIndex(chunk), extent_of(chunk));
  unsigned visited = 0;
  table.for_each(ChunkIndex(250), [&](ChunkIndex chunk, const Extent&) { return ++visited, chunk < ChunkIndex(260); });
  EXPECT_EQ(visited, 11u);
}

TEST(ExtentTable, MatchesAMapUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ExtentTable table;
    std::map<ChunkIndex, Extent> model;
    // Dense around page boundaries, with a few chunks far away.
    const auto any_chunk = [&] { return ChunkIndex(random() % 10 == 0 ? random() : random() % 1100); };
    for (int step = 0; step < 2000; ++step) {
      const ChunkIndex chunk = any_chunk();
      const auto choice = random() % 20;
      if (choice < 13) {
        table.set(chunk, extent_of(step));
        model[chunk] = extent_of(step);
      } else if (choice < 19) {
        table.set(chunk, Extent());
        model.erase(chunk);
      } else {
        std::map<ChunkIndex, Extent> removed;
        table.remove_from(chunk, [&](ChunkIndex gone, const Extent& extent) { removed[gone] = extent; });
        const auto first = model.lower_bound(chunk);
        EXPECT_EQ(removed, (std::map<ChunkIndex, Extent>(first, model.end())));
        model.erase(first, model.end());
      }
      const ChunkIndex probe = any_chunk();
      EXPECT_EQ(table.get(probe), model.count(probe) ? model[probe] : Extent());
    }
    expect_same(table, model, ChunkIndex(0));
    table.clear();
    expect_same(table, {}, ChunkIndex(0));
  }
}

// What File stores: whole chunks, one after the other on members in turn.
Extent whole_chunk(uint64_t number) {
  Extent extent = extent_of(number);
  extent.codec = Codec::kRaw;
  extent.stored_length = extent.raw_length = extent.visible_length = 1 << 20;
  extent.epoch = 1;
  return extent;
}

TEST(ExtentTable, MemoryFollowsWhatIsStored) {
  constexpr uint64_t kCount = 20'000;
  // distance between chunks, most bytes for each
  for (const auto& [distance, limit] : {std::pair<uint64_t, uint64_t>{1, 20}, {256, 24}, {1'000'000, 24}}) {
    SCOPED_TRACE(distance);
    ExtentTable forwards, backwards, shuffled;
    std::vector<uint64_t> chunks;
    for (uint64_t i = 0; i < kCount; ++i) chunks.push_back(i * distance);
    for (const uint64_t chunk : chunks) forwards.set(ChunkIndex(chunk), whole_chunk(chunk));
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk)
      backwards.set(ChunkIndex(*chunk), whole_chunk(*chunk));
    std::shuffle(chunks.begin(), chunks.end(), std::mt19937_64(distance));
    for (const uint64_t chunk : chunks) shuffled.set(ChunkIndex(chunk), whole_chunk(chunk));
    EXPECT_LE(forwards.memory_bytes(), kCount * limit);
    EXPECT_LE(backwards.memory_bytes(), kCount * limit);
    EXPECT_LE(shuffled.memory_bytes(), kCount * 48);
    // One in a thousand stays.
    for (const uint64_t chunk : chunks)
      if (chunk / distance % 1000 != 0) forwards.set(ChunkIndex(chunk), Extent());
    EXPECT_EQ(forwards.count(), kCount / 1000);
    EXPECT_LE(forwards.memory_bytes(), 4096u);
  }
}

TEST(ExtentTable, EntriesAreCountedInATotal) {
  std::atomic<uint64_t> total{0};
  {
    ExtentTable loaded;
    for (uint64_t chunk = 0; chunk < 1000; ++chunk) loaded.set(ChunkIndex(chunk), whole_chunk(chunk));
    ExtentTable kept = std::move(loaded);
    kept.count_in(total);
    EXPECT_EQ(total, 1000u);
    kept.set(ChunkIndex(5), whole_chunk(6));
    kept.set(ChunkIndex(2000), whole_chunk(2000));
    EXPECT_EQ(total, 1001u);
    kept.remove_from(ChunkIndex(900), nullptr);
    kept.set(ChunkIndex(3), Extent());
    EXPECT_EQ(total, 899u);
    kept.clear();
    EXPECT_EQ(total, 0u);
    kept.set(ChunkIndex(1), whole_chunk(1));
    EXPECT_EQ(total, 1u);
  }
  EXPECT_EQ(total, 0u);
}

}  // namespace
}  // namespace fpfs
