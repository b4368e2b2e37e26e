// What is written of a copy, in the store and in the array: bytes that are pinned, and everything that is refused.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_note.h"

namespace fpfs {
namespace {

TierManifest manifest() {
  TierManifest manifest;
  for (size_t i = 0; i < manifest.array_id.size(); ++i) manifest.array_id[i] = static_cast<std::byte>(0xa0 + i);
  manifest.path = "run1/step100.pt";
  manifest.mode = S_IFREG | 0640;
  manifest.uid = 1000;
  manifest.gid = 100;
  manifest.mtime_seconds = -5;
  manifest.mtime_nanoseconds = 999'999'999;
  manifest.xattrs = {{"user.a", std::string("x\0y", 3)}, {"user.tag", ""}};
  manifest.file_id = FileId(0x0123456789abcdef);
  manifest.generation = Generation(3);
  manifest.sequence = 17;
  manifest.size = 2 * kChunkSizeMin + 1;
  manifest.chunk_size = kChunkSizeMin;
  manifest.checksums = {1, 0x1122334455667788, UINT64_MAX};
  manifest.content_tag = "\"d41d8cd98f00b204e9800998ecf8427e-3\"";
  return manifest;
}

// A small file, with its content.
TierManifest with_content() {
  TierManifest small = manifest();
  small.content = std::vector<std::byte>(500, std::byte{7});
  small.size = 500;
  small.checksums = {hash_bytes(small.content)};
  return small;
}

TierManifest of_type(uint32_t mode) {
  TierManifest manifest;
  manifest.path = "d";
  manifest.mode = mode;
  if (S_ISLNK(mode)) manifest.target = "../latest";
  if (S_ISCHR(mode)) manifest.device = 0x103;
  if (S_ISREG(mode)) manifest.content_tag = "t";
  return manifest;
}

TEST(TierManifestTest, IsReadAsItWasWritten) {
  std::vector<TierManifest> manifests = {manifest(), manifest(), manifest(), manifest(), of_type(S_IFREG), {}};
  manifests[1].stored_checksums = {7, 0, UINT64_MAX - 1};
  manifests[2].replaced = {{3, 4}, {UINT64_MAX, 0}};
  manifests[3].stored_checksums = {7, 0, UINT64_MAX - 1};
  manifests[3].replaced = {{3, 4}};
  manifests[4].content_tag.clear();
  manifests[4].removed_of = array_key(manifest().array_id);
  manifests[4].replaced = {{manifests[4].removed_of, 9}};
  manifests[5] = of_type(S_IFDIR);
  manifests[5].removed_of = 1;
  manifests.push_back(with_content());
  manifests.push_back(with_content());
  manifests.back().replaced = {{3, 4}};
  manifests.back().stored_checksums = {0};
  for (const uint32_t type : {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK})
    manifests.push_back(of_type(type | 07755));
  for (const TierManifest& manifest : manifests) {
    ASSERT_TRUE(validate_manifest(manifest).is_ok()) << validate_manifest(manifest).message();
    const Result<TierManifest> read = decode_manifest(encode_manifest(manifest));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == manifest) << manifest.mode;
  }
}

// docs/format.md, "A worked example".
TEST(TierManifestTest, HasTheseBytes) {
  TierManifest manifest = of_type(S_IFREG | 0644);
  manifest.path = "a";
  manifest.file_id = FileId(0x0123456789abcdef);
  manifest.generation = Generation(1);
  manifest.sequence = 2;
  manifest.size = 5;
  manifest.chunk_size = 1024 * 1024;
  manifest.mtime_seconds = 1'700'000'000;
  const std::string_view content = "hello";
  manifest.checksums = {hash_bytes(std::as_bytes(std::span(content)))};
  manifest.content_tag = "t1";
  std::string hex;
  for (const std::byte byte : encode_manifest(manifest)) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  EXPECT_EQ(hex,
            "46504653544945520100000000000000"  // magic, version
            "00000000000000000000000000000000"  // array
            "efcdab89674523010200000000000000"  // file, commit
            "050000000000000000f1536500000000"  // size, seconds
            "00000000000000000100000000000000"  // device, checksums
            "a4810000000000000000000000000000"  // mode, user, group, nanoseconds
            "00001000010000000100000002000000"  // chunk size, generation, bytes of path and tag
            "00000000000000000000000000000000"  // bytes of target, xattrs, bytes of these
            "0000000000000000"
            "617431"            // "a", "t1"
            "fddc625c55e85595"  // XXH3("hello")
            "3ca4127e43e3362e");
}

TEST(TierManifestTest, EveryDamagedByteIsNoticed) {
  const std::vector<std::byte> good = encode_manifest(manifest());
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bytes = good;
    bytes[i] ^= std::byte{0x10};
    const Result<TierManifest> read = decode_manifest(bytes);
    ASSERT_FALSE(read.is_ok()) << "byte " << i;
    const bool is_version = i >= 8 && i < 12;
    EXPECT_EQ(read.status().code(), is_version ? StatusCode::kUnsupported : StatusCode::kCorruption) << i;
  }
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode_manifest(std::span(good).first(length)).is_ok()) << length;
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_manifest(longer).is_ok());
}

// By others, of what is its array's.
TEST(TierManifestTest, SaysWhetherItsAttributesWereChanged) {
  TierManifest edited = manifest();
  edited.replaced = {{3, 4}};
  EXPECT_FALSE(edited.is_edited());
  edited.replaced[array_key(edited.array_id)] = 5;
  edited.replaced[edit_key(array_key(edited.array_id))] = 6;
  const Result<TierManifest> read = decode_manifest(encode_manifest(edited));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(read->is_edited());
  EXPECT_EQ(*read, edited);
}

