#include "engine/base/ranges.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(Ranges, NumbersInARowAreOne) {
  EXPECT_EQ(format_ranges({}), "");
  EXPECT_EQ(format_ranges({1, 3, 4, 5, 7}), "1, 3-5, 7");
}

TEST(Ranges, OneIsNotMany) {
  EXPECT_EQ(format_count(0, "chunk"), "0 chunks");
  EXPECT_EQ(format_count(1, "chunk"), "1 chunk");
  EXPECT_EQ(format_count(2, "chunk"), "2 chunks");
  EXPECT_EQ(format_count(1, "entry is", "entries are"), "1 entry is");
  EXPECT_EQ(format_count(3, "entry is", "entries are"), "3 entries are");
  EXPECT_STREQ(one_or_many(1, "it", "them"), "it");
  EXPECT_STREQ(one_or_many(0, "it", "them"), "them");
}

}  // namespace
}  // namespace fpfs
