// Requests that nobody answers are answered once, and late answers are held back.
#include "fs/transport/reply_watch.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/io/stall_watch.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

constexpr uint32_t kLookup = 1;
constexpr uint64_t kEver = UINT64_MAX;

TEST(ReplyWatch, AnAnswerInTimeIsTheOnlyOne) {
  ReplyWatch watch;
  watch.begin(2, kLookup);
  EXPECT_TRUE(watch.may_reply(2));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

TEST(ReplyWatch, OnlyWhatIsOverdueIsGivenUp) {
  ReplyWatch watch;
  watch.begin(2, kLookup);
  watch.begin(4, kLookup);
  EXPECT_TRUE(watch.give_up(0).empty());
  std::vector<uint64_t> given_up = watch.give_up(kEver);
  std::sort(given_up.begin(), given_up.end());
  EXPECT_EQ(given_up, (std::vector<uint64_t>{2, 4}));
  EXPECT_TRUE(watch.give_up(kEver).empty()) << "once";
  // The answer that comes after all is held back, and then forgotten.
  EXPECT_FALSE(watch.may_reply(2));
  EXPECT_TRUE(watch.may_reply(2));
  EXPECT_FALSE(watch.may_reply(4));
}

TEST(ReplyWatch, WhatTheEngineAnswersIsNotWatched) {
  ReplyWatch watch;
  for (const uint32_t opcode : {wire::kOpcodeRead, wire::kOpcodeWrite, wire::kOpcodeFlush, wire::kOpcodeFsync,
                                wire::kOpcodeForget, wire::kOpcodeForgetMany, wire::kOpcodeInit})
    watch.begin(opcode, opcode);
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

TEST(ReplyWatch, OneThatIsNotWatchedCanBeGivenUpToo) {
  ReplyWatch watch;
  watch.begin(6, wire::kOpcodeWrite);
  EXPECT_TRUE(watch.give_up_one(6));
  EXPECT_FALSE(watch.give_up_one(6));
  EXPECT_FALSE(watch.may_reply(6));
  EXPECT_TRUE(watch.may_reply(8));
}

}  // namespace
}  // namespace fpfs
