#include "engine/file/content.h"

#include <gtest/gtest.h>

#include <vector>

namespace fpfs::test {
namespace {

using Chunks = std::vector<ChunkIndex>;
constexpr StripeMap kStripes{.chunk_size = 64 * 1024, .member_count = 2};

class ContentTest : public ::testing::Test {
 protected:
  Extent written(SlotIndex slot, uint32_t length = kStripes.chunk_size) const {
    Extent extent;
    extent.slot = slot;
    extent.codec = Codec::kRaw;
    extent.stored_length = extent.raw_length = extent.visible_length = length;
    extent.epoch = content_.epoch();
    return extent;
  }
  void write(uint64_t chunk, uint32_t length = kStripes.chunk_size) {
    content_.note_change({.tv_sec = ++now_, .tv_nsec = 0});
    content_.set_extent(ChunkIndex(chunk), written(SlotIndex(chunk), length), content_.edit());
    content_.grow_to(offset_of(ChunkIndex(chunk), kStripes.chunk_size) + length);
  }

  std::atomic<uint64_t> entries_{0};
  Content content_{kStripes};
  time_t now_ = 100;
};

TEST_F(ContentTest, AnEditIsWhatChangedSinceTheLastConsistentPoint) {
  EXPECT_FALSE(content_.is_edited());
  write(0);
  write(3, 100);
  EXPECT_TRUE(content_.is_edited());
  EXPECT_EQ(content_.size(), 3 * kStripes.chunk_size + 100u);
  EXPECT_TRUE(content_.is_new(content_.extent(ChunkIndex(0))));

  const Content::Edit first = content_.take_edit();
  EXPECT_EQ(first.chunks, (Chunks{ChunkIndex(0), ChunkIndex(3)}));
  EXPECT_FALSE(first.truncated_from.has_value());
  EXPECT_FALSE(content_.is_edited());
  // What a record is about to name is not overwritten in place.
  EXPECT_FALSE(content_.is_new(content_.extent(ChunkIndex(0))));

  write(3);
  EXPECT_EQ(content_.take_edit().chunks, Chunks{ChunkIndex(3)});
}

TEST_F(ContentTest, WhatEndsForAnEarlierPointBelongsToThat) {
  write(0);
  const Extent late = written(SlotIndex(1));
  Content::Edit draining = content_.take_edit();
  write(2);
  content_.set_extent(ChunkIndex(1), late, content_.is_new(late) ? content_.edit() : draining);
  EXPECT_EQ(draining.chunks, (Chunks{ChunkIndex(0), ChunkIndex(1)}));
  EXPECT_EQ(content_.edit().chunks, Chunks{ChunkIndex(2)});
}

TEST_F(ContentTest, EndsWhereTheLastWriteDid) {
  EXPECT_EQ(content_.end(), FileOffset(0));
  EXPECT_EQ(content_.length_within(FileOffset(0), 10), 0u);
  content_.grow_to(FileOffset(1000));
  content_.grow_to(FileOffset(500));
  EXPECT_EQ(content_.end(), FileOffset(1000));
  EXPECT_EQ(content_.size(), 1000u);
  EXPECT_EQ(content_.size_with(FileOffset(900)), 1000u);
  EXPECT_EQ(content_.size_with(FileOffset(1100)), 1100u);
  EXPECT_EQ(content_.length_within(FileOffset(0), 10), 10u);
  EXPECT_EQ(content_.length_within(FileOffset(990), 10), 10u);
  EXPECT_EQ(content_.length_within(FileOffset(990), 11), 10u);
  EXPECT_EQ(content_.length_within(FileOffset(990), UINT64_MAX), 10u) << "no sum overflows";
  EXPECT_EQ(content_.length_within(FileOffset(1000), 1), 0u);
  EXPECT_EQ(content_.length_within(FileOffset(UINT64_MAX), UINT64_MAX), 0u);
}

TEST_F(ContentTest, TruncationCutsTheBoundaryAndTellsWhatGoes) {
  for (uint64_t chunk = 0; chunk < 4; ++chunk) write(chunk);
  content_.take_edit();
  std::vector<SlotIndex> gone;
  content_.truncate(FileOffset(kStripes.chunk_size + 10),
                    [&gone](const Extent& extent) { gone.push_back(extent.slot); });
  EXPECT_EQ(gone, (std::vector<SlotIndex>{SlotIndex(2), SlotIndex(3)}));
  EXPECT_EQ(content_.size(), kStripes.chunk_size + 10u);
  EXPECT_EQ(content_.stored_end(ChunkIndex(1)), 10u);
  EXPECT_EQ(content_.extent(ChunkIndex(1)).stored_length, kStripes.chunk_size)
      << "what is stored, and its checksum, stay";
  EXPECT_EQ(content_.edit().truncated_from, ChunkIndex(2));
  EXPECT_EQ(content_.edit().chunks, Chunks{ChunkIndex(1)});

  // Made longer again: what was cut off stays away, and the lowest cut counts.
  content_.set_end(offset_of(ChunkIndex(10), kStripes.chunk_size));
  EXPECT_EQ(content_.stored_end(ChunkIndex(1)), 10u);
  content_.truncate(offset_of(ChunkIndex(5), kStripes.chunk_size),
                    [](const Extent&) { ADD_FAILURE() << "there is nothing behind it"; });
  EXPECT_EQ(content_.edit().truncated_from, ChunkIndex(2));
}

TEST_F(ContentTest, HolesTellWhatGoes) {
  for (uint64_t chunk = 0; chunk < 4; ++chunk) write(chunk);
  content_.take_edit();
  std::vector<SlotIndex> gone;
  content_.punch(ChunkIndex(1), ChunkIndex(3), [&gone](const Extent& extent) { gone.push_back(extent.slot); });
  EXPECT_EQ(gone, (std::vector<SlotIndex>{SlotIndex(1), SlotIndex(2)}));
  EXPECT_FALSE(content_.is_stored(ChunkIndex(1)));
  EXPECT_TRUE(content_.is_stored(ChunkIndex(3)));
  EXPECT_EQ(content_.size(), 4 * kStripes.chunk_size);
  EXPECT_EQ(content_.edit().chunks, (Chunks{ChunkIndex(1), ChunkIndex(2)}));
}

TEST_F(ContentTest, AReplacementIsAnotherGenerationAndNamesNoExtentOfBefore) {
  write(0);
  content_.take_edit();
  write(1);
  content_.clear(true);
  content_.set_end(FileOffset(0));
  EXPECT_TRUE(content_.is_replaced());
  EXPECT_EQ(content_.generation(), Generation(1));
  EXPECT_EQ(content_.extents().count(), 0u);
  write(0);
  const Content::Edit edit = content_.take_edit();
  EXPECT_EQ(edit.truncated_from, ChunkIndex(0));
  EXPECT_EQ(edit.chunks, Chunks{ChunkIndex(0)});
  EXPECT_FALSE(content_.is_replaced());
  content_.clear(false);
  EXPECT_EQ(content_.generation(), Generation(1)) << "there were no objects that another generation had to keep apart";
}

TEST_F(ContentTest, ContentInTheSidecarIsChunk0) {
  FileImage image;
  image.file_id = FileId(7);
  image.generation = Generation(3);
  image.size = 500;
  image.is_inline = true;
  image.inline_data.resize(400);
  image.record_offset = SidecarOffset(128);
  image.end = SidecarOffset(700);
  content_.load(std::move(image), entries_);
  EXPECT_TRUE(content_.is_in_sidecar(ChunkIndex(0)));
  EXPECT_FALSE(content_.is_in_sidecar(ChunkIndex(1)));
  EXPECT_EQ(content_.stored_end(ChunkIndex(0)), 400u);
  EXPECT_EQ(content_.inline_place(), (RecordPlace{SidecarOffset(128), SidecarOffset(700)}));
  EXPECT_EQ(content_.allocated_bytes(), 512u);
  EXPECT_FALSE(content_.is_edited());
  content_.truncate(FileOffset(100), [](const Extent&) { ADD_FAILURE() << "there is no extent"; });
  EXPECT_EQ(content_.inline_length(), 100u);
  content_.set_end(FileOffset(300));
  content_.truncate(FileOffset(200), [](const Extent&) { ADD_FAILURE() << "there is no extent"; });
  EXPECT_EQ(content_.inline_length(), 100u) << "what was cut off stays away";
  content_.forget_inline();
  EXPECT_FALSE(content_.is_stored(ChunkIndex(0)));
}

TEST_F(ContentTest, EntriesAreCountedWhereTheyMatter) {
  content_.load({}, entries_);
  for (uint64_t chunk = 0; chunk < 5; ++chunk) write(chunk);
  EXPECT_EQ(entries_.load(), 5u);
  content_.lift(ChunkIndex(2));
  EXPECT_EQ(entries_.load(), 4u);
  content_.clear(true);
  EXPECT_EQ(entries_.load(), 0u);
}

TEST_F(ContentTest, TimesAreThoseOfTheNewestChange) {
  content_.note_change({.tv_sec = 10, .tv_nsec = 0});
  content_.note_change({.tv_sec = 20, .tv_nsec = 0});
  EXPECT_EQ(content_.edited_since().tv_sec, 10);
  EXPECT_EQ(content_.changed_at().tv_sec, 20);
  EXPECT_EQ(content_.mtime().tv_sec, 20);
  // The commit moved the sidecar's change time; nobody sees that.
  content_.note_sidecar_change({.tv_sec = 15, .tv_nsec = 0}, {.tv_sec = 30, .tv_nsec = 0});
  EXPECT_EQ(content_.change_time().show({.tv_sec = 30, .tv_nsec = 0}).tv_sec, 20);
  EXPECT_EQ(content_.change_time().show({.tv_sec = 40, .tv_nsec = 0}).tv_sec, 40) << "chmod, behind the commit";
}

TEST_F(ContentTest, AMomentLaterWillDoUntilSomebodyIsTold) {
  const auto at = [](int64_t ns) { return timespec{.tv_sec = 20, .tv_nsec = ns}; };
  content_.note_change(at(0));
  EXPECT_FALSE(content_.move_mtime({.tv_sec = 19, .tv_nsec = 999'999'999})) << "before the change";
  EXPECT_FALSE(content_.move_mtime(at(10'000'000))) << "too long behind it";
  EXPECT_TRUE(content_.move_mtime(at(3)));
  EXPECT_EQ(content_.mtime().tv_nsec, 3);
  EXPECT_EQ(content_.change_time().shown.tv_nsec, 3) << "changed when it was modified";
  EXPECT_FALSE(content_.move_mtime(at(4))) << "that is the committed one";
  content_.note_change(at(4));
  content_.tell_mtime();
  EXPECT_FALSE(content_.move_mtime(at(4)));
  content_.note_change(at(5));
  EXPECT_TRUE(content_.move_mtime(at(5)));
  content_.set_mtime(at(1));
  EXPECT_FALSE(content_.move_mtime(at(6))) << "somebody has set it";
  EXPECT_EQ(content_.mtime().tv_nsec, 1);
}

}  // namespace
}  // namespace fpfs::test
