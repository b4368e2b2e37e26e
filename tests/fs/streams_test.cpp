#include "fs/transport/streams.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace fpfs {
namespace {

// Nobody looks into it.
std::shared_ptr<File> some_file() {
  const auto owner = std::make_shared<int>();
  return {owner, reinterpret_cast<File*>(owner.get())};
}

// `count` files that are written, by handles 1, 2, ...
struct Writers {
  explicit Writers(unsigned count) {
    for (unsigned i = 0; i < count; ++i) files.push_back(some_file());
  }
  void received(Streams::Claim& claim, uint64_t handle) {
    ends.resize(files.size());
    ends[handle - 1] += 1000;
    streams.received(claim, handle, files[handle - 1], FileOffset(ends[handle - 1]));
  }
  // As by somebody who expected nothing.
  void came(uint64_t handle) {
    Streams::Claim none;
    received(none, handle);
  }
  Streams streams;
  std::vector<std::shared_ptr<File>> files;
  std::vector<uint64_t> ends;
};

// A receiver and what it expects.
class Receiver {
 public:
  explicit Receiver(Writers& writers) : writers_(writers) {}
  uint64_t expects() {
    claim_.emplace();
    writers_.streams.expect(*claim_);
    for (uint64_t handle = 1; handle <= writers_.ends.size(); ++handle)
      if (claim_->is(handle, FileOffset(writers_.ends[handle - 1]))) return claim_->file() != nullptr ? handle : 0;
    return 0;
  }
  void receives(uint64_t handle) { writers_.received(*claim_, handle); }
  void gives_up() { writers_.streams.gave_up(*claim_); }

 private:
  Writers& writers_;
  std::optional<Streams::Claim> claim_;
};

// As torch.save writes in the legacy format: each tensor with its length before it.
TEST(Streams, WhatIsShortBetweenTwoLongOnesIsOfTheStream) {
  Writers writers(1);
  writers.came(1);
  Streams::Claim claim;
  writers.streams.expect(claim);
  EXPECT_TRUE(writers.streams.received_short(claim, 1, FileOffset(1000), FileOffset(1008)));
  Streams::Claim next;
  writers.streams.expect(next);
  EXPECT_TRUE(next.is(1, FileOffset(1008))) << "the tensor is expected behind its length";
  writers.streams.gave_up(next);
  Streams::Claim none;
  EXPECT_FALSE(writers.streams.received_short(none, 1, FileOffset(1000), FileOffset(1008))) << "somewhere else";
  EXPECT_FALSE(writers.streams.received_short(none, 2, FileOffset(1008), FileOffset(1016))) << "of another handle";
}

TEST(Streams, WhoWritesOnlyShortOnesIsNoStream) {
  Writers writers(1);
  Streams::Claim none;
  EXPECT_FALSE(writers.streams.received_short(none, 1, FileOffset(0), FileOffset(8)));
  writers.came(1);
  uint64_t end = 1000;
  for (unsigned i = 0; i < Streams::kShortsMax; ++i, end += 8)
    EXPECT_TRUE(writers.streams.received_short(none, 1, FileOffset(end), FileOffset(end + 8)));
  writers.streams.expect(none);
  EXPECT_TRUE(none.is(1, FileOffset(end)));
  EXPECT_FALSE(writers.streams.received_short(none, 1, FileOffset(end), FileOffset(end + 8)));
  Streams::Claim nothing;
  writers.streams.expect(nothing);
  EXPECT_EQ(nothing.file(), nullptr) << "it is not expected until it is seen again";
}

TEST(Streams, WhatIsShortCostsOthersNothing) {
  Writers writers(2);
  for (const uint64_t handle : {1, 2}) {
    writers.came(handle);
    writers.streams.handled(handle);
  }
  uint64_t end = 1000;
  for (unsigned i = 0; i < Streams::kMissesMax + 1; ++i, end += 8) {
    Streams::Claim claim;  // of the other, whose turn it is
    writers.streams.expect(claim);
    EXPECT_TRUE(claim.is(1, FileOffset(1000)));
    EXPECT_TRUE(writers.streams.received_short(claim, 2, FileOffset(end), FileOffset(end + 8)));
    writers.streams.handled(2);
  }
}

TEST(Streams, NothingIsExpectedOfNobody) {
  Writers writers(1);
  Receiver receiver(writers);
  EXPECT_EQ(receiver.expects(), 0U);
  EXPECT_EQ(writers.streams.active(), 0U);
}

TEST(Streams, TheOnlyOneIsExpectedAlways) {
  Writers writers(1);
  Receiver receiver(writers);
  writers.came(1);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(receiver.expects(), 1U);
    receiver.receives(1);
  }
  EXPECT_EQ(writers.streams.active(), 1U);
}

