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
  // What gives way where a window is too narrow: whole columns, the last first, then the beginnings of cells ("...e1/fp"),
  // then those columns that one would rather keep.
  enum class Fit : uint8_t { kKept, kOmitted, kShortened, kOmittedLast };
  void add_column(std::string heading, Align align, Fit fit = Fit::kKept);
  void add_row(std::vector<std::string> cells);
  // Ends in a line break. No wider than `columns`, as far as what may give way allows.
  std::string text(size_t columns = SIZE_MAX) const;

 private:
  struct Column {
    std::string heading;
    Align align;
    Fit fit;
  };
  static size_t width_of_all(const std::vector<size_t>& widths);
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "Chunk size:   1 MiB" lines: names padded to one width.
class Facts {
 public:
  void add(std::string name, std::string value);
  // A value that does not fit so many columns goes on in the next line, behind a blank or a comma.
  std::string text(size_t columns = SIZE_MAX) const;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

// Of the terminal behind a descriptor; SIZE_MAX where there is none, or where it does not say.
size_t columns_of(int descriptor);

// As much of a line as fits so many columns of the screen: its beginning, or "..." and its end.
std::string first_columns(std::string line, size_t columns);
std::string last_columns(const std::string& line, size_t columns);

std::string format_rate(double bytes_per_second);  // "1.2 GiB/s"
std::string format_duration(double seconds);       // "0.42 s", "12 s", "3:07", "2:15:40"
std::string format_percent(uint64_t part, uint64_t whole);

}  // namespace fpfs::tools
