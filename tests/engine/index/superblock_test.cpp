#include "engine/index/superblock.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

using Bytes = std::array<std::byte, kSuperblockSize>;

Superblock sample() {
  Superblock superblock;
  for (size_t i = 0; i < 16; ++i) {
    superblock.array_id[i] = static_cast<std::byte>(0x10 + i);
    superblock.member_id[i] = static_cast<std::byte>(0xe0 + i);
  }
  superblock.member_index = MemberIndex(2);
  superblock.member_count = 4;
  superblock.metadata_member = MemberIndex(1);
  superblock.chunk_size = 1 << 20;
  superblock.created_seconds = 1'767'225'600;
  superblock.label = "training é";
  return superblock;
}

// Writes the checksum that belongs to bytes a test has changed.
void seal(Bytes& bytes) {
  put_u64(&bytes[4088], 0);
  put_u64(&bytes[4088], hash_bytes(bytes));
}

void expect_equal(const Superblock& a, const Superblock& b) {
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.compatible, b.compatible);
  EXPECT_EQ(a.read_only_compatible, b.read_only_compatible);
  EXPECT_EQ(a.incompatible, b.incompatible);
  EXPECT_EQ(a.array_id, b.array_id);
  EXPECT_EQ(a.member_id, b.member_id);
  EXPECT_EQ(a.member_index, b.member_index);
  EXPECT_EQ(a.member_count, b.member_count);
  EXPECT_EQ(a.metadata_member, b.metadata_member);
  EXPECT_EQ(a.chunk_size, b.chunk_size);
  EXPECT_EQ(a.created_seconds, b.created_seconds);
  EXPECT_EQ(a.label, b.label);
  EXPECT_EQ(a.metadata_path, b.metadata_path);
}

TEST(SuperblockTest, ComesBackAsItWas) {
  const Superblock superblock = sample();
  const Result<Superblock> decoded = decode_superblock(encode_superblock(superblock), true);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  expect_equal(*decoded, superblock);
}

TEST(SuperblockTest, ExtremesComeBackAsTheyWere) {
  Superblock superblock = sample();
  superblock.member_index = kMetadataOnlyMember;
  superblock.metadata_member = kMetadataOnlyMember;
  superblock.member_count = kMemberCountMax;
  superblock.chunk_size = kChunkSizeMax;
  superblock.created_seconds = -1;
  superblock.label = std::string(kLabelSizeMax, 'x');
  superblock.metadata_path = "/" + std::string(kMetadataPathSizeMax - 1, 'p');
  const Result<Superblock> decoded = decode_superblock(encode_superblock(superblock), true);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  expect_equal(*decoded, superblock);

  superblock = sample();
  superblock.member_index = superblock.metadata_member = MemberIndex(0);
  superblock.member_count = 1;
  superblock.chunk_size = kChunkSizeMin;
  superblock.label.clear();
  const Result<Superblock> smallest = decode_superblock(encode_superblock(superblock), true);
  ASSERT_TRUE(smallest.is_ok()) << smallest.status().message();
  expect_equal(*smallest, superblock);
}

// The bytes of version 1 for ever (docs/format.md shows them).
TEST(SuperblockTest, GoldenBytes) {
  const Bytes bytes = encode_superblock(sample());
  const uint8_t head[] = {
      'F',  'P',  'F',  'S',  'S',  'U',  'P',  'R',   // magic
      0x01, 0x00, 0x00, 0x00,                          // version
      0x00, 0x00, 0x10, 0x00,                          // chunk size
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // compatible
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // read-only compatible
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // incompatible
      0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,  // array
      0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xeb, 0xec, 0xed, 0xee, 0xef,  // member
      0x02, 0x00,                                                                                      // member index
      0x04, 0x00,                                                                                      // member count
      0x01, 0x00,                                                        // metadata member
      0x00, 0x00,                                                        // reserved
      0x00, 0xb9, 0x55, 0x69, 0x00, 0x00, 0x00, 0x00,                    // created
      't',  'r',  'a',  'i',  'n',  'i',  'n',  'g',  ' ',  0xc3, 0xa9,  // label
  };
  EXPECT_EQ(std::memcmp(bytes.data(), head, sizeof(head)), 0);
  EXPECT_TRUE(all_zero(std::span(bytes).subspan(sizeof(head), 4088 - sizeof(head))));
  EXPECT_EQ(get_u64(&bytes[4088]), 0x938ddc2ef8ea2f2au);
}

