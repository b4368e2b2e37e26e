// What the kernel asks for around the first page of each tensor, in all its forms, and what is not that.
#include "engine/file/tensor_starts.h"

#include <gtest/gtest.h>

#include <vector>

namespace fpfs {
namespace {

constexpr uint64_t kTensor = 16 * kMiB, kHeader = 8 * kKiB + 8;

class TensorStartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<uint64_t> begins;
    for (unsigned i = 0; i < 16; ++i) begins.push_back(kHeader + i * kTensor);
    starts_.know(starts_.ask(), begins);
  }
  static uint64_t page(unsigned tensor) { return round_down(kHeader + tensor * kTensor, kIoAlignment); }
  bool note(uint64_t offset, uint64_t length, bool is_jump) {
    return starts_.note(hops_, FileOffset(offset), static_cast<uint32_t>(length), is_jump);
  }
  // Around the page, half of it before and half behind: the requests are asked for in this order.
  bool hop(unsigned tensor, uint64_t around, uint64_t request, bool backwards) {
    bool is_hop = false;
    const uint64_t begin = page(tensor) - around / 2, count = around / request;
    for (uint64_t i = 0; i < count; ++i)
      is_hop = note(begin + (backwards ? count - 1 - i : i) * request, request, backwards || i == 0);
    return is_hop;
  }
  // The pages around which something is read ahead.
  std::vector<uint64_t> named(uint64_t count_max = 1000) {
    std::vector<uint64_t> pages;
    while (const auto page = starts_.next(hops_, count_max)) {
      pages.push_back(*page);
      hops_.name(*page);
    }
    return pages;
  }

  TensorStarts starts_;
  TensorHops hops_;
};

struct Around {
  uint64_t bytes, request;
  bool backwards;
};
class AroundTest : public TensorStartsTest, public ::testing::WithParamInterface<Around> {};

TEST_P(AroundTest, IsReadAheadOfWhoGoesFromTensorToTensor) {
  const auto [bytes, request, backwards] = GetParam();
  EXPECT_FALSE(hop(1, bytes, request, backwards));
  EXPECT_TRUE(named().empty());  // one jump leads nowhere
  EXPECT_TRUE(hop(2, bytes, request, backwards));
  EXPECT_EQ(hops_.reach, bytes / 2);
  EXPECT_EQ(named(), (std::vector{page(3), page(4)}));
  EXPECT_TRUE(hop(3, bytes, request, backwards));
  EXPECT_EQ(named(), (std::vector{page(5), page(6), page(7)}));  // four are named, with 4
  EXPECT_TRUE(hop(4, bytes, request, backwards));
  EXPECT_EQ(named(3), (std::vector<uint64_t>{}));  // three of them have not come
  EXPECT_EQ(named(4), (std::vector{page(8)}));
}

INSTANTIATE_TEST_SUITE_P(Forms, AroundTest,
                         ::testing::Values(Around{kMiB, kMiB, false}, Around{4 * kMiB, 4 * kMiB, false},
                                           Around{2 * kMiB, kMiB, false}, Around{2 * kMiB, kMiB, true},
                                           Around{4 * kMiB, kMiB, false}, Around{4 * kMiB, kMiB, true},
                                           Around{256 * kKiB, 128 * kKiB, false}));

// Of tensors that are read with the one before nobody waits for the first page.
TEST_F(TensorStartsTest, SmallTensorsAreReadWithTheirNeighbours) {
  std::vector<uint64_t> begins;
  for (unsigned i = 0; i < 16; ++i)
    for (const uint64_t small : {uint64_t{0}, 64 * kKiB, 900 * kKiB}) begins.push_back(kHeader + i * kTensor + small);
  starts_.know(starts_.ask(), begins);
  EXPECT_FALSE(hop(0 + 1, 2 * kMiB, kMiB, false));
  EXPECT_TRUE(hop(2, 2 * kMiB, kMiB, false));
  EXPECT_EQ(named(), (std::vector{page(3), page(4)}));
}

TEST_F(TensorStartsTest, TheLastOneIsNotGoneBeyond) {
  hop(13, 2 * kMiB, kMiB, true);
  EXPECT_TRUE(hop(14, 2 * kMiB, kMiB, true));
  EXPECT_EQ(named(), (std::vector{page(15)}));
  EXPECT_TRUE(hop(15, 2 * kMiB, kMiB, true));
  EXPECT_TRUE(named().empty());
}

