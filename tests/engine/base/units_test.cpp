#include "engine/base/units.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(UnitsTest, ParsesSizesAsPeopleWriteThem) {
  const std::pair<const char*, uint64_t> expected[] = {{"0", 0},
                                                       {"1", 1},
                                                       {"4096", 4096},
                                                       {"64K", 64 * kKiB},
                                                       {"64k", 64 * kKiB},
                                                       {"1M", kMiB},
                                                       {"1MB", kMiB},
                                                       {"1MiB", kMiB},
                                                       {"1mib", kMiB},
                                                       {"2G", 2 * kGiB},
                                                       {"2Gb", 2 * kGiB},
                                                       {"1T", 1024 * kGiB},
                                                       {"1P", kGiB * kMiB},
                                                       {"15E", 15 * kGiB * kGiB},
                                                       {"18446744073709551615", UINT64_MAX},
                                                       {"007", 7}};
  for (const auto& [text, value] : expected) {
    const Result<uint64_t> parsed = parse_size(text);
    ASSERT_TRUE(parsed.is_ok()) << text << ": " << parsed.status().message();
    EXPECT_EQ(*parsed, value) << text;
  }
}

TEST(UnitsTest, RefusesWhatIsNoSize) {
  for (const char* text : {"",
                           "K",
                           "M1",
                           "-1",
                           "+1",
                           " 1",
                           "1 ",
                           "1 M",
                           "1.5M",
                           "0x10",
                           "1X",
                           "1Mi",
                           "1KK",
                           "1BM",
                           "1B",
                           "1iB",
                           "1MiBs",
                           "1M\n",
                           "16E",
                           "18446744073709551616",
                           "18014398509481984K",
                           "1T1"}) {
    const Result<uint64_t> parsed = parse_size(text);
    ASSERT_FALSE(parsed.is_ok()) << "'" << text << "' gave " << *parsed;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find('\''), std::string::npos) << "the message quotes the text";
  }
}

TEST(UnitsTest, FormatsSizes) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(12), "12 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(300 * kMiB), "300 MiB");
  EXPECT_EQ(format_size(kGiB + kGiB / 2), "1.5 GiB");
  EXPECT_EQ(format_size(1100), "1.1 KiB");
  EXPECT_EQ(format_size(kMiB - 1), "1 MiB") << "not 1024 KiB";
  EXPECT_EQ(format_size(kMiB - 60), "1023.9 KiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16 EiB");
}

TEST(UnitsTest, WhatIsFormattedFromWholeUnitsParsesBack) {
  for (unsigned shift = 10; shift < 64; shift += 10)
    for (const uint64_t count : {1, 3, 7}) {
      std::string text = format_size(count << shift);
      text.erase(text.find(' '), 1);
      EXPECT_EQ(parse_size(text).value(), count << shift) << text;
    }
}

TEST(UnitsTest, Rounds) {
  EXPECT_EQ(round_up(0, 4096), 0u);
  EXPECT_EQ(round_up(1, 4096), 4096u);
  EXPECT_EQ(round_up(4096, 4096), 4096u);
  EXPECT_EQ(round_down(4095, 4096), 0u);
  EXPECT_EQ(round_down(8191, 4096), 4096u);
}

}  // namespace
}  // namespace fpfs
