#include "engine/tier/object_key.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(ObjectKeyTest, KeysThatLeadElsewhereAreRefused) {
  for (const std::string key : {"a", "a/b", ".hidden", "...", "a b/%2e%2e/c", "\xff\xfe"})
    EXPECT_TRUE(check_key(key, 0).is_ok()) << key;
  for (const std::string& key : {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
                                 std::string("."), std::string("a/../b"), std::string("a/."), std::string("a\0b", 3),
                                 std::string(256, 'x'), std::string(".fastpersistfs-unfinished-objects/x")})
    EXPECT_EQ(check_key(key, 0).code(), StatusCode::kInvalidArgument) << key;
}

TEST(ObjectKeyTest, TheLengthCountsThePrefixOfTheStore) {
  std::string key(255, 'k');
  for (int i = 0; i < 3; ++i) key += "/" + std::string(255, 'k');
  ASSERT_EQ(key.size(), 1023u);
  EXPECT_TRUE(check_key(key, 1).is_ok());
  EXPECT_FALSE(check_key(key, 2).is_ok());
}

TEST(ObjectKeyTest, APrefixEndsAnywhere) {
  for (const std::string prefix : {"", "a", "a/", "a/b.", "a/..", "."})
    EXPECT_TRUE(check_key_prefix(prefix, 0).is_ok()) << prefix;
  for (const std::string prefix : {"/", "a//", "../", "a/./b"})
    EXPECT_FALSE(check_key_prefix(prefix, 0).is_ok()) << prefix;
}

TEST(ObjectKeyTest, MetadataHasBounds) {
  EXPECT_TRUE(check_metadata({{"mode", "0644"}, {"owner", "1000:1000"}, {"x", std::string(600, '\n')}}).is_ok());
  EXPECT_EQ(check_metadata({{"x", std::string(700, '\n')}}).code(), StatusCode::kTooLarge);
  EXPECT_EQ(check_metadata({{"", "v"}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check_metadata({{"Mode", "v"}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check_metadata({{"time", "1"}, {"time-ns", "2"}}).code(), StatusCode::kInvalidArgument);
}

TEST(ObjectKeyTest, PercentEncodingIsReversed) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(percent_decode(percent_encode(all, false)).value(), all);
  EXPECT_EQ(percent_decode(percent_encode(all, true)).value(), all);
  EXPECT_EQ(percent_encode("a/b +%~\xc3", true), "a/b%20%2B%25~%C3");
  EXPECT_EQ(percent_encode("a/b", false), "a%2Fb");
  EXPECT_EQ(percent_decode("%e2%82%ac+").value(), "\xe2\x82\xac+");
  for (const std::string text : {"%", "%2", "a%zz", "%%20"}) EXPECT_FALSE(percent_decode(text).is_ok()) << text;
}

TEST(ObjectKeyTest, Utf8) {
  for (const std::string text : {"", "abc", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x99\x82"}) EXPECT_TRUE(is_utf8(text));
  for (const std::string text :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xe2\x82"})
    EXPECT_FALSE(is_utf8(text)) << percent_encode(text, false);
}

}  // namespace
}  // namespace fpfs
