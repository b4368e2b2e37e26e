#include "tools/common/table.h"

#include "engine/base/ranges.h"

#include <gtest/gtest.h>

#include "engine/base/units.h"

namespace fpfs::tools {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table;
  table.add_column("NAME", Table::Align::kLeft);
  table.add_column("SIZE", Table::Align::kRight);
  table.add_column("STATE", Table::Align::kLeft);
  table.add_row({"a", "1 MiB", "ok"});
  table.add_row({"longer name", "12.5 GiB", ""});
  table.add_row({"short row"});
  EXPECT_EQ(table.text(),
            "NAME             SIZE  STATE\n"
            "a               1 MiB  ok\n"
            "longer name  12.5 GiB\n"
            "short row\n");
}

TEST(Table, WidthCountsCharactersNotBytes) {
  Table table;
  table.add_column("A", Table::Align::kRight);
  table.add_column("B", Table::Align::kLeft);
  table.add_row({"größe", "x"});
  table.add_row({"12345", "y"});
  EXPECT_EQ(table.text(), "    A  B\ngröße  x\n12345  y\n");
}

TEST(Table, NamesCannotSteerTheTerminal) {
  Table table;
  table.add_column("A", Table::Align::kLeft);
  table.add_row({"x\n\033[2J"});
  EXPECT_EQ(table.text(), "A\nx??[2J\n");
}

TEST(Table, WhatDoesNotFitGivesWay) {
  Table table;
  table.add_column("PATH", Table::Align::kLeft, Table::Fit::kShortened);
  table.add_column("SIZE", Table::Align::kRight, Table::Fit::kOmitted);
  table.add_column("READ", Table::Align::kRight, Table::Fit::kOmitted);
  table.add_column("ERRORS", Table::Align::kRight);
  table.add_row({"/größe/nvme0", "1 TiB", "2 GiB", "3"});
  EXPECT_EQ(table.text(34),
            "PATH           SIZE   READ  ERRORS\n"
            "/größe/nvme0  1 TiB  2 GiB       3\n");
  EXPECT_EQ(table.text(33), "PATH           SIZE  ERRORS\n/größe/nvme0  1 TiB       3\n");
  EXPECT_EQ(table.text(20), "PATH          ERRORS\n/größe/nvme0       3\n");
  EXPECT_EQ(table.text(18), "PATH        ERRORS\n...e/nvme0       3\n");
  EXPECT_EQ(table.text(1), "PATH      ERRORS\n...nvme0       3\n") << "no less than can be recognized";
}

TEST(Table, WhatOneWouldRatherKeepGoesLast) {
  Table table;
  table.add_column("PATH", Table::Align::kLeft, Table::Fit::kShortened);
  table.add_column("READ/S", Table::Align::kRight, Table::Fit::kOmittedLast);
  table.add_column("ERRORS", Table::Align::kRight);
  table.add_row({"/nvme0/fp/array", "1 B/s", "3"});
  EXPECT_EQ(table.text(24), "PATH      READ/S  ERRORS\n...array   1 B/s       3\n");
  EXPECT_EQ(table.text(23), "PATH      ERRORS\n...array       3\n");
}

TEST(Facts, AValueGoesOnBelowItself) {
  Facts facts;
  facts.add("Größe", "1 MiB");
  facts.add("Options", "durable=close,read_ahead=16,threads=4 and more, /a/path/that/has/no/place/to/break here");
  EXPECT_EQ(facts.text(40),
            "Größe:    1 MiB\n"
            "Options:  durable=close,read_ahead=16,\n"
            "          threads=4 and more,\n"
            "          /a/path/that/has/no/place/to/break\n"
            "          here\n");
  EXPECT_EQ(facts.text(1).find("/a/path/that/has/no/place/to/break\n"), facts.text(1).find("/a/path"))
      << "never within";
}

TEST(Facts, NamesArePaddedToOneWidth) {
  Facts facts;
  facts.add("Array", "x");
  facts.add("Chunk size", "1 MiB");
  EXPECT_EQ(facts.text(), "Array:       x\nChunk size:  1 MiB\n");
}

TEST(Format, Rates) {
  EXPECT_EQ(format_rate(1.5 * static_cast<double>(kGiB)), "1.5 GiB/s");
  EXPECT_EQ(format_rate(0), "0 B/s");
  EXPECT_EQ(format_rate(-1), "0 B/s");
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0.419), "0.42 s");
  EXPECT_EQ(format_duration(12.3), "12 s");
  EXPECT_EQ(format_duration(187), "3:07");
  EXPECT_EQ(format_duration(3600), "1:00:00");
  EXPECT_EQ(format_duration(8140), "2:15:40");
}

TEST(Format, Ranges) {
  EXPECT_EQ(format_ranges({}), "");
  EXPECT_EQ(format_ranges({1, 3, 4, 5, 7}), "1, 3-5, 7");
  std::vector<uint64_t> every_other;
  for (uint64_t i = 0; i < 100; i += 2) every_other.push_back(i);
  EXPECT_TRUE(format_ranges(every_other).ends_with(", 30, ...")) << format_ranges(every_other);
}

TEST(Format, FirstColumns) {
  EXPECT_EQ(first_columns("größe", 3), "grö");
  EXPECT_EQ(first_columns("größe", 5), "größe");
  EXPECT_EQ(first_columns("größe", 0), "");
}

TEST(Format, LastColumns) {
  EXPECT_EQ(last_columns("größe/öl", 8), "größe/öl");
  EXPECT_EQ(last_columns("größe/öl", 6), ".../öl");
  EXPECT_EQ(last_columns("größe", 3), "...");
  EXPECT_EQ(last_columns("größe", 0), "");
}

TEST(Format, Percentages) {
  EXPECT_EQ(format_percent(1, 3), "33.3 %");
  EXPECT_EQ(format_percent(0, 0), "-");
}

}  // namespace
}  // namespace fpfs::tools
