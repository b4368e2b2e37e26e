#include "engine/file/placement.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr FileId kFile(77);

class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest() : environment_(2, {.mount_paths = {"/m0"}}) {
    FormatOptions format;
    format.chunk_size = kTestChunk;
    EXPECT_TRUE(Array::format(environment_, {"/m0"}, format).is_ok());
    members_ = Array::open(environment_, {"/m0"}, {}).value();
  }
  std::shared_ptr<ObjectSet> make_objects(uint32_t generation) {
    return std::make_shared<ObjectSet>(environment_.storage(), *members_, nullptr, members_->member_count(), kFile,
                                       Generation(generation), false);
  }
  static Extent at(SlotIndex slot, uint32_t length = kTestChunk) {
    Extent extent;
    extent.slot = slot;
    extent.codec = Codec::kRaw;
    extent.stored_length = extent.raw_length = extent.visible_length = length;
    return extent;
  }
  SimEnvironment environment_;
  std::unique_ptr<Array> members_;
  Placement placement_{1};
};

TEST_F(PlacementTest, WhatNoRecordNamesIsFreeAtOnce) {
  placement_.set_objects(make_objects(0));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(3)), SlotIndex(3));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(3)), SlotIndex(0)) << "the natural one is taken";
  placement_.release(MemberIndex(0), SlotIndex(3));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(3)), SlotIndex(3));
  EXPECT_TRUE(placement_.retired().is_empty());
}

TEST_F(PlacementTest, WhatARecordNamesIsKeptUntilItsSpaceIsBack) {
  placement_.set_objects(make_objects(0));
  EXPECT_TRUE(placement_.take(MemberIndex(0), SlotIndex(0)));
  EXPECT_FALSE(placement_.take(MemberIndex(0), SlotIndex(0))) << "two chunks in one slot";
  placement_.retire(MemberIndex(0), SlotIndex(0));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(1));
  const Placement::Retired retired = placement_.take_retired();
  ASSERT_EQ(retired.slots.size(), 1u);
  EXPECT_TRUE(placement_.retired().is_empty());
  placement_.freed(retired.slots[0]);
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(0));
}

TEST_F(PlacementTest, AnotherGenerationHasSlotsOfItsOwn) {
  EXPECT_FALSE(placement_.start_generation()) << "there was nothing";
  const std::shared_ptr<ObjectSet> first = make_objects(0);
  placement_.set_objects(first);
  EXPECT_TRUE(placement_.take(MemberIndex(0), SlotIndex(0)));
  placement_.retire(MemberIndex(0), SlotIndex(0));
  EXPECT_TRUE(placement_.start_generation());
  EXPECT_TRUE(first->is_superseded());
  EXPECT_EQ(placement_.objects(), nullptr);
  EXPECT_TRUE(placement_.retired().slots.empty()) << "they go with their objects";
  EXPECT_EQ(placement_.retired().objects, (std::vector<std::shared_ptr<ObjectSet>>{first}));
  placement_.set_objects(make_objects(1));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(0));
  placement_.freed({first, MemberIndex(0), SlotIndex(0)});
  EXPECT_FALSE(placement_.take(MemberIndex(0), SlotIndex(0))) << "a slot of the objects before is none of these";
}

TEST_F(PlacementTest, SpaceThatIsLeftOver) {
  ExtentTable extents;
  extents.set(ChunkIndex(0), at(SlotIndex(0)));
  extents.set(ChunkIndex(1), at(SlotIndex(2), 5000));
  placement_.set_objects(make_objects(0));
  for (const SlotIndex slot : {SlotIndex{0}, SlotIndex{1}, SlotIndex{2}})
    EXPECT_TRUE(placement_.take(MemberIndex(0), slot));
  EXPECT_EQ(placement_.needed_end(MemberIndex(0), at(SlotIndex(2), 5000), kTestChunk),
            ObjectOffset(2 * kTestChunk + 8192));
  EXPECT_EQ(placement_.needed_end(MemberIndex(0), at(SlotIndex(0)), kTestChunk), ObjectOffset(3 * kTestChunk))
      << "the end of the content is elsewhere";
  EXPECT_FALSE(placement_.has_slack(at(SlotIndex(2), 5000), kTestChunk));
  placement_.release(MemberIndex(0), SlotIndex(1));
  EXPECT_TRUE(placement_.has_slack(at(SlotIndex(2), 5000), kTestChunk));
  const Placement::TrimPlan plan = placement_.plan_trim(extents, at(SlotIndex(2), 5000), kTestChunk);
  ASSERT_EQ(plan.ends.size(), 1u);
  EXPECT_EQ(plan.ends[MemberIndex(0)], ObjectOffset(2 * kTestChunk + 8192));
  ASSERT_EQ(plan.gaps.size(), 1u);
  EXPECT_EQ(plan.gaps[0].offset, ObjectOffset(kTestChunk));
  EXPECT_EQ(plan.gaps[0].length, kTestChunk);
  EXPECT_FALSE(placement_.has_slack(at(SlotIndex(2), 5000), kTestChunk)) << "a plan counts as done";
  EXPECT_TRUE(placement_.plan_trim(extents, at(SlotIndex(2), 5000), kTestChunk).gaps.empty());
}