// The checksum is right, the fields are not: none of them is believed.
TEST(TierManifestTest, EveryFieldIsLookedAt) {
  TierManifest shared = manifest();
  shared.replaced = {{3, 4}, {5, 6}};
  for (const std::vector<std::byte>& good :
       {encode_manifest(manifest()), encode_manifest(shared), encode_manifest(with_content())})
    for (size_t at = 12; at + sizeof(uint32_t) <= 136; at += sizeof(uint32_t)) {
      for (const uint32_t value : {UINT32_MAX, uint32_t{1} << 31, uint32_t{0}, uint32_t{7}}) {
        std::vector<std::byte> bytes = good;
        put_u32(&bytes[at], value);
        put_u64(&bytes[bytes.size() - 8], hash_bytes(std::span(bytes).first(bytes.size() - 8)));
        const Result<TierManifest> read = decode_manifest(bytes);
        if (read.is_ok()) {
          EXPECT_TRUE(encode_manifest(*read) == bytes) << at;
        } else {
          EXPECT_EQ(read.status().code(), StatusCode::kCorruption) << at;
        }
      }
    }
}

TEST(TierManifestTest, WhatContradictsItselfIsRefused) {
  const auto is_refused = [](const std::function<void(TierManifest&)>& change) {
    TierManifest changed = manifest();
    change(changed);
    return validate_manifest(changed).code() == StatusCode::kInvalidArgument &&
           decode_manifest(encode_manifest(changed)).status().code() == StatusCode::kCorruption;
  };
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.path.clear(); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.path = std::string("a\0b", 3); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.path.assign(1025, 'x'); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.mode = 0644; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.mode |= 0x10000; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.mode = S_IFDIR | 0755; })) << "a directory with content";
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.device = 1; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.target = "x"; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.mtime_nanoseconds = 1'000'000'000; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.size = kFileSizeMax + 1; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.size = 0; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.size *= 2; })) << "chunks without checksums";
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.checksums.push_back(1); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.chunk_size = kChunkSizeMin + 1; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.chunk_size = 0; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.content_tag.clear(); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.xattrs[""] = "x"; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.removed_of = 1; })) << "removed, with content";
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.replaced[0] = 1; }));
  EXPECT_TRUE(is_refused([](TierManifest& m) {
    for (uint64_t array = 1; array <= TierManifest::kReplacedMax + 1; ++array) m.replaced[array] = 1;
  }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { m.xattrs["user.b"].assign(65537, 'x'); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) { (m = with_content()).content.front() = std::byte{8}; })) << "another";
  EXPECT_TRUE(is_refused([](TierManifest& m) { (m = with_content()).content.pop_back(); }));
  EXPECT_TRUE(is_refused([](TierManifest& m) {
    m.content.resize(TierManifest::kContentMax + 1);
    m.size = m.content.size();
    m.checksums = {hash_bytes(m.content)};
  })) << "too long for it";
}

TEST(TierManifestTest, KeysOfManifests) {
  EXPECT_EQ(manifest_key("run1/a"), ".fastpersistfs/run1/a");
  EXPECT_EQ(path_of_manifest(".fastpersistfs/run1/a"), "run1/a");
  EXPECT_EQ(manifest_key("run1/"), ".fastpersistfs/run1/.fastpersistfs-directory");
  EXPECT_EQ(path_of_manifest(".fastpersistfs/run1/.fastpersistfs-directory"), "run1/");
  EXPECT_TRUE(is_reserved(path_of_manifest(".fastpersistfs/.fastpersistfs-directory"))) << "of no root";
  EXPECT_FALSE(is_reserved("run1/"));
  EXPECT_EQ(path_of_manifest(".fastpersistfs/"), "");
  EXPECT_EQ(path_of_manifest(".fastpersistfsx/a"), "");
  EXPECT_EQ(path_of_manifest("run1/a"), "");
  EXPECT_TRUE(is_reserved(".fastpersistfs"));
  EXPECT_TRUE(is_reserved("a/.fastpersistfs/b"));
  EXPECT_TRUE(is_reserved("a/.fastpersistfs-unfinished-x"));
  EXPECT_FALSE(is_reserved("a/.fastpersistfs2/b"));
  EXPECT_FALSE(is_reserved("a/b"));
}

TEST(TierNoteTest, IsReadAsItWasWrittenOrCountsAsNone) {
  TierNote note;
  note.place = TierNote::place_of("s3://bucket/x", "run1/a");
  note.file_id = FileId(7);
  note.sequence = 9;
  note.size = 11;
  note.content_tag = TierNote::tag_of("t1");
  note.manifest_tag = TierNote::tag_of("t2");
  note.attributes = 13;
  for (const bool flag : {false, true}) {
    note.verified = flag;
    note.is_others = flag;
    const auto bytes = encode_note(note);
    const Result<TierNote> read = decode_note(bytes);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == note);
    for (size_t i = 0; i < bytes.size(); ++i) {
      auto damaged = bytes;
      damaged[i] ^= std::byte{1};
      EXPECT_FALSE(decode_note(damaged).is_ok()) << i;
      EXPECT_FALSE(decode_note(std::span(bytes).first(i)).is_ok()) << i;
    }
  }
  EXPECT_NE(TierNote::place_of("s3://bucket/x", "run1/a"), TierNote::place_of("s3://bucket/x", "run1/b"));
  EXPECT_NE(TierNote::place_of("s3://bucket/x", "run1/a"), TierNote::place_of("s3://bucket/y", "run1/a"));
}

}  // namespace
}  // namespace fpfs