TEST(SuperblockTest, WhatAnAdditionOfMembersChangesHasItsPlaces) {
  Superblock superblock = sample();
  superblock.incompatible = kFeatureMembership;
  superblock.membership = 0x0102030405060708;
  superblock.member_set = member_set_of(std::vector<Uuid>{superblock.member_id, superblock.array_id});
  const Bytes bytes = encode_superblock(superblock);
  EXPECT_EQ(get_u64(&bytes[32]), 1u);
  EXPECT_EQ(get_u64(&bytes[152]), 0x0102030405060708u);
  EXPECT_EQ(get_u64(&bytes[160]), 0x18929c7eee1e30a6u);
  EXPECT_TRUE(all_zero(std::span(bytes).subspan(168, 344)));
  const Result<Superblock> decoded = decode_superblock(bytes, true);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  EXPECT_EQ(decoded->membership, superblock.membership);
  EXPECT_EQ(decoded->member_set, superblock.member_set);
}

TEST(SuperblockTest, WhatARemovalOfMembersChangesHasItsPlaces) {
  Superblock superblock = sample();
  superblock.incompatible = kFeatureMembership | kFeatureOrder;
  superblock.membership = 3;
  superblock.member_count = 256;
  superblock.member_index = MemberIndex(255);
  superblock.metadata_member = MemberIndex(0);
  superblock.stripe_order = {MemberIndex(0), MemberIndex(254), MemberIndex(2)};
  superblock.removed.set(1).set(9).set(255);
  const Bytes bytes = encode_superblock(superblock);
  EXPECT_EQ(get_u64(&bytes[32]), 3u);
  EXPECT_EQ(get_u16(&bytes[168]), 3u);
  EXPECT_EQ(bytes[176], std::byte{0});
  EXPECT_EQ(bytes[177], std::byte{254});
  EXPECT_EQ(bytes[178], std::byte{2});
  EXPECT_TRUE(all_zero(std::span(bytes).subspan(179, 253)));
  EXPECT_EQ(bytes[432], std::byte{2});
  EXPECT_EQ(bytes[433], std::byte{2});
  EXPECT_EQ(bytes[463], std::byte{0x80});
  EXPECT_TRUE(all_zero(std::span(bytes).subspan(464, 48)));
  const Result<Superblock> decoded = decode_superblock(bytes, true);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  EXPECT_EQ(decoded->stripe_order, superblock.stripe_order);
  EXPECT_EQ(decoded->removed, superblock.removed);
  EXPECT_TRUE(was_removed(*decoded));
}

