// Output for people: aligned columns, rates, durations. Control characters (of strangers' file names) become '?'.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fpfs::tools {

// Rows under a heading, columns as wide as their widest cell; numbers and sizes to the right.
class Table {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  void add_column(std::string heading, Align align);
  void add_row(std::vector<std::string> cells);
  std::string text() const;  // ends in a line break

 private:
  struct Column {
    std::string heading;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "Chunk size:   1 MiB" lines: names padded to one width.
class Facts {
 public:
  void add(std::string name, std::string value);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

// As much of a line as fits so many columns of the screen.
std::string first_columns(std::string line, size_t columns);

std::string format_rate(double bytes_per_second);  // "1.2 GiB/s"
std::string format_duration(double seconds);       // "0.42 s", "12 s", "3:07", "2:15:40"
std::string format_percent(uint64_t part, uint64_t whole);

}  // namespace fpfs::tools
