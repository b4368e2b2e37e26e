// What fpfs stats makes of two looks at a mount.
#include "tools/fpfs/stats_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fpfs::tools {
namespace {

Json stats(uint64_t written, const std::string& operations) {
  return parse_json(R"({"uptime_seconds": 5.5, "bytes_read": 0, "bytes_written": )" + std::to_string(written) +
                    R"(, "commits": 3, "errors": {"read": 2, "write": 0}, "metadata_errors": 0,)"
                    R"("latency_bounds": [0.001, 0.002, 0.004], "operations": {)" +
                    operations + "}}");
}

std::string operation(const char* name, uint64_t count, double seconds, const char* buckets, uint64_t io = 0) {
  return fmt::format(R"("{}": {{"count": {}, "seconds": {}, "failures": {{"io": {}, "caller": 5}}, "buckets": {}}})",
                     name, count, seconds, io, buckets);
}

TEST(StatsView, QuantilesAreBoundsOfBuckets) {
  const Json all =
      stats(0, operation("read", 100, 0.2, "[50, 49, 1]") + "," + operation("write", 2, 9, "[0, 0, 0, 2]"));
  const Latency read = latency_of(all, {"read"});
  EXPECT_EQ(read.count, 100U);
  EXPECT_DOUBLE_EQ(read.mean, 0.002);
  EXPECT_DOUBLE_EQ(read.p50, 0.001);
  EXPECT_DOUBLE_EQ(read.p99, 0.002);
  EXPECT_DOUBLE_EQ(latency_of(all, {"write"}).p50, 0.004);  // beyond the longest bound: at least that
  EXPECT_EQ(latency_of(all, {"read", "write"}).count, 102U);
  EXPECT_EQ(latency_of(all, {"fsync"}).count, 0U);
  EXPECT_DOUBLE_EQ(latency_of(parse_json("{}"), {"read"}).p99, 0);
}

TEST(StatsView, AnIntervalIsTheDifference) {
  const Json before = stats(1000, operation("write", 10, 1, "[10]"));
  const Json now = stats(5096, operation("write", 14, 1.008, "[13, 1]", 2) + "," + operation("read", 1, 0.001, "[1]"));
  const Json between = stats_between(now, before, 2);
  EXPECT_EQ(number_at(between, "bytes_written"), 4096U);
  EXPECT_EQ(number_at(between, "commits"), 0U);
  EXPECT_EQ(number_at(object_at(between, "errors"), "read"), 0U);
  const Latency write = latency_of(between, {"write"});
  EXPECT_EQ(write.count, 4U);
  EXPECT_NEAR(write.mean, 0.002, 1e-9);
  EXPECT_DOUBLE_EQ(write.p50, 0.001);
  EXPECT_DOUBLE_EQ(write.p99, 0.002);
  EXPECT_EQ(latency_of(between, {"read"}).count, 1U);
  for (const size_t columns : {size_t{80}, size_t{112}, size_t{113}, SIZE_MAX}) {
    const std::string line = describe_interval(between, columns);
    EXPECT_NE(line.find(columns < 113 ? " 2 KiB " : " 2 KiB/s "), std::string::npos) << line;
    EXPECT_EQ(line.substr(line.size() - 3), " 2\n") << line;  // failures, without the caller's own
    EXPECT_EQ(line.size(), interval_heading(columns).size());
    EXPECT_LE(line.size() - 1, columns < 113 ? 80U : 113U) << line;
  }
}

TEST(StatsView, WhatIsLargeFitsEightyColumns) {
  Json between = stats(uint64_t{1023} << 30, operation("read", 1, 1, "[1]") + "," + operation("fsync", 9, 1, "[0,9]"));
  between["bytes_read"] = (uint64_t{1023} << 20) + (900 << 10);
  between["commits"] = 99999;
  between["seconds"] = 1;
  between["errors"]["read"] = 99999;
  const std::string line = describe_interval(between, 80);
  EXPECT_LE(line.size() - 1, 80U) << line;
  EXPECT_NE(line.find("1023.9 MiB"), std::string::npos) << line;
}

TEST(StatsView, CountersThatWentBackBeginAnew) {
  const Json between =
      stats_between(stats(7, operation("write", 1, 0.001, "[1]")), stats(1000, operation("write", 10, 1, "[10]")), 1);
  EXPECT_EQ(number_at(between, "bytes_written"), 7U);
  EXPECT_EQ(latency_of(between, {"write"}).count, 1U);
}

TEST(StatsView, TotalsNameEveryOperation) {
  const std::string text = describe_totals(stats(0, operation("write", 10, 1, "[10]", 3)));
  EXPECT_NE(text.find("Errors of drives:  2"), std::string::npos) << text;
  EXPECT_NE(text.find("write"), std::string::npos) << text;
  EXPECT_NE(text.find("100ms"), std::string::npos) << text;
}

}  // namespace
}  // namespace fpfs::tools