// By requests that end where tensors begin, too.
TEST_F(TensorStartsTest, WhoReadsOnIsNoHopper) {
  EXPECT_FALSE(note(page(1), kMiB, true));
  for (uint64_t at = page(1) + kMiB; at < page(2); at += kMiB) EXPECT_FALSE(note(at, kMiB, false)) << at;
  EXPECT_TRUE(named().empty());
}

// Of each tensor more than the kernel reads around its first page: what follows that is a stream's.
TEST_F(TensorStartsTest, WhoReadsOnBehindEachIsReadAheadOfThere) {
  for (unsigned tensor = 1; tensor < 8; ++tensor) {
    EXPECT_EQ(hop(tensor, 2 * kMiB, kMiB, false), tensor > 1);
    EXPECT_FALSE(note(page(tensor) + kMiB, kMiB, false));
    EXPECT_FALSE(note(page(tensor) + 2 * kMiB, kMiB, false));
    EXPECT_EQ(hops_.reach, kMiB);
  }
  EXPECT_EQ(hops_.kept_to, 6u);
}

TEST_F(TensorStartsTest, WhoGoesElsewhereBeginsAnew) {
  hop(1, 2 * kMiB, kMiB, false);
  EXPECT_TRUE(hop(2, 2 * kMiB, kMiB, false));
  EXPECT_FALSE(note(page(9) + 8 * kMiB, kMiB, true));
  EXPECT_TRUE(named().empty());
  EXPECT_FALSE(hop(12, 2 * kMiB, kMiB, false));  // not the expected one
  EXPECT_TRUE(named().empty());
  EXPECT_TRUE(hop(13, 2 * kMiB, kMiB, false));
  EXPECT_EQ(named(), (std::vector{page(14), page(15)}));
}

TEST_F(TensorStartsTest, ShortRequestsAreNotLookedAt) {
  for (unsigned i = 1; i < 5; ++i) EXPECT_FALSE(note(page(i), 64 * kKiB, true));
  EXPECT_TRUE(named().empty());
}

// Whoever comes by the page that is expected, without a jump, reads on.
TEST_F(TensorStartsTest, WhoReadsOnToTheNextTensorIsNoHopper) {
  constexpr uint64_t kSmall = 3 * kMiB;
  std::vector<uint64_t> begins;
  for (unsigned i = 0; i < 16; ++i) begins.push_back(kHeader + kTensor + i * kSmall);
  starts_.know(starts_.ask(), begins);
  const uint64_t first = page(1);
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_FALSE(note(first + i * kSmall - kMiB, kMiB, true) && i == 0);
    EXPECT_EQ(note(first + i * kSmall, kMiB, false), i == 1);
  }
  EXPECT_FALSE(note(first + kSmall + kMiB, kMiB, false));
  EXPECT_FALSE(note(first + kSmall + 2 * kMiB, kMiB, false));
}

TEST_F(TensorStartsTest, NothingIsKnownOfContentThatHasChanged) {
  hop(1, 2 * kMiB, kMiB, false);
  const uint64_t late = starts_.ask();
  starts_.forget();
  EXPECT_TRUE(starts_.is_unknown());
  EXPECT_FALSE(hop(2, 2 * kMiB, kMiB, false));
  EXPECT_TRUE(named().empty());
  const uint64_t question = starts_.ask();
  starts_.know(late, {kHeader + 2 * kTensor, kHeader + 3 * kTensor});
  EXPECT_FALSE(hop(2, 2 * kMiB, kMiB, false));
  EXPECT_FALSE(hop(3, 2 * kMiB, kMiB, false));
  starts_.know(question, {kHeader});  // fewer than the reader has seen
  EXPECT_FALSE(starts_.is_unknown());
  EXPECT_FALSE(hop(2, 2 * kMiB, kMiB, false));
}

TEST(TensorStartsLoadTest, AHeaderIsWorthLoadingBehindSomeJumps) {
  TensorStarts starts;
  EXPECT_FALSE(starts.count_jump());
  EXPECT_FALSE(starts.count_jump());
  EXPECT_TRUE(starts.count_jump());
  starts.await_header();
  EXPECT_TRUE(starts.awaits_header());
  EXPECT_FALSE(starts.is_unknown());
  starts.forget();  // it did not come
  EXPECT_TRUE(starts.is_unknown());
}

}  // namespace
}  // namespace fpfs