// The example of docs/format.md: written by mkfs, member 1 of 2.
TEST(SuperblockTest, TheDocumentedExampleIsReadable) {
  const uint8_t head[] = {
      0x46, 0x50, 0x46, 0x53, 0x53, 0x55, 0x50, 0x52, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00,  //
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe8, 0x3a, 0xac, 0x50, 0xbe, 0xe6, 0x46, 0x04,  //
      0x85, 0x41, 0x72, 0x5e, 0x4e, 0x75, 0x29, 0x90, 0xdb, 0xbb, 0x18, 0x3f, 0x71, 0xf7, 0x41, 0x8c,  //
      0xa9, 0xa8, 0xba, 0x84, 0xfe, 0xcd, 0x33, 0xfc, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00,  //
      0x3c, 0x54, 0x01, 0x6b, 0x00, 0x00, 0x00, 0x00, 0x6e, 0x69, 0x67, 0x68, 0x74, 0x20, 0x72, 0x75,  //
      0x6e};
  Bytes bytes{};
  std::memcpy(bytes.data(), head, sizeof(head));
  put_u64(&bytes[4088], 0xed181fc559ccf2a3);
  const Result<Superblock> decoded = decode_superblock(bytes, true);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  EXPECT_EQ(to_string(decoded->array_id), "e83aac50-bee6-4604-8541-725e4e752990");
  EXPECT_EQ(to_string(decoded->member_id), "dbbb183f-71f7-418c-a9a8-ba84fecd33fc");
  EXPECT_EQ(decoded->member_index, MemberIndex(1));
  EXPECT_EQ(decoded->member_count, 2);
  EXPECT_EQ(decoded->created_seconds, 1'795'249'212);
  EXPECT_EQ(decoded->label, "night run");
  EXPECT_EQ(chunk_seed(decoded->array_id.data(), FileId(0x0123456789abcdef), Generation(1), ChunkIndex(5)),
            0x528f4485f8c9b5d1u);
}

TEST(SuperblockTest, EveryFlippedBitIsRefused) {
  Bytes bytes = encode_superblock(sample());
  for (size_t bit = 0; bit < kSuperblockSize * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const Result<Superblock> decoded = decode_superblock(bytes, false);
    ASSERT_FALSE(decoded.is_ok()) << "bit " << bit;
    ASSERT_EQ(decoded.status().code(), StatusCode::kCorruption) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(SuperblockTest, OtherSizesAreRefused) {
  const Bytes bytes = encode_superblock(sample());
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode_superblock(longer, false).status().code(), StatusCode::kCorruption);
  for (const size_t size : {0, 1, 8, 512, 4095})
    EXPECT_EQ(decode_superblock(std::span(bytes).first(size), false).status().code(), StatusCode::kCorruption) << size;
}

// Bytes that are sealed with a right checksum and say something impossible.
TEST(SuperblockTest, EveryFieldIsValidated) {
  struct Case {
    const char* what;
    std::function<void(Bytes&)> damage;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"chunk size no power of two", [](Bytes& b) { put_u32(&b[12], 3 << 19); }, "chunk size"},
      {"chunk size zero", [](Bytes& b) { put_u32(&b[12], 0); }, "chunk size"},
      {"chunk size small", [](Bytes& b) { put_u32(&b[12], kChunkSizeMin / 2); }, "chunk size"},
      {"chunk size large", [](Bytes& b) { put_u32(&b[12], kChunkSizeMax * 2); }, "chunk size"},
      {"no array id", [](Bytes& b) { std::memset(&b[40], 0, 16); }, "no array"},
      {"no member id", [](Bytes& b) { std::memset(&b[56], 0, 16); }, "no member"},
      {"member index", [](Bytes& b) { put_u16(&b[72], 4); }, "member 4 of 4"},
      {"member count zero", [](Bytes& b) { put_u16(&b[74], 0); }, "member count"},
      {"member count large", [](Bytes& b) { put_u16(&b[74], kMemberCountMax + 1); }, "member count"},
      {"metadata member", [](Bytes& b) { put_u16(&b[76], 4); }, "metadata"},
      {"metadata-only without the array's knowing", [](Bytes& b) { put_u16(&b[72], kMetadataOnlyMember.value()); },
       "member 65535"},
      {"metadata path missing", [](Bytes& b) { put_u16(&b[76], kMetadataOnlyMember.value()); }, "metadata path"},
      {"metadata path without a directory", [](Bytes& b) { b[512] = std::byte{'/'}; }, "metadata path"},
      {"metadata path relative",
       [](Bytes& b) { put_u16(&b[76], kMetadataOnlyMember.value()), b[512] = std::byte{'m'}; }, "metadata path"},
      {"metadata path without an end", [](Bytes& b) { std::memset(&b[512], '/', 3072); }, "end of a text"},
      {"label without an end", [](Bytes& b) { std::memset(&b[88], 'x', 64); }, "end of a text"},
      {"label with bytes after its end", [](Bytes& b) { b[120] = std::byte{'x'}; }, "end of a text"},
      {"label not UTF-8", [](Bytes& b) { b[97] = std::byte{0xff}; }, "UTF-8"},
      {"label with half a character", [](Bytes& b) { b[98] = std::byte{0}; }, "UTF-8"},
      {"reserved at 78", [](Bytes& b) { b[79] = std::byte{1}; }, "reserved"},
      {"changes of the members without the feature", [](Bytes& b) { put_u64(&b[152], 1); }, "changes of the members"},
      {"the feature without changes of the members", [](Bytes& b) { put_u64(&b[32], 1); }, "changes of the members"},
      {"a set of members without changes", [](Bytes& b) { put_u64(&b[160], 1); }, "changes of the members"},
      {"an order without the feature", [](Bytes& b) { b[168] = std::byte{1}; }, "order of the members"},
      {"the feature without an order", [](Bytes& b) { put_u64(&b[32], 3), put_u64(&b[152], 1); },
       "order of the members"},
      {"an order without changes", [](Bytes& b) { put_u64(&b[32], 2), put_u16(&b[168], 1); }, "order of the members"},
      {"an order of members that there are not",
       [](Bytes& b) { put_u64(&b[32], 3), put_u64(&b[152], 1), put_u16(&b[168], 1), b[176] = std::byte{4}; },
       "has member 4"},
      {"a member twice in the order", [](Bytes& b) { put_u64(&b[32], 3), put_u64(&b[152], 1), put_u16(&b[168], 2); },
       "has member 0 twice"},
      {"a removed member in the order",
       [](Bytes& b) {
         put_u64(&b[32], 3), put_u64(&b[152], 1), put_u16(&b[168], 1);
         b[176] = std::byte{2}, b[432] = std::byte{4};
       },
       "has member 2 twice"},
      {"the member with the names removed",
       [](Bytes& b) {
         put_u64(&b[32], 3), put_u64(&b[152], 1), put_u16(&b[168], 1);
         b[176] = std::byte{2}, b[432] = std::byte{2};
       },
       "was removed"},
      {"a removed member that there was not",
       [](Bytes& b) { put_u64(&b[32], 3), put_u64(&b[152], 1), put_u16(&b[168], 1), b[432] = std::byte{0x10}; },
       "was removed"},
      {"members behind the width", [](Bytes& b) { b[431] = std::byte{1}; }, "0 members wide"},
      {"a width that no array has", [](Bytes& b) { put_u16(&b[168], 257); }, "257 members wide"},
      {"removed members without the feature", [](Bytes& b) { b[432] = std::byte{2}; }, "order of the members"},
      {"reserved at 170", [](Bytes& b) { b[170] = std::byte{1}; }, "reserved"},
      {"reserved at 464", [](Bytes& b) { b[464] = std::byte{1}; }, "reserved"},
      {"reserved at 511", [](Bytes& b) { b[511] = std::byte{1}; }, "reserved"},
      {"reserved at 3584", [](Bytes& b) { b[3584] = std::byte{1}; }, "reserved"},
      {"reserved at 4087", [](Bytes& b) { b[4087] = std::byte{1}; }, "reserved"},
  };
  for (const Case& test : cases) {
    Bytes bytes = encode_superblock(sample());
    test.damage(bytes);
    seal(bytes);
    const Status status = decode_superblock(bytes, true).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << test.what;
    EXPECT_NE(status.message().find(test.message), std::string::npos) << test.what << ": " << status.message();
  }
}

TEST(SuperblockTest, OtherVersionsAreUnsupportedNotDamaged) {
  Bytes bytes = encode_superblock(sample());
  for (const uint32_t version : {0u, 2u, UINT32_MAX}) {
    put_u32(&bytes[8], version);
    seal(bytes);
    const Status status = decode_superblock(bytes, false).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("version " + std::to_string(version)), std::string::npos) << status.message();
  }
}

