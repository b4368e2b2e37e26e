#include "engine/base/fifo_map.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(FifoMapTest, TheFirstGoesForANewOne) {
  FifoMap<int, int, 2> map;
  EXPECT_EQ(map.find(1), nullptr);
  map.set(1, 10);
  map.set(2, 20);
  map.set(1, 11);  // keeps its turn
  ASSERT_NE(map.find(1), nullptr);
  EXPECT_EQ(*map.find(1), 11);
  map.set(3, 30);
  EXPECT_EQ(map.find(1), nullptr);
  EXPECT_EQ(*map.find(2), 20);
  EXPECT_EQ(*map.find(3), 30);
  map.set(1, 12);
  EXPECT_EQ(map.find(2), nullptr);
  EXPECT_EQ(*map.find(1), 12);
}

}  // namespace
}  // namespace fpfs
