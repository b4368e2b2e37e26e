#include "engine/layout/stripe_order.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "engine/layout/stripe.h"

namespace fpfs {
namespace {

std::vector<MemberIndex> members(const std::vector<uint16_t>& indices) {
  std::vector<MemberIndex> order;
  order.reserve(indices.size());
  for (const uint16_t index : indices) order.emplace_back(index);
  return order;
}

// Chunks of 240 files of 60 chunks, made by one order, that go to each member when those on `leaving` are moved by another.
std::map<MemberIndex, int> go_to(const std::vector<MemberIndex>& made_by, const std::vector<MemberIndex>& now,
                                 MemberIndex leaving) {
  const StripeMap before{4096, 256, &made_by, true}, after{4096, 256, &now, true};
  std::map<MemberIndex, int> counts;
  for (uint64_t start = 0; start < 240; ++start)
    for (uint64_t index = 0; index < 60; ++index) {
      const FileId file(start << 32);
      const ChunkIndex chunk(index);
      if (before.member_of(file, chunk) == leaving) ++counts[after.member_of(file, chunk)];
    }
  return counts;
}

TEST(StripeOrder, TheLastOneTakesThePlaceOfOneThatLeaves) {
  EXPECT_EQ(order_without(members({0, 1, 2, 3}), MemberIndex(1)), members({0, 3, 2}));
  EXPECT_EQ(order_without(members({0, 1, 2, 3}), MemberIndex(3)), members({0, 1, 2}));
  EXPECT_EQ(order_without(members({0, 1}), MemberIndex(1)), members({0}));
}

TEST(StripeOrder, WhatLeavesIsSpreadOverAllOthers) {
  for (uint16_t width = 3; width <= 6; ++width) {
    std::vector<MemberIndex> order;
    for (uint16_t index = 0; index < width; ++index) order.emplace_back(index);
    for (const MemberIndex leaving : order) {
      const std::map<MemberIndex, int> counts = go_to(order, order_without(order, leaving), leaving);
      EXPECT_EQ(counts.size(), width - 1U);
      for (const auto& [member, count] : counts) EXPECT_LE(count, 2 * counts.begin()->second);
    }
  }
}

// A member is added, then another one removed: nothing may be heaped upon one of those that have their share already.
TEST(StripeOrder, WhatLeavesGoesToTheOneThatWasAddedBefore) {
  const std::vector<MemberIndex> before = members({0, 1, 2, 3});
  const std::vector<MemberIndex> added = members({0, 1, 2, 3, 4});
  for (const MemberIndex leaving : before) {
    const std::map<MemberIndex, int> counts = go_to(before, order_without(added, leaving), leaving);
    EXPECT_EQ(counts.size(), 1U);
    EXPECT_EQ(counts.begin()->first, MemberIndex(4));
  }
  // Two for two.
  const std::vector<MemberIndex> first = order_without(members({0, 1, 2, 3, 4, 5}), MemberIndex(1));
  const std::vector<MemberIndex> both = order_without(first, MemberIndex(2));
  EXPECT_EQ(go_to(before, both, MemberIndex(1)).begin()->first, MemberIndex(5));
  EXPECT_EQ(go_to(before, both, MemberIndex(2)).begin()->first, MemberIndex(4));
}

TEST(StripeOrder, OneThatStaysAfterAllIsWhereItWas) {
  const std::vector<MemberIndex> order = members({0, 1, 3, 4, 7});
  for (const MemberIndex leaving : order) EXPECT_EQ(order_with(order_without(order, leaving), leaving), order);
}

// The place cannot always be told: when several have left, or beside one that took another's.
TEST(StripeOrder, EachIsThereOnceHoweverTheyStay) {
  const std::vector<MemberIndex> order = members({0, 5, 2, 3});
  for (const MemberIndex first : order)
    for (const MemberIndex second : order_without(order, first)) {
      const std::vector<MemberIndex> without_both = order_without(order_without(order, first), second);
      std::vector<MemberIndex> again = order_with(order_with(without_both, first), second);
      std::sort(again.begin(), again.end());
      EXPECT_EQ(again, members({0, 2, 3, 5}));
    }
}

}  // namespace
}  // namespace fpfs