TEST(SuperblockTest, UnknownFeatureFlags) {
  const auto with_flag = [](size_t offset) {
    Bytes bytes = encode_superblock(sample());
    put_u64(&bytes[offset], uint64_t{1} << 63);
    seal(bytes);
    return bytes;
  };
  EXPECT_TRUE(decode_superblock(with_flag(16), true).is_ok()) << "compatible flags are ignored";
  EXPECT_TRUE(decode_superblock(with_flag(24), false).is_ok()) << "read-only flags do not hinder reading";
  EXPECT_EQ(decode_superblock(with_flag(24), true).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(decode_superblock(with_flag(32), false).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(decode_superblock(with_flag(32), true).status().code(), StatusCode::kUnsupported);
  EXPECT_NE(decode_superblock(with_flag(32), true).status().message().find("0x8000000000000000"), std::string::npos);
}

TEST(SuperblockTest, Labels) {
  EXPECT_TRUE(is_valid_label(""));
  EXPECT_TRUE(is_valid_label("run é 日本 😀"));
  EXPECT_FALSE(is_valid_label(std::string(64, 'x')));
  EXPECT_FALSE(is_valid_label(std::string("a\0b", 3)));
  for (const char* wrong : {"\x80", "\xc0\xaf", "\xc1\x81", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
                            "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "a\xffz"})
    EXPECT_FALSE(is_valid_label(wrong));
}

TEST(SuperblockTest, IdsAreWrittenAsUuids) {
  EXPECT_EQ(to_string(sample().array_id), "10111213-1415-1617-1819-1a1b1c1d1e1f");
}

TEST(SuperblockDeathTest, WhatIsOutOfRangeIsNeverWritten) {
  Superblock superblock = sample();
  superblock.chunk_size = 5;
  EXPECT_DEATH((void)encode_superblock(superblock), "the caller validates");
  superblock = sample();
  superblock.version = 2;
  EXPECT_DEATH((void)encode_superblock(superblock), "one version");
}

}  // namespace
}  // namespace fpfs