// One was received before the other, and takes longer to be answered.
TEST(Streams, WhoIsNotAnsweredIsNotExpected) {
  Writers writers(2);
  writers.came(1);
  writers.came(2);
  writers.streams.handled(2);
  Receiver a(writers), b(writers);
  EXPECT_EQ(a.expects(), 2U);
  EXPECT_EQ(b.expects(), 1U);  // when there is no other
}

TEST(Streams, WhoWasAnsweredFirstIsExpectedFirst) {
  Writers writers(2);
  writers.came(1);
  writers.came(2);
  writers.streams.handled(2);
  writers.streams.handled(1);
  Receiver receiver(writers);
  EXPECT_EQ(receiver.expects(), 2U);
}

TEST(Streams, WhatIsBeingReceivedIsNotExpectedByOthers) {
  Writers writers(2);
  writers.came(1);
  writers.came(2);
  Receiver a(writers), b(writers), c(writers);
  EXPECT_EQ(a.expects(), 1U);
  EXPECT_EQ(b.expects(), 2U);
  EXPECT_EQ(c.expects(), 0U);
  b.gives_up();
  EXPECT_EQ(c.expects(), 2U);
}

TEST(Streams, OneReceiverFindsThemInTurn) {
  Writers writers(5);
  for (uint64_t handle = 1; handle <= 5; ++handle) writers.came(handle);
  Receiver receiver(writers);
  for (int round = 0; round < 10; ++round) {
    for (uint64_t handle = 1; handle <= 5; ++handle) {
      ASSERT_EQ(receiver.expects(), handle);
      receiver.receives(handle);
    }
  }
}

// Somebody else's turn was missed once: it still is who has waited longest.
TEST(Streams, OneMistakeIsOne) {
  Writers writers(3);
  for (uint64_t handle = 1; handle <= 3; ++handle) writers.came(handle);
  Receiver receiver(writers);
  EXPECT_EQ(receiver.expects(), 1U);
  receiver.receives(2);
  for (uint64_t handle : {1U, 3U, 2U, 1U}) {
    EXPECT_EQ(receiver.expects(), handle);
    receiver.receives(handle);
  }
}

TEST(Streams, WhoGotTheStreamOfAnotherLeavesItsOwn) {
  Writers writers(2);
  writers.came(1);
  writers.came(2);
  Receiver a(writers), b(writers);
  EXPECT_EQ(a.expects(), 1U);
  EXPECT_EQ(b.expects(), 2U);
  a.receives(2);  // b can only have the other
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(a.expects(), 2U);
    b.receives(1);
    EXPECT_EQ(b.expects(), 1U);
    a.receives(2);
  }
}

// Eight callers, each with one request under way, and as many receivers: whoever is free takes what has come.
TEST(Streams, AsManyReceiversFindTheirOwnStreams) {
  constexpr unsigned kCount = 8, kRounds = 100;
  Writers writers(kCount);
  std::vector<std::unique_ptr<Receiver>> receivers;
  std::deque<uint64_t> callers;
  for (uint64_t handle = 1; handle <= kCount; ++handle) {
    receivers.push_back(std::make_unique<Receiver>(writers));
    callers.push_back(handle * 5 % 8 + 1);
  }
  // All wait when the first requests come; each copies for as long as the others, and begins again with its caller.
  std::vector<uint64_t> in_hand(kCount);
  unsigned right = 0;
  for (unsigned i = 0; i < kCount; ++i) {
    (void)receivers[i]->expects();
    in_hand[i] = callers[i];
  }
  for (unsigned step = 0; step < kCount * kRounds; ++step) {
    const unsigned i = step % kCount;
    receivers[i]->receives(in_hand[i]);
    right += receivers[i]->expects() == in_hand[i] ? 1 : 0;
    if (step % 37 == 36) {  // two callers are quick, and find each other's receiver
      const unsigned next = (i + 1) % kCount;
      receivers[next]->receives(in_hand[next]);
      (void)receivers[next]->expects();
      std::swap(in_hand[i], in_hand[next]);
    }
  }
  EXPECT_GT(right, kCount * kRounds * 9 / 10);
}

