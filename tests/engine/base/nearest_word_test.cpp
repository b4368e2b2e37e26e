#include "engine/base/nearest_word.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(NearestWordTest, FindsWhatWasMeant) {
  const std::vector<std::string> words = {"chunk-size", "meta-dir", "limit", "json",   "verify-data", "read_ahead",
                                          "size",       "jobs-a",   "ro",    "jobs-b", "verify-data"};
  const std::pair<const char*, const char*> expected[] = {
      {"chunk_size", "chunk-size"},  // '_' for '-'
      {"read-ahead", "read_ahead"},
      {"limt", "limit"},  // one letter is missing, too many, another, or exchanged
      {"limiit", "limit"},
      {"limot", "limit"},
      {"ilmit", "limit"},
      {"chnk-siez", "chunk-size"},  // two of nine
      {"verify", "verify-data"},    // the beginning of one
      {"jobs", ""},                 // two begin so
      {"jobs-", "jobs-a"},
      {"bogus", ""},
      {"lmt", ""},
      {"x", ""},  // a letter is another for each that is as short
      {"", ""},
  };
  for (const auto& [word, nearest] : expected) EXPECT_EQ(nearest_word(word, words), nearest) << word;
  EXPECT_EQ(nearest_word("limt", {}), "");
}

TEST(NearestWordTest, AnUnknownOptionIsNamedWithIt) {
  const std::vector<std::string> names = {"limit", "json"};
  EXPECT_EQ(describe_unknown_option("--limt", names, "--"), "unknown option '--limt'; did you mean --limit?");
  EXPECT_EQ(describe_unknown_option("-limit", names, "--"), "unknown option '-limit'; did you mean --limit?");
  EXPECT_EQ(describe_unknown_option("limt=4", names, ""), "unknown option 'limt=4'; did you mean limit?");
  EXPECT_EQ(describe_unknown_option("limit=4", names, ""), "unknown option 'limit=4'");
  EXPECT_EQ(describe_unknown_option("---", names, "--"), "unknown option '---'");
  EXPECT_EQ(describe_unknown_option("--bogus", names, "--"), "unknown option '--bogus'");
}

}  // namespace
}  // namespace fpfs
