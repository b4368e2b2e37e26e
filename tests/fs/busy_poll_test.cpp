// When a receiver looks for the next request of a stream, and when it leaves that out.
#include "fs/transport/busy_poll.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

// How many requests have no look until there is one, which finds something or does not.
unsigned left_out_before_look(BusyPoll& poll, bool found) {
  for (unsigned left_out = 0; left_out < 1000; ++left_out)
    if (poll.is_worth_it()) {
      poll.looked(found);
      return left_out;
    }
  ADD_FAILURE() << "it never looks again";
  return 0;
}

TEST(BusyPoll, LooksEachTimeWhileThereIsSomething) {
  BusyPoll poll;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(left_out_before_look(poll, true), 0u);
}

TEST(BusyPoll, LooksEverMoreSeldomInVain) {
  BusyPoll poll;
  for (const unsigned expected : {0, 1, 3, 7, 15, 31, 63, 63, 63})
    EXPECT_EQ(left_out_before_look(poll, false), expected);
}

TEST(BusyPoll, OneThatFindsSomethingBeginsAnew) {
  BusyPoll poll;
  for (int i = 0; i < 5; ++i) left_out_before_look(poll, false);
  EXPECT_EQ(left_out_before_look(poll, true), 31u);
  EXPECT_EQ(left_out_before_look(poll, true), 0u);
  EXPECT_EQ(left_out_before_look(poll, false), 0u);
  EXPECT_EQ(left_out_before_look(poll, false), 1u);
}

}  // namespace
}  // namespace fpfs
