#include "tools/common/table.h"

#include <algorithm>
#include <cmath>

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

void append_line(std::string& out, std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  out += line + '\n';
}

}  // namespace

void Table::add_column(std::string heading, Align align) {
  columns_.push_back({std::move(heading), align});
}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = one_line(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = width_of(columns_[i].heading);
    for (const auto& row : rows_) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
  }
  std::string out, line;
  for (size_t i = 0; i < columns_.size(); ++i)
    line.append(padded(columns_[i].heading, widths[i], columns_[i].align)).append("  ");
  append_line(out, line);
  for (const auto& row : rows_) {
    line.clear();
    for (size_t i = 0; i < columns_.size(); ++i) line.append(padded(row[i], widths[i], columns_[i].align)).append("  ");
    append_line(out, line);
  }
  return out;
}

void Facts::add(std::string name, std::string value) {
  facts_.emplace_back(std::move(name), one_line(std::move(value)));
}

std::string Facts::text() const {
  size_t width = 0;
  for (const auto& fact : facts_) width = std::max(width, width_of(fact.first));
  std::string out;
  for (const auto& [name, value] : facts_)
    append_line(out, padded(name + ":", width + 1, Table::Align::kLeft) + "  " + value);
  return out;
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
