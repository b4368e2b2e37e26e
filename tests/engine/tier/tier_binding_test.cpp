// What an array remembers of its store: it comes back as it was, and nothing else is taken for it.
#include "engine/tier/tier_binding.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

Uuid array_id() {
  Uuid id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

const TierBinding kBinding{"0fd31246-283b-4cbc-9a6d-b87ac67c43ab", "s3://bucket/a%20b?endpoint=http://h:1"};

TEST(TierBinding, ComesBack) {
  const std::string text = encode_binding(kBinding, array_id());
  EXPECT_EQ(text,
            "{\"format\":1,\"array\":\"a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf\",\"store\":"
            "\"0fd31246-283b-4cbc-9a6d-b87ac67c43ab\",\"url\":\"s3://bucket/a%20b?endpoint=http://h:1\"}\n");
  EXPECT_EQ(decode_binding(text, array_id()).value(), kBinding);
}

TEST(TierBinding, ComesBackWithFences) {
  TierBinding binding = kBinding;
  binding.fences = {"a", "b"};
  const std::string text = encode_binding(binding, array_id());
  EXPECT_NE(text.find("\"fences\":[\"a\",\"b\"]"), std::string::npos) << text;
  EXPECT_EQ(decode_binding(text, array_id()).value(), binding);
  for (const char* const bad : {"{}", "[1]", "\"a\""}) {
    std::string damaged = text;
    damaged.replace(damaged.find("[\"a\",\"b\"]"), 9, bad);
    EXPECT_EQ(decode_binding(damaged, array_id()).status().code(), StatusCode::kCorruption) << damaged;
  }
}

TEST(TierBinding, ComesBackWithWhatLiesInTheStoreOnly) {
  TierBinding binding = kBinding;
  binding.is_away = true;
  binding.restores = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";
  binding.restored = {"b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbebf"};
  const std::string text = encode_binding(binding, array_id());
  EXPECT_EQ(decode_binding(text, array_id()).value(), binding);
  std::string damaged = text;
  damaged.replace(damaged.find("\"away\":true"), 11, "\"away\":1234");
  EXPECT_EQ(decode_binding(damaged, array_id()).status().code(), StatusCode::kCorruption);
}

TEST(TierBinding, ComesBackOfAStoreThatWasLeft) {
  TierBinding binding = kBinding;
  binding.has_left = true;
  const std::string text = encode_binding(binding, array_id());
  EXPECT_EQ(text.find("\"url\""), std::string::npos) << "of which no earlier version makes a store";
  EXPECT_EQ(decode_binding(text, array_id()).value(), binding);
}

TEST(TierBinding, IsOfOneArray) {
  EXPECT_EQ(decode_binding(encode_binding(kBinding, Uuid{}), array_id()).status().code(), StatusCode::kCorruption);
}

TEST(TierBinding, ALaterFormatIsNotGuessedAt) {
  std::string text = encode_binding(kBinding, array_id());
  text.replace(text.find(":1"), 2, ":2");
  EXPECT_EQ(decode_binding(text, array_id()).status().code(), StatusCode::kUnsupported);
}

TEST(TierBinding, WhatIsCutOffOrMissingIsDamage) {
  const std::string text = encode_binding(kBinding, array_id());
  for (size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_FALSE(decode_binding(text.substr(0, length), array_id()).is_ok()) << length;
  for (const TierBinding& bad : {TierBinding{"", kBinding.url}, TierBinding{kBinding.store_id, ""},
                                 TierBinding{kBinding.store_id, "s3://bucket/x?secret=Sesame"}}) {
    const Status status = decode_binding(encode_binding(bad, array_id()), array_id()).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_EQ(status.message().find("Sesame"), std::string::npos);
  }
}

}  // namespace
}  // namespace fpfs
