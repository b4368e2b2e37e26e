#include "fs/protocol/fuse_wire.h"

#include <vector>

#include <gtest/gtest.h>

namespace fpfs::wire {
namespace {

// A request as the kernel writes it.
template <typename Body>
std::vector<std::byte> request_bytes(uint32_t opcode, const Body& body, size_t extra = 0) {
  InHeader header{};
  header.length = static_cast<uint32_t>(sizeof header + sizeof body + extra);
  header.opcode = opcode;
  header.unique = 77;
  std::vector<std::byte> bytes(header.length);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
  return bytes;
}

TEST(FuseWire, KillSetIdFlagOfWrites) {
  WriteIn in{};
  in.write_flags = kWriteKillSetId;
  EXPECT_TRUE(examine_request(request_bytes(kOpcodeWrite, in, 100)).kill_set_id);
  in.write_flags = ~kWriteKillSetId;
  const RequestFacts facts = examine_request(request_bytes(kOpcodeWrite, in, 100));
  EXPECT_FALSE(facts.kill_set_id);
  EXPECT_EQ(facts.opcode, kOpcodeWrite);
  EXPECT_EQ(facts.unique, 77U);
}

TEST(FuseWire, KillSetIdFlagOfOpenAndCreate) {
  EXPECT_TRUE(examine_request(request_bytes(kOpcodeOpen, OpenIn{0, kOpenKillSetId})).kill_set_id);
  EXPECT_FALSE(examine_request(request_bytes(kOpcodeOpen, OpenIn{kOpenKillSetId, 0})).kill_set_id);
  EXPECT_TRUE(examine_request(request_bytes(kOpcodeCreate, CreateIn{0, 0, 0, kOpenKillSetId})).kill_set_id);
  EXPECT_FALSE(examine_request(request_bytes(kOpcodeCreate, CreateIn{1, 1, 1, 0})).kill_set_id);
}

TEST(FuseWire, WhatOnlyLooks) {
  for (const uint32_t opcode :
       {kOpcodeLookup, kOpcodeGetAttributes, kOpcodeGetXattr, kOpcodeReadDirectoryPlus, kOpcodeStatx})
    EXPECT_TRUE(only_looks(opcode)) << opcode;
  for (const uint32_t opcode :
       {kOpcodeForget, kOpcodeOpen, kOpcodeRead, kOpcodeWrite, kOpcodeFlush, kOpcodeRelease, kOpcodeCreate})
    EXPECT_FALSE(only_looks(opcode)) << opcode;
}

TEST(FuseWire, InitOffersCountOnlyWhenExtended) {
  InitIn in{7, 45, 131072, kInitExtended | kInitHandleKillPrivilegesV2, kInit2DirectIoAllowMmap};
  RequestFacts facts = examine_request(request_bytes(kOpcodeInit, in, 44));
  EXPECT_EQ(facts.init_flags, in.flags);
  EXPECT_EQ(facts.init_flags2, in.flags2);
  in.flags &= ~kInitExtended;  // then flags2 is not flags at all
  EXPECT_EQ(examine_request(request_bytes(kOpcodeInit, in)).init_flags2, 0U);
}

TEST(FuseWire, ShortRequestsAreNotReadBeyondTheirEnd) {
  struct OldInit {
    uint32_t major, minor, readahead_max, flags;
  };
  const RequestFacts facts =
      examine_request(request_bytes(kOpcodeInit, OldInit{7, 31, 0, kInitHandleKillPrivilegesV2}));
  EXPECT_EQ(facts.init_flags, kInitHandleKillPrivilegesV2);
  EXPECT_EQ(facts.init_flags2, 0U);
  // Exact heap allocations, so that ASan sees any byte too many.
  const std::vector<std::byte> whole = request_bytes(kOpcodeWrite, WriteIn{});
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(examine_request(cut).kill_set_id) << length;
  }
}

TEST(FuseWire, FlowOfReadsWritesAndCloses) {
  WriteIn in{};
  in.handle = 5;
  in.offset = 4096;
  in.size = 1000;
  const Flow written = flow_of(request_bytes(kOpcodeWrite, in, 1000));
  EXPECT_EQ(written.kind, Flow::Kind::kWrite);
  EXPECT_EQ(written.handle, 5U);
  EXPECT_EQ(written.offset, FileOffset(4096));
  EXPECT_EQ(written.bytes, 1000U);
  EXPECT_EQ(flow_of(request_bytes(kOpcodeRead, in)).kind, Flow::Kind::kRead);
  for (uint32_t opcode : {kOpcodeFlush, kOpcodeRelease}) {
    const Flow ended = flow_of(request_bytes(opcode, in));
    EXPECT_EQ(ended.kind, Flow::Kind::kEnd);
    EXPECT_EQ(ended.handle, 5U);
  }
  EXPECT_EQ(flow_of(request_bytes(kOpcodeOpen, in)).kind, Flow::Kind::kNone);
  const std::vector<std::byte> whole = request_bytes(kOpcodeRead, in);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_EQ(flow_of(cut).kind, Flow::Kind::kNone) << length;
  }
}

