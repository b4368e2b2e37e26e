// Who counts as the only one who asks.
#include "fs/transport/sole_caller.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

wire::InHeader request(uint32_t opcode, uint32_t thread) {
  wire::InHeader header{};
  header.opcode = opcode;
  header.pid = thread;
  return header;
}

uint64_t now_ns = 0;

void ask(SoleCaller& caller, uint32_t thread, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) caller.came(request(wire::kOpcodeLookup, thread), now_ns += 1000);
}

TEST(SoleCaller, AfterManyOfOneThread) {
  SoleCaller caller;
  ask(caller, 7, SoleCaller::kRunMin);
  EXPECT_FALSE(caller.is_there());
  ask(caller, 7, 1);
  EXPECT_TRUE(caller.is_there());
  ask(caller, 7, 10 * SoleCaller::kRunMin);
  EXPECT_TRUE(caller.is_there());
}

TEST(SoleCaller, UntilAnotherComes) {
  SoleCaller caller;
  ask(caller, 7, SoleCaller::kRunMin + 1);
  ask(caller, 8, 1);
  EXPECT_FALSE(caller.is_there());
  ask(caller, 7, SoleCaller::kRunMin);
  EXPECT_FALSE(caller.is_there());
  ask(caller, 7, 1);
  EXPECT_TRUE(caller.is_there());
  caller.start_anew();
  EXPECT_FALSE(caller.is_there());
}

TEST(SoleCaller, WhatTheKernelAsksBehindItIsNobodys) {
  SoleCaller caller;
  ask(caller, 7, SoleCaller::kRunMin + 1);
  for (const uint32_t opcode :
       {wire::kOpcodeRelease, wire::kOpcodeReleaseDirectory, wire::kOpcodeForget, wire::kOpcodeForgetMany})
    caller.came(request(opcode, 0), now_ns);
  EXPECT_TRUE(caller.is_there());
}

TEST(SoleCaller, UntilItPauses) {
  SoleCaller caller;
  ask(caller, 7, SoleCaller::kRunMin + 1);
  now_ns += SoleCaller::kPauseNs / 2;
  ask(caller, 7, 1);
  EXPECT_TRUE(caller.is_there());
  now_ns += SoleCaller::kPauseNs;
  ask(caller, 7, 1);
  EXPECT_FALSE(caller.is_there());
}

// Pages that are written back, and callers of other namespaces.
TEST(SoleCaller, NobodyKnownIsNotAlone) {
  SoleCaller caller;
  ask(caller, 0, 3 * SoleCaller::kRunMin);
  EXPECT_FALSE(caller.is_there());
  ask(caller, 7, SoleCaller::kRunMin + 1);
  ask(caller, 0, 1);
  EXPECT_FALSE(caller.is_there());
}

}  // namespace
}  // namespace fpfs
