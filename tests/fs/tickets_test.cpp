#include "fs/nodes/tickets.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

using std::chrono::seconds;

TEST(Tickets, AnEndIsToldOnce) {
  Tickets tickets;
  ASSERT_TRUE(tickets.begin(7).is_ok());
  EXPECT_FALSE(tickets.ask(7).has_value());
  tickets.end(7, Status::error(StatusCode::kNoSpace, "full"));
  EXPECT_EQ(tickets.ask(7).value().code(), StatusCode::kNoSpace);
  EXPECT_EQ(tickets.ask(7).value().code(), StatusCode::kNotFound);
  EXPECT_EQ(tickets.ask(8).value().code(), StatusCode::kNotFound);
}

TEST(Tickets, WhatNobodyAsksAboutIsForgotten) {
  Tickets tickets;
  const Tickets::Clock::time_point start{};
  ASSERT_TRUE(tickets.begin(1, start).is_ok());
  ASSERT_TRUE(tickets.begin(2, start).is_ok());
  EXPECT_FALSE(tickets.ask(2, start + seconds(50)).has_value());
  ASSERT_TRUE(tickets.begin(3, start + seconds(70)).is_ok());
  EXPECT_EQ(tickets.ask(1, start + seconds(70)).value().code(), StatusCode::kNotFound);
  EXPECT_FALSE(tickets.ask(2, start + seconds(70)).has_value());
  tickets.end(1, Status::ok());
}

TEST(Tickets, ThereAreNotTooMany) {
  Tickets tickets;
  const Tickets::Clock::time_point start{};
  for (uint64_t i = 0; i < Tickets::kCountMax; ++i) ASSERT_TRUE(tickets.begin(i, start).is_ok());
  EXPECT_EQ(tickets.begin(99999, start).code(), StatusCode::kBusy);
  EXPECT_TRUE(tickets.begin(99999, start + seconds(61)).is_ok());
}

}  // namespace
}  // namespace fpfs
