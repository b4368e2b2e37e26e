// What an array remembers to have removed of a store that it shares: it comes back as it was, and nothing else is taken
// for it.
#include "engine/tier/tier_lost.h"

#include <gtest/gtest.h>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

const TierLost::Manifests kLost = {{1, 2}, {0x1122334455667788, 0x99aabbccddeeff00}, {7, TierLost::kAnyManifest}};

Uuid array_id() {
  Uuid id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

// docs/format.md
TEST(TierLost, HasTheBytesOfItsFormat) {
  const std::vector<std::byte> bytes = TierLost::encode({{0x1122334455667788, 0x99aabbccddeeff00}}, array_id());
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", byte);
  EXPECT_EQ(text,
            "667066736c6f7374"
            "01000000"
            "01000000"
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "8877665544332211"
            "00ffeeddccbbaa99"
            "40222420371a3a06");
}

TEST(TierLost, ComesBack) {
  EXPECT_EQ(TierLost::decode(TierLost::encode(kLost, array_id()), array_id()).value(), kLost);
  EXPECT_EQ(TierLost::decode(TierLost::encode({}, array_id()), array_id()).value(), TierLost::Manifests());
}

TEST(TierLost, WhatIsDamagedCountsAsNothing) {
  const std::vector<std::byte> bytes = TierLost::encode(kLost, array_id());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x10};
    EXPECT_FALSE(TierLost::decode(damaged, array_id()).is_ok()) << i;
    EXPECT_FALSE(TierLost::decode(std::span(bytes).first(i), array_id()).is_ok()) << i;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(TierLost::decode(longer, array_id()).status().code(), StatusCode::kCorruption);
  Uuid other = array_id();
  other[3] ^= std::byte{1};
  EXPECT_EQ(TierLost::decode(bytes, other).status().code(), StatusCode::kCorruption);
}

TEST(TierLost, IsKeptByTheArray) {
  SimArray array(1);
  EXPECT_FALSE(TierLost::is_there(array.store().storage(), array.store().array()));
  const auto lost = TierLost::open(array.store(), "store");
  lost->save();
  EXPECT_TRUE(TierLost::is_there(array.store().storage(), array.store().array()));
  EXPECT_FALSE(lost->is_changed());
  lost->add(3, 4);
  lost->add(5, 6);
  EXPECT_TRUE(lost->is_changed());
  lost->save();
  lost->add(7, 8);
  const auto again = TierLost::open(array.store(), "store");
  EXPECT_FALSE(again->is_changed());
  EXPECT_EQ(again->manifest_at(3), 4U);
  EXPECT_EQ(again->manifest_at(7), 0U);
  again->forget(3, 4);
  again->forget(5, 4);  // lost again since
  again->forget(9, 1);
  EXPECT_TRUE(again->is_changed());
  again->save();
  EXPECT_EQ(TierLost::open(array.store(), "store")->manifest_at(3), 0U);
  EXPECT_EQ(TierLost::open(array.store(), "store")->manifest_at(5), 6U);
}

}  // namespace
}  // namespace fpfs::test
