#include "engine/tier/retry_policy.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

using std::chrono::milliseconds;

// The random number that draws the longest pause of an attempt.
uint64_t longest(unsigned attempt, const RetryPolicy& policy) {
  return static_cast<uint64_t>(std::min(policy.pause_max.count(), policy.pause_first.count() << attempt));
}

TEST(RetryPolicyTest, PausesDoubleUpToALimit) {
  RetryPolicy policy;
  policy.deadline = milliseconds(1'000'000);
  RetryState state(policy, milliseconds(0));
  std::vector<int64_t> pauses;
  for (unsigned attempt = 0; attempt < 10; ++attempt)
    pauses.push_back(state.next_pause(milliseconds(0), milliseconds(0), longest(attempt, policy))->count());
  EXPECT_EQ(pauses, (std::vector<int64_t>{100, 200, 400, 800, 1600, 3200, 6400, 12800, 20000, 20000}));
  EXPECT_EQ(state.attempts(), 10u);
}

TEST(RetryPolicyTest, PausesAreDrawnFromZeroOn) {
  const RetryPolicy policy;
  std::set<int64_t> drawn;
  for (uint64_t random = 0; random < 1000; ++random) {
    RetryState state(policy, milliseconds(0));
    drawn.insert(state.next_pause(milliseconds(0), milliseconds(0), random)->count());
  }
  EXPECT_EQ(*drawn.begin(), 0);
  EXPECT_EQ(*drawn.rbegin(), 100);
  EXPECT_EQ(drawn.size(), 101u);
}

TEST(RetryPolicyTest, TheServiceIsNotAskedBeforeItSaid) {
  RetryState state(RetryPolicy(), milliseconds(0));
  EXPECT_EQ(state.next_pause(milliseconds(0), milliseconds(7000), 3)->count(), 7000);
  EXPECT_FALSE(state.next_pause(milliseconds(0), milliseconds(400'000), 3)) << "that is after the deadline";
}

TEST(RetryPolicyTest, NoAttemptBeginsAfterTheDeadline) {
  RetryPolicy policy;
  policy.deadline = milliseconds(10'000);
  RetryState state(policy, milliseconds(50'000));
  milliseconds now(50'000);
  unsigned attempts = 0;
  while (const auto pause = state.next_pause(now, milliseconds(0), longest(attempts, policy))) {
    ++attempts;
    now += *pause + milliseconds(10);
    ASSERT_LT(now, milliseconds(60'010));
    ASSERT_LT(attempts, 100u);
  }
  EXPECT_EQ(attempts, 6u) << "100 + 200 + ... + 3200 ms";
}

TEST(RetryPolicyTest, ManyAttemptsDoNotOverflow) {
  RetryState state(RetryPolicy(), milliseconds(0));
  for (int i = 0; i < 1000; ++i)
    ASSERT_LE(state.next_pause(milliseconds(0), milliseconds(0), UINT64_MAX - 5)->count(), 20'000);
}

}  // namespace
}  // namespace fpfs