TEST(Streams, AWriteIsExpectedBehindTheLast) {
  Streams streams;
  const std::shared_ptr<File> file = some_file();
  Streams::Claim none, claim;
  streams.received(none, 7, file, FileOffset(4096));
  streams.expect(claim);
  EXPECT_EQ(claim.file(), file);
  EXPECT_TRUE(claim.is(7, FileOffset(4096)));
  EXPECT_FALSE(claim.is(7, FileOffset(4097)));
  EXPECT_FALSE(claim.is(8, FileOffset(4096)));
  streams.gave_up(claim);
}

TEST(Streams, OneThatDoesNotComeIsNotExpectedForEver) {
  Writers writers(2);
  writers.came(1);
  Receiver receiver(writers);
  for (unsigned i = 0; i < Streams::kMissesMax; ++i) {
    EXPECT_EQ(receiver.expects(), 1U);
    receiver.receives(2);
  }
  EXPECT_EQ(receiver.expects(), 2U);
  receiver.receives(1);
  EXPECT_EQ(receiver.expects(), 2U);
  receiver.receives(2);
  EXPECT_EQ(receiver.expects(), 1U);
}

TEST(Streams, ShortRequestsAreNoMistake) {
  Writers writers(1);
  writers.came(1);
  Receiver receiver(writers);
  for (unsigned i = 0; i < 10 * Streams::kMissesMax; ++i) {
    ASSERT_EQ(receiver.expects(), 1U);
    receiver.gives_up();
  }
}

TEST(Streams, TheyEndWhenClosedOrQuiet) {
  Writers writers(3);
  for (uint64_t handle = 1; handle <= 3; ++handle) writers.came(handle);
  writers.streams.end(2);
  EXPECT_EQ(writers.streams.active(), 2U);
  for (unsigned i = 0; i <= Streams::kQuietMin + 2 * Streams::kQuietTimes; ++i) writers.came(3);
  EXPECT_EQ(writers.streams.active(), 1U);
  Receiver receiver(writers);
  EXPECT_EQ(receiver.expects(), 3U);
  writers.streams.end(3);  // while it is claimed
  receiver.receives(3);
  EXPECT_EQ(receiver.expects(), 3U);
  writers.streams.end(3);
  writers.came(3);  // another one by the same number
  receiver.gives_up();
  EXPECT_EQ(receiver.expects(), 3U);
}

TEST(Streams, TheFileIsNotKeptOpen) {
  Writers writers(1);
  writers.came(1);
  writers.files.clear();
  Receiver receiver(writers);
  EXPECT_EQ(receiver.expects(), 0U);
}

TEST(Streams, ReadersCountAndAreNotExpected) {
  Writers writers(1);
  writers.came(1);
  Streams::Claim none;
  writers.streams.received(none, 2, nullptr, FileOffset(0));
  EXPECT_EQ(writers.streams.active(), 2U);
  Receiver a(writers), b(writers);
  EXPECT_EQ(a.expects(), 1U);
  EXPECT_EQ(b.expects(), 0U);
}

TEST(Streams, TheQuietestMakesRoom) {
  Writers writers(Streams::kStreamsMax + 1);
  for (uint64_t handle = 1; handle <= Streams::kStreamsMax + 1; ++handle) writers.came(handle);
  EXPECT_EQ(writers.streams.active(), Streams::kStreamsMax);
  Receiver receiver(writers);
  EXPECT_EQ(receiver.expects(), 2U);
}

TEST(LandingOdds, AreGoodWhileMostGuessesComeTrue) {
  LandingOdds odds;
  EXPECT_TRUE(odds.are_good());
  for (int i = 0; i < 4; ++i) odds.guessed(false);
  EXPECT_FALSE(odds.are_good());
  for (int i = 0; i < 4; ++i) odds.guessed(true);
  EXPECT_TRUE(odds.are_good());
  for (int i = 0; i < 100; ++i) odds.guessed(i % 2 == 0);
  EXPECT_FALSE(odds.are_good());
  for (int i = 0; i < 100; ++i) odds.guessed(i % 4 != 0);
  EXPECT_TRUE(odds.are_good());
}

}  // namespace
}  // namespace fpfs
