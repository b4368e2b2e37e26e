// Requests that nobody answers are answered once, and late answers are held back.
#include "fs/transport/reply_watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/stall_watch.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

constexpr uint64_t kEver = UINT64_MAX;

constexpr uint64_t kNode = 0x1000, kHandle = 0x2000;

wire::RequestFacts request(uint64_t unique, uint32_t opcode) {
  wire::RequestFacts facts;
  facts.unique = unique;
  facts.opcode = opcode;
  facts.names = {kNode, kHandle, unique};
  return facts;
}

struct Watched : ReplyWatch {
  Watched() : ReplyWatch(caught) {}
  // Whether what the kernel lets go of has to wait.
  bool is_used(uint64_t name) {
    const auto is_used = std::make_shared<bool>(true);  // what is put off may outlive this call
    caught.when_unused(name, [is_used] { *is_used = false; });
    return *is_used;
  }

  CaughtRequests caught{[](const CaughtRequests::Task& task) { task(); }};
};

TEST(ReplyWatch, AnAnswerInTimeIsTheOnlyOne) {
  Watched watch;
  watch.begin(request(2, wire::kOpcodeLookup));
  EXPECT_TRUE(watch.may_reply(2));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

TEST(ReplyWatch, OnlyWhatIsOverdueIsGivenUp) {
  Watched watch;
  watch.begin(request(2, wire::kOpcodeLookup));
  watch.begin(request(4, wire::kOpcodeLookup));
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
  Watched watch;
  for (const uint32_t opcode : {wire::kOpcodeRead, wire::kOpcodeWrite, wire::kOpcodeFlush, wire::kOpcodeFsync,
                                wire::kOpcodeForget, wire::kOpcodeForgetMany, wire::kOpcodeInit})
    watch.begin(request(opcode, opcode));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

TEST(ReplyWatch, OneThatIsNotWatchedCanBeGivenUpToo) {
  Watched watch;
  watch.begin(request(6, wire::kOpcodeWrite));
  EXPECT_TRUE(watch.give_up_one(request(6, wire::kOpcodeWrite)));
  EXPECT_FALSE(watch.give_up_one(request(6, wire::kOpcodeWrite)));
  EXPECT_FALSE(watch.may_reply(6));
  EXPECT_TRUE(watch.may_reply(8));
  EXPECT_FALSE(watch.give_up_one(request(10, wire::kOpcodeForget))) << "nobody waits for an answer";
  EXPECT_TRUE(watch.may_reply(10));
}

// Its thread may be caught in what it does behind the answer.
TEST(ReplyWatch, OneThatWasAnsweredIsNotGivenUp) {
  Watched watch;
  watch.begin(request(2, wire::kOpcodeLookup));
  watch.begin(request(4, wire::kOpcodeLookup));
  EXPECT_TRUE(watch.may_reply(2));
  EXPECT_FALSE(watch.give_up_one(request(2, wire::kOpcodeLookup)));
  EXPECT_TRUE(watch.give_up_one(request(4, wire::kOpcodeLookup)));
  EXPECT_FALSE(watch.may_reply(4));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

// More under way than there are slots.
TEST(ReplyWatch, EachOfManyIsAnsweredOnce) {
  Watched watch;
  constexpr uint64_t kRequests = 5000;
  for (uint64_t i = 1; i <= kRequests; ++i) watch.begin(request(2 * i, wire::kOpcodeLookup));
  for (uint64_t i = 1; i <= kRequests; i += 2) EXPECT_TRUE(watch.may_reply(2 * i)) << i;
  std::vector<uint64_t> given_up = watch.give_up(kEver);
  EXPECT_EQ(given_up.size(), kRequests / 2);
  EXPECT_FALSE(watch.give_up_one(request(4, wire::kOpcodeLookup))) << "it was";
  EXPECT_FALSE(watch.give_up_one(request(2, wire::kOpcodeLookup))) << "it was answered";
  for (uint64_t i = 1; i <= kRequests; ++i) EXPECT_EQ(watch.may_reply(2 * i), i % 2 == 1) << i;
}

TEST(ReplyWatch, WhatIsGivenUpUsesWhatItNamesUntilItsLateAnswer) {
  Watched watch;
  watch.begin(request(2, wire::kOpcodeReadDirectory));
  watch.begin(request(4, wire::kOpcodeLookup));
  EXPECT_FALSE(watch.is_used(kNode));
  watch.give_up(kEver);
  EXPECT_TRUE(watch.give_up_one(request(6, wire::kOpcodeWrite)));
  for (const uint64_t name : {kNode, kHandle, uint64_t{2}, uint64_t{4}, uint64_t{6}}) EXPECT_TRUE(watch.is_used(name));
  EXPECT_FALSE(watch.may_reply(2));
  EXPECT_FALSE(watch.may_reply(6));
  EXPECT_FALSE(watch.is_used(2) || watch.is_used(6));
  EXPECT_TRUE(watch.is_used(kNode)) << "4 does";
  EXPECT_FALSE(watch.may_reply(4));
  EXPECT_FALSE(watch.is_used(kNode) || watch.is_used(kHandle) || watch.is_used(4));
}

TEST(ReplyWatch, WhatHadItsAnswerUsesNothing) {
  Watched watch;
  EXPECT_TRUE(watch.give_up_one(request(6, wire::kOpcodeWrite)));
  EXPECT_TRUE(watch.is_used(kNode));
  watch.had_answer(6);
  EXPECT_FALSE(watch.is_used(kNode));
  EXPECT_FALSE(watch.give_up_one(request(8, wire::kOpcodeLookup))) << "answered";
  EXPECT_FALSE(watch.is_used(kNode));
  watch.had_answer(10);  // was not given up
  EXPECT_TRUE(watch.may_reply(10));
}

// One side gives up what the other one answers: each request has exactly one of both.
TEST(ReplyWatch, AnswerOrGivenUpButNeverBoth) {
  Watched watch;
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
        watch.begin(request(unique, wire::kOpcodeLookup));
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
  EXPECT_FALSE(watch.is_used(kNode));
  EXPECT_TRUE(watch.give_up(kEver).empty());
}

}  // namespace
}  // namespace fpfs
