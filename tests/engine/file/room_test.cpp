#include "engine/file/room.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr uint64_t kCapacity = 64 * kMiB;
constexpr uint64_t kPool = kMiB;
constexpr unsigned kDrive = 1;  // of the first member; filesystem 0 is the root

class RoomTest : public ::testing::Test {
 protected:
  RoomTest() : environment_(2, {.mount_paths = {"/m0", "/m1"}}) {
    for (const unsigned drive : {kDrive, kDrive + 1}) environment_.sim().set_capacity(drive, kCapacity);
  }
  void open(const std::vector<std::string>& directories) {
    FormatOptions format;
    format.chunk_size = kTestChunk;
    ASSERT_TRUE(Array::format(environment_, directories, format).is_ok());
    array_ = Array::open(environment_, directories, {}).value();
    room_ = std::make_unique<Room>(environment_.storage(), *array_, kPool);
  }
  // Bytes that still fit on the member.
  uint64_t left(MemberIndex member) {
    uint64_t fits = 0, too_much = 2 * kCapacity;
    while (too_much - fits > 1) {
      const uint64_t middle = fits + (too_much - fits) / 2;
      (room_->fits(member, middle) ? fits : too_much) = middle;
    }
    return fits;
  }

  SimEnvironment environment_;
  std::unique_ptr<Array> array_;
  std::unique_ptr<Room> room_;
  static constexpr MemberIndex kFirst = MemberIndex(0), kSecond = MemberIndex(1);
};

TEST_F(RoomTest, WhatIsTakenInWhateverWayIsNotOfferedTwice) {
  open({"/m0", "/m1"});
  const uint64_t at_first = left(kFirst);
  const uint64_t of_second = left(kSecond);
  EXPECT_LE(at_first, kCapacity - kCapacity / 64) << "a little is kept free";
  room_->add_unstored(kFirst, 10 * kMiB);
  EXPECT_EQ(left(kFirst), at_first - 10 * kMiB);
  // On its way: no longer in memory only, and not known to have its space.
  room_->remove_unstored(kFirst, 10 * kMiB);
  room_->add_in_flight(kFirst, 10 * kMiB);
  EXPECT_EQ(left(kFirst), at_first - 10 * kMiB);
  room_->add_reserved(kFirst, kMiB);
  EXPECT_EQ(left(kFirst), at_first - 11 * kMiB);
  EXPECT_EQ(left(kSecond), of_second) << "another drive";
  room_->remove_in_flight(kFirst, 10 * kMiB);
  room_->remove_reserved(kFirst, kMiB);
  EXPECT_EQ(left(kFirst), at_first);
}

TEST_F(RoomTest, WhoWaitsForWhatIsOnItsWayDoesNotWaitForWhatIsSentLater) {
  open({"/m0", "/m1"});
  room_->add_in_flight(kFirst, kMiB);
  const Room::Sent sent = room_->sent();
  EXPECT_TRUE(room_->is_in_flight(kFirst, sent));
  EXPECT_FALSE(room_->is_in_flight(kSecond, sent));
  room_->add_in_flight(kFirst, kMiB);
  room_->remove_in_flight(kFirst, kMiB);
  EXPECT_FALSE(room_->is_in_flight(kFirst, sent)) << "as much as was on its way has arrived";
  EXPECT_TRUE(room_->is_in_flight(kFirst, room_->sent()));
  room_->remove_in_flight(kFirst, kMiB);
}

TEST_F(RoomTest, IsScarceOnceAWholePoolMayNotFit) {
  open({"/m0", "/m1"});
  EXPECT_FALSE(room_->is_scarce());
  const uint64_t used = kCapacity - kCapacity / 64 - left(kFirst);
  environment_.sim().set_capacity(kDrive, used + kPool / 2);
  EXPECT_FALSE(room_->is_scarce()) << "nobody has looked";
  room_->refresh(kFirst);
  EXPECT_TRUE(room_->is_scarce());
  environment_.sim().set_capacity(kDrive, kCapacity);
  room_->refresh(kFirst);
  EXPECT_FALSE(room_->is_scarce());
}

TEST_F(RoomTest, MembersOnOneDriveShareItsRoom) {
  open({"/m0/a", "/m0/b"});
  const uint64_t at_first = left(kFirst);
  EXPECT_EQ(left(kSecond), at_first);
  room_->add_unstored(kFirst, 3 * kMiB);
  EXPECT_EQ(left(kSecond), at_first - 3 * kMiB);
  room_->remove_unstored(kFirst, 3 * kMiB);
}

TEST_F(RoomTest, SparesAreKeptOnlyWhereMuchMoreIsLeft) {
  open({"/m0", "/m1"});
  EXPECT_TRUE(room_->may_hold_spare(kFirst, kMiB));
  room_->add_unstored(kFirst, left(kFirst));
  EXPECT_FALSE(room_->may_hold_spare(kFirst, kMiB));
}

}  // namespace
}  // namespace fpfs::test
