// Requests that nobody answers are answered once, and late answers are held back.
#include "fs/transport/reply_watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/stall_watch.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

constexpr uint64_t kEver = UINT64_MAX;

TEST(ReplyWatch, AnAnswerInTimeIsTheOnlyOne) {
  ReplyWatch watch;
  watch.begin(2, wire::kOpcodeLookup);
  EXPECT_TRUE(watch.may_reply(2));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

TEST(ReplyWatch, OnlyWhatIsOverdueIsGivenUp) {
  ReplyWatch watch;
  watch.begin(2, wire::kOpcodeLookup);
  watch.begin(4, wire::kOpcodeLookup);
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
  EXPECT_TRUE(watch.give_up_one(6, wire::kOpcodeWrite));
  EXPECT_FALSE(watch.give_up_one(6, wire::kOpcodeWrite));
  EXPECT_FALSE(watch.may_reply(6));
  EXPECT_TRUE(watch.may_reply(8));
  EXPECT_FALSE(watch.give_up_one(10, wire::kOpcodeForget)) << "nobody waits for an answer";
  EXPECT_TRUE(watch.may_reply(10));
}

// Its thread may be caught in what it does behind the answer.
TEST(ReplyWatch, OneThatWasAnsweredIsNotGivenUp) {
  ReplyWatch watch;
  watch.begin(2, wire::kOpcodeLookup);
  watch.begin(4, wire::kOpcodeLookup);
  EXPECT_TRUE(watch.may_reply(2));
  EXPECT_FALSE(watch.give_up_one(2, wire::kOpcodeLookup));
  EXPECT_TRUE(watch.give_up_one(4, wire::kOpcodeLookup));
  EXPECT_FALSE(watch.may_reply(4));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

// More under way than there are slots.
TEST(ReplyWatch, EachOfManyIsAnsweredOnce) {
  ReplyWatch watch;
  constexpr uint64_t kRequests = 5000;
  for (uint64_t i = 1; i <= kRequests; ++i) watch.begin(2 * i, wire::kOpcodeLookup);
  for (uint64_t i = 1; i <= kRequests; i += 2) EXPECT_TRUE(watch.may_reply(2 * i)) << i;
  std::vector<uint64_t> given_up = watch.give_up(kEver);
  EXPECT_EQ(given_up.size(), kRequests / 2);
  EXPECT_FALSE(watch.give_up_one(4, wire::kOpcodeLookup)) << "it was";
  EXPECT_FALSE(watch.give_up_one(2, wire::kOpcodeLookup)) << "it was answered";
  for (uint64_t i = 1; i <= kRequests; ++i) EXPECT_EQ(watch.may_reply(2 * i), i % 2 == 1) << i;
}

// One side gives up what the other one answers: each request has exactly one of both.
TEST(ReplyWatch, AnswerOrGivenUpButNeverBoth) {
  ReplyWatch watch;
  std::atomic<bool> stop{false};
  std::vector<uint64_t> given_up;
  std::thread looker([&] {
    while (!stop) {
      const std::vector<uint64_t> found = watch.give_up(kEver);
      given_up.insert(given_up.end(), found.begin(), found.end());
    }
  });
  constexpr uint64_t kRequests = 200'000;
  std::array<std::vector<uint64_t>, 2> held_back;
  std::array<std::thread, 2> workers;
  for (uint64_t worker = 0; worker < 2; ++worker)
    workers[worker] = std::thread([&, worker] {
      for (uint64_t i = 1; i <= kRequests; ++i) {
        const uint64_t unique = 4 * i + 2 * worker;
        watch.begin(unique, wire::kOpcodeLookup);
        if (!watch.may_reply(unique)) held_back[worker].push_back(unique);
      }
    });
  for (std::thread& worker : workers) worker.join();
  stop = true;
  looker.join();
  held_back[0].insert(held_back[0].end(), held_back[1].begin(), held_back[1].end());
  std::sort(held_back[0].begin(), held_back[0].end());
  std::sort(given_up.begin(), given_up.end());
  EXPECT_EQ(given_up, held_back[0]);
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

}  // namespace
}  // namespace fpfs