TEST_F(PlacementTest, APlanLooksAtWhatWasWrittenAndReleasedSinceTheOneBefore) {
  ExtentTable extents;
  placement_.set_objects(make_objects(0));
  const auto write = [&](uint64_t slot, uint32_t length) {
    EXPECT_TRUE(placement_.take(MemberIndex(0), SlotIndex(slot)));
    extents.set(ChunkIndex(slot), at(SlotIndex(slot), length));
    placement_.note_written(ChunkIndex(slot), at(SlotIndex(slot), length), kTestChunk);
  };
  const auto plan = [&] {
    placement_.release(MemberIndex(0), SlotIndex(placement_.allocate(MemberIndex(0), SlotIndex(5000))));
    return placement_.plan_trim(extents, Extent(), kTestChunk).gaps;
  };
  for (uint64_t slot = 0; slot < 4000; slot += 2) write(slot, 4096);
  EXPECT_EQ(plan().size(), 2000u);
  write(4000, kTestChunk);
  EXPECT_TRUE(plan().empty()) << "a full chunk behind them";
  write(4002, 4096);
  write(4004, kTestChunk);
  ASSERT_EQ(plan().size(), 1u);
  placement_.release(MemberIndex(0), SlotIndex(3998));
  extents.set(ChunkIndex(3998), Extent());
  const std::vector<Placement::Gap> gaps = plan();
  ASSERT_EQ(gaps.size(), 3u) << "from the slot that was released on";
  EXPECT_EQ(gaps[0].offset, ObjectOffset(3998 * kTestChunk));
  EXPECT_EQ(gaps[0].length, 2 * kTestChunk);
}

TEST_F(PlacementTest, ObjectsThatComeBackAreLookedAtWholly) {
  ExtentTable extents;
  const std::shared_ptr<ObjectSet> objects = make_objects(0);
  placement_.set_objects(objects);
  for (const uint64_t slot : {0, 1, 2}) {
    EXPECT_TRUE(placement_.take(MemberIndex(0), SlotIndex(slot)));
    extents.set(ChunkIndex(slot), at(SlotIndex(slot), 4096));
    placement_.note_written(ChunkIndex(slot), at(SlotIndex(slot), 4096), kTestChunk);
  }
  EXPECT_TRUE(placement_.start_generation());
  placement_.clear();
  for (const uint64_t slot : {0, 1, 2}) EXPECT_TRUE(placement_.take(MemberIndex(0), SlotIndex(slot)));
  objects->touch(MemberIndex(0));
  placement_.reinstate(objects);
  EXPECT_EQ(placement_.plan_trim(extents, Extent(), kTestChunk).gaps.size(), 3u);
}

TEST_F(PlacementTest, BackToWhatWasCommitted) {
  placement_.set_objects(make_objects(0));
  (void)placement_.allocate(MemberIndex(0), SlotIndex(5));
  (void)placement_.start_generation();
  placement_.clear();
  EXPECT_EQ(placement_.objects(), nullptr);
  EXPECT_TRUE(placement_.retired().is_empty());
  EXPECT_TRUE(placement_.take(MemberIndex(0), SlotIndex(5)));
}

TEST_F(PlacementTest, WhatIsAboutToBeFreedStaysTakenWhenTheContentGoesBack) {
  const std::shared_ptr<ObjectSet> first = make_objects(1);
  placement_.set_objects(first);
  ASSERT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(0));
  ASSERT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(1));
  placement_.retire(MemberIndex(0), SlotIndex(0));
  const Placement::Retired retired = placement_.take_retired();
  placement_.begin_freeing(retired.slots);

  // Replaced, and back again: slot 1 is what the record names.
  EXPECT_TRUE(placement_.start_generation());
  placement_.set_objects(make_objects(2));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(0)) << "of other objects";
  placement_.clear();
  ASSERT_TRUE(placement_.take(MemberIndex(0), SlotIndex(1)));
  placement_.set_objects(make_objects(1));
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(2));

  for (const Placement::DeadSlot& slot : retired.slots) placement_.freed(slot);
  EXPECT_EQ(placement_.allocate(MemberIndex(0), SlotIndex(0)), SlotIndex(0));
}

}  // namespace
}  // namespace fpfs::test
