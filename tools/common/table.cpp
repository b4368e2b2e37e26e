#include "tools/common/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/units.h"

namespace fpfs::tools {

namespace {

// Not a later byte of UTF-8. So many columns on the screen does text take, near enough.
bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string padded(const std::string& text, size_t width, Table::Align align) {
  std::string padding(width - std::min(width, width_of(text)), ' ');
  return align == Table::Align::kLeft ? text + padding : padding + text;
}

// How many bytes of `text` are its next line of `columns`; more, where it has no place to break before.
size_t next_line_of(const std::string& text, size_t columns) {
  size_t line = 0, width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && ++width > columns && line > 0 && text[i] != ' ') return line;
    if (text[i] == ' ' || text[i] == ',') line = i + 1;
  }
  return text.size();
}

void append_line(std::string& out, std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  out += line + '\n';
}

}  // namespace

void Table::add_column(std::string heading, Align align, Fit fit) {
  columns_.push_back({std::move(heading), align, fit});
}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = one_line(std::move(cell));
  rows_.push_back(std::move(cells));
}

// Two blanks between columns; one that is left out has no width.
size_t Table::width_of_all(const std::vector<size_t>& widths) {
  size_t sum = 0;
  for (const size_t width : widths) sum += width == 0 ? 0 : width + 2;
  return sum - std::min<size_t>(sum, 2);
}

std::string Table::text(size_t columns) const {
  constexpr size_t kShortenedMin = 8;
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = width_of(columns_[i].heading);
    for (const auto& row : rows_) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
  }
  for (size_t i = columns_.size(); i-- > 0 && width_of_all(widths) > columns;)
    if (columns_[i].fit == Fit::kOmitted) widths[i] = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const size_t all = width_of_all(widths);
    if (columns_[i].fit == Fit::kShortened && all > columns && widths[i] > kShortenedMin)
      widths[i] = std::max(kShortenedMin, widths[i] - std::min(widths[i], all - columns));
  }
  for (size_t i = columns_.size(); i-- > 0 && width_of_all(widths) > columns;)
    if (columns_[i].fit == Fit::kOmittedLast) widths[i] = 0;
  std::string out;
  const auto append_row = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i)
      if (widths[i] > 0)
        line.append(padded(last_columns(cell_of(i), widths[i]), widths[i], columns_[i].align)).append("  ");
    append_line(out, line);
  };
  append_row([&](size_t i) { return columns_[i].heading; });
  for (const auto& row : rows_) append_row([&](size_t i) { return row[i]; });
  return out;
}

void Facts::add(std::string name, std::string value) {
  facts_.emplace_back(std::move(name), one_line(std::move(value)));
}

std::string Facts::text(size_t columns) const {
  constexpr size_t kValueMin = 16;
  size_t width = 0;
  for (const auto& fact : facts_) width = std::max(width, width_of(fact.first));
  const size_t indent = width + 3;
  const size_t columns_of_value = std::max(columns - std::min(columns, indent), kValueMin);
  std::string out;
  for (const auto& [name, value] : facts_) {
    std::string head = name + ":", rest = value;
    do {
      const size_t count = next_line_of(rest, columns_of_value);
      append_line(out, padded(head, indent, Table::Align::kLeft) + rest.substr(0, count));
      rest.erase(0, count);
      head.clear();
    } while (!rest.empty());
  }
  return out;
}

size_t columns_of(int descriptor) {
  winsize window{};
  const bool has_window = ::isatty(descriptor) != 0 && ::ioctl(descriptor, TIOCGWINSZ, &window) == 0;
  return has_window && window.ws_col > 0 ? window.ws_col : SIZE_MAX;
}

std::string last_columns(const std::string& line, size_t columns) {
  constexpr std::string_view kOmission = "...";
  const size_t width = width_of(line);
  if (width <= columns) return line;
  const size_t kept = columns - std::min(columns, kOmission.size());
  size_t begin = line.size();
  for (size_t left = kept; left > 0;)
    if (begins_character(line[--begin])) --left;
  return std::string(kOmission.substr(0, columns)) + line.substr(begin);
}

std::string first_columns(std::string line, size_t columns) {
  size_t end = 0;
  for (size_t width = 0; end < line.size(); ++end)
    if (begins_character(line[end]) && ++width > columns) break;
  line.resize(end);
  return line;
}

std::string format_rate(double bytes_per_second) {
  return format_size(bytes_per_second > 0 ? static_cast<uint64_t>(std::llround(bytes_per_second)) : 0) + "/s";
}

std::string format_duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.2f} s", seconds);
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace fpfs::tools
