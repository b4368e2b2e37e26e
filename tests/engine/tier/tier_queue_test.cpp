// What is known of a file that waits for its copy. That two commits have one content is believed of these two, of that
// file, and of no others: who believed it of another one would keep an old copy, and give up the content that it is not of.
#include "engine/tier/tier_queue.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

constexpr FileId kFile(7), kOther(8);

TierWaiting waiting(uint64_t sequence, const TierSame& same = {}) {
  TierWaiting file;
  file.inode = 5;
  file.path = "a";
  file.sequence = sequence;
  file.same = same;
  return file;
}

TEST(TierSameTest, HoldsForItsCommitsOnly) {
  const TierSame same{kFile, 2, 4};
  EXPECT_EQ(same.first(kFile, 3), 2u);
  EXPECT_EQ(same.first(kFile, 4), 2u);
  for (const uint64_t commit : {1, 2, 5}) EXPECT_EQ(same.first(kFile, commit), commit);
  EXPECT_EQ(same.first(kOther, 4), 4u);
  EXPECT_EQ(TierSame().first(kFile, 1), 1u);
}

TEST(TierSameTest, IsPutTogetherWhereItMeets) {
  const auto merged = [](const TierSame& known, const TierSame& newer) {
    const TierSame same = merge(known, newer);
    return std::tuple(same.file_id, same.since, same.until);
  };
  EXPECT_EQ(merged({kFile, 1, 2}, {kFile, 2, 3}), std::tuple(kFile, 1u, 3u));
  EXPECT_EQ(merged({kFile, 2, 3}, {kFile, 1, 2}), std::tuple(kFile, 1u, 3u)) << "in whichever order it was told";
  EXPECT_EQ(merged({kFile, 1, 2}, {kFile, 3, 4}), std::tuple(kFile, 3u, 4u)) << "3 is of other content than 2";
  EXPECT_EQ(merged({kFile, 1, 2}, {kOther, 2, 3}), std::tuple(kOther, 2u, 3u)) << "an inode that is used again";
  EXPECT_EQ(merged({kFile, 1, 2}, {}), std::tuple(kFile, 1u, 2u));
  EXPECT_EQ(merged({}, {kFile, 1, 2}), std::tuple(kFile, 1u, 2u));
}

// A job finds a newer commit than the one that was told of, and waits again because the store fails.
TEST(TierQueueTest, ANewerCommitIsNotTakenForTheSame) {
  TierQueue queue;
  TierWaiting moved = waiting(2, {kFile, 1, 2});
  moved.sequence = 3;  // whose content is another one
  queue.add(moved);
  queue.add(waiting(3));
  const TierWaiting* const found = queue.find(moved);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->same.first(kFile, 3), 3u);
  EXPECT_EQ(found->same.first(kFile, 2), 1u);
}

// The inode is another file's by now.
TEST(TierQueueTest, AnotherFileIsNotTakenForTheSame) {
  TierQueue queue;
  queue.add(waiting(2, {kFile, 1, 2}));
  queue.add(waiting(2));
  const TierWaiting* const found = queue.find(waiting(2));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->same.first(kOther, 2), 2u);
}

TEST(TierQueueTest, WhatDoesNotWaitIsNotFound) {
  TierQueue queue;
  EXPECT_EQ(queue.find(waiting(1)), nullptr);
  queue.add(waiting(1));
  EXPECT_NE(queue.find(waiting(1)), nullptr);
  ASSERT_TRUE(queue.take(waiting(1)).has_value());
  EXPECT_EQ(queue.find(waiting(1)), nullptr);
}

}  // namespace
}  // namespace fpfs
