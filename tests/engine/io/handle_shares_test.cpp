// One user's handles leave some for everybody else, however many users there are.
#include "engine/io/handle_shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace fpfs {
namespace {

TEST(HandleSharesTest, EverybodyLeavesSomeForTheNext) {
  HandleShares shares(3000);
  std::vector<HandleShares::Lease> leases;
  size_t free = 3000;
  for (uid_t user = 0; user < 5; ++user) {
    size_t had = 0;
    for (;;) {
      HandleShares::Lease one = shares.lease(user, 1);
      if (one.count() == 0) break;
      leases.push_back(std::move(one));
      ++had;
    }
    EXPECT_NEAR(static_cast<double>(had), static_cast<double>(free) * 2 / 3, 2) << "two thirds of what is free";
    free -= had;
    EXPECT_EQ(shares.free(), free);
    EXPECT_GT(free, 0U);
  }
  leases.clear();
  EXPECT_EQ(shares.free(), 3000U);
}

TEST(HandleSharesTest, AllOrNothingOrAsManyAsThereAre) {
  HandleShares shares(30);
  HandleShares::Lease some = shares.lease_some(1, 100);
  EXPECT_EQ(some.count(), 20U);
  EXPECT_EQ(shares.lease(1, 1).count(), 0U);
  EXPECT_EQ(shares.lease(2, 7).count(), 0U) << "six are what another user gets";
  HandleShares::Lease other = shares.lease(2, 6);
  EXPECT_EQ(other.count(), 6U);
  HandleShares::Lease part = some.split(15);
  EXPECT_EQ(some.count(), 5U);
  part = HandleShares::Lease();
  EXPECT_EQ(shares.free(), 19U);
  HandleShares::Lease moved = std::move(some);
  EXPECT_EQ(some.count(), 0U);  // NOLINT(bugprone-use-after-move): what a move leaves counts nothing
  moved = std::move(other);
  EXPECT_EQ(moved.count(), 6U);
}

TEST(HandleSharesTest, ALeaseGrowsAsFarAsItsUserMayHaveMore) {
  HandleShares shares(3);
  HandleShares::Lease none = shares.lease(1, 1).split(0);
  EXPECT_EQ(shares.free(), 3U);
  EXPECT_TRUE(none.is_of_user());
  EXPECT_TRUE(none.grow());
  EXPECT_TRUE(none.grow());
  EXPECT_EQ(none.count(), 2U);
  EXPECT_FALSE(none.grow()) << "the third is the next user's";
  EXPECT_EQ(none.count(), 2U);
  EXPECT_EQ(shares.free(), 1U);
  HandleShares::Lease of_nobody;
  EXPECT_FALSE(of_nobody.is_of_user());
  EXPECT_TRUE(of_nobody.grow());
  EXPECT_EQ(of_nobody.count(), 0U);
  none = {};
  EXPECT_EQ(shares.free(), 3U);
}

}  // namespace
}  // namespace fpfs