TEST(FuseWire, TemporaryFileBecomesCreate) {
  std::vector<std::byte> request = request_bytes(kOpcodeTemporaryFile, CreateIn{2, 0100600, 022, kOpenKillSetId}, 2);
  EXPECT_TRUE(translate_request(request));
  EXPECT_EQ(request, request_bytes(kOpcodeCreate, CreateIn{2, 0100600, 022, kOpenKillSetId}, 2));
  EXPECT_FALSE(translate_request(request));
  EXPECT_TRUE(examine_request(request).kill_set_id);
  std::vector<std::byte> short_request(sizeof(InHeader) - 1);
  EXPECT_FALSE(translate_request(short_request));
}

TEST(FuseWire, InitReplyTakesWhatIsOfferedAndNothingElse) {
  InitOut reply{};
  reply.flags = 0x5;
  reply.write_max = 1048576;
  RequestFacts nothing;
  InitOut out = extend_init_reply(reply, nothing, 256);
  EXPECT_EQ(std::memcmp(&out, &reply, sizeof out), 0);

  RequestFacts all;
  all.init_flags = 0xffffffff;
  all.init_flags2 = 0xffffffff;
  out = extend_init_reply(reply, all, 256);
  EXPECT_EQ(out.flags, 0x5U | (1U << 18) | (1U << 28) | (1U << 30));
  EXPECT_EQ(out.flags2, 1U << 4);
  EXPECT_EQ(out.write_max, 1048576U);
}

TEST(FuseWire, ReadsMayBeLongerThanWritesWhereLengthsAreCountedInPages) {
  InitOut reply{};
  reply.write_max = 1048576;
  reply.pages_max = 256;
  EXPECT_EQ(extend_init_reply(reply, RequestFacts{}, 1024).pages_max, 256U);  // a kernel before 4.20
  reply.flags = kInitPagesMax;
  EXPECT_EQ(extend_init_reply(reply, RequestFacts{}, 1024).pages_max, 1024U);
  EXPECT_EQ(extend_init_reply(reply, RequestFacts{}, 1024).write_max, 1048576U);
  EXPECT_EQ(extend_init_reply(reply, RequestFacts{}, 16).pages_max, 256U);
}

TEST(FuseWire, RingEntriesHoldTheLongestRequestAndAnswer) {
  InitOut reply{};
  EXPECT_EQ(ring_payload_bytes(reply), 131072U);  // 32 pages, where the kernel was not told of more
  reply.write_max = 1048576;
  reply.pages_max = 1024;
  EXPECT_EQ(ring_payload_bytes(reply), 1048576U);
  reply.flags = kInitPagesMax;
  EXPECT_EQ(ring_payload_bytes(reply), 4194304U);
}

TEST(FuseWire, ParallelWritesOnlyWithDirectIo) {
  // A CREATE reply: an entry, then the open part.
  std::vector<std::byte> body(128 + sizeof(OpenOut), std::byte{0xee});
  auto with_flags = [&body](uint32_t flags) {
    const OpenOut open{42, flags, 0};
    std::memcpy(body.data() + 128, &open, sizeof open);
    allow_parallel_writes({body.data(), body.size()});
    OpenOut changed;
    std::memcpy(&changed, body.data() + 128, sizeof changed);
    EXPECT_EQ(changed.handle, 42U);
    return changed.open_flags;
  };
  EXPECT_EQ(with_flags(0), 0U);
  EXPECT_EQ(with_flags(1U << 5), 1U << 5);
  EXPECT_EQ(with_flags(1U), 1U | 1U << 6);
  for (size_t i = 0; i < 128; ++i) ASSERT_EQ(body[i], std::byte{0xee}) << i;
  // Too short to hold one: untouched.
  std::vector<std::byte> tiny(sizeof(OpenOut) - 1, std::byte{1});
  allow_parallel_writes({tiny.data(), tiny.size()});
  EXPECT_EQ(tiny, std::vector<std::byte>(sizeof(OpenOut) - 1, std::byte{1}));
}

}  // namespace
}  // namespace fpfs::wire
