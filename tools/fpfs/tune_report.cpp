#include "tools/fpfs/tune_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

std::string rate_text(const TuneRuns& runs) {
  return runs.is_empty() ? "" : format_rate(runs.median());
}

std::string range_text(const TuneRuns& runs) {
  return runs.is_empty() ? "" : fmt::format("{} .. {}", format_rate(runs.low()), format_rate(runs.high()));
}

Json runs_json(const TuneRuns& runs) {
  if (runs.is_empty()) return nullptr;
  return {{"bytes_per_second", runs.median()},
          {"low", runs.low()},
          {"high", runs.high()},
          {"runs", runs.count()},
          {"given_up", runs.is_given_up()}};
}

bool is_finalist(const TuneOutcome& outcome, const TuneSettings& settings) {
  return std::any_of(outcome.finalists.begin(), outcome.finalists.end(),
                     [&](const TuneResult& finalist) { return finalist.settings == settings; });
}

std::string gain_text(const TuneRuns& runs, const TuneRuns& standard) {
  return fmt::format("{} (default {})", format_rate(runs.median()), format_rate(standard.median()));
}

// XML 1.0 knows no control characters but these, and nobody else's bytes are to be told from UTF-8 here.
std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  }
  return out;
}

}  // namespace

std::string tune_table(const TuneOutcome& outcome) {
  Table table;
  table.add_column("SETTINGS", Table::Align::kLeft);
  for (const char* heading : {"WRITE", "FROM .. TO", "READ", "FROM .. TO", "RUNS"})
    table.add_column(heading, Table::Align::kRight);
  table.add_column("", Table::Align::kLeft);
  const auto add = [&](const TuneResult& result, const char* remark) {
    const TuneRuns &write = result.of(TuneDirection::kWrite), &read = result.of(TuneDirection::kRead);
    table.add_row({describe(result.settings), rate_text(write), range_text(write), rate_text(read), range_text(read),
                   fmt::format("{}", write.count() + read.count()), remark});
  };
  for (size_t i = 0; i < outcome.finalists.size(); ++i)
    add(outcome.finalists[i], i == outcome.chosen ? "chosen" : "final");
  for (const TuneResult& result : outcome.searched)
    if (!is_finalist(outcome, result.settings)) {
      const bool given_up =
          result.of(TuneDirection::kWrite).is_given_up() || result.of(TuneDirection::kRead).is_given_up();
      add(result, given_up ? "given up" : "");
    }
  return table.text();
}

Json tune_result_json(const TuneResult& result) {
  Json settings = Json::object();
  settings["queue_depth"] = result.settings.queue_depth;
  settings["transfer_size"] = result.settings.transfer_size;
  settings["submit_batch"] = result.settings.submit_batch;
  settings["workers"] = result.settings.workers;
  settings["read_ahead"] = result.settings.read_ahead;
  return {{"settings", settings},
          {"write", runs_json(result.of(TuneDirection::kWrite))},
          {"read", runs_json(result.of(TuneDirection::kRead))}};
}

std::string tune_profile(const TuneOutcome& outcome, const std::string& about) {
  const TuneResult& standard = outcome.finalists.front();
  const TuneResult& chosen = outcome.finalists[outcome.chosen];
  std::string text = fmt::format("# A profile of fastpersistfs: mount with -o profile=FILE.\n# {}\n", one_line(about));
  for (const TuneDirection direction : kTuneDirections)
    text += fmt::format("# {}: {}\n", to_string(direction), gain_text(chosen.of(direction), standard.of(direction)));
  for (const auto& [name, value] : settings_of(chosen.settings)) text += fmt::format("{}={}\n", name, value);
  return text;
}

std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<ChartGroup>& groups) {
  constexpr double kWidth = 860, kLabels = 330, kFigures = 130, kBar = 18, kGap = 22, kHead = 46;
  double largest = 0;
  for (const ChartGroup& group : groups)
    for (const ChartBar& bar : group.bars) largest = std::max(largest, bar.high);
  const double scale = largest > 0 ? (kWidth - kLabels - kFigures) / largest : 0;
  std::string body;
  double y = kHead;
  for (const ChartGroup& group : groups) {
    body += fmt::format(R"(<text x="8" y="{}" font-weight="bold">{}</text>)", y + 4, xml_text(group.name));
    y += 12;
    for (const ChartBar& bar : group.bars) {
      const double middle = y + kBar / 2;
      body += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", kLabels - 6, middle + 4,
                          xml_text(bar.label));
      body += fmt::format(R"(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="#4477aa"/>)", kLabels, y,
                          bar.median * scale, kBar - 3);
      body += fmt::format(R"(<path d="M{:.1f} {:.1f}H{:.1f}" stroke="#222" stroke-width="1.5"/>)",
                          kLabels + bar.low * scale, middle - 1, kLabels + bar.high * scale);
      body += fmt::format(R"(<text x="{:.1f}" y="{}">{:.0f} {}</text>)", kLabels + bar.high * scale + 6, middle + 4,
                          bar.median, xml_text(unit));
      y += kBar;
    }
    y += kGap;
  }
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" font-family="sans-serif" )"
                     R"(font-size="12"><rect width="{}" height="{}" fill="white"/>)"
                     R"(<text x="8" y="20" font-size="14" font-weight="bold">{}</text>{}</svg>)"
                     "\n",
                     kWidth, y, kWidth, y, xml_text(title), body);
}

std::string tune_chart(const TuneOutcome& outcome, const std::string& about) {
  constexpr double kMegabyte = 1e6;
  std::vector<ChartGroup> groups;
  for (const TuneDirection direction : kTuneDirections) {
    ChartGroup group{to_string(direction), {}};
    const auto add = [&](const TuneResult& result, const char* remark) {
      const TuneRuns& runs = result.of(direction);
      if (!runs.is_empty())
        group.bars.push_back({describe(result.settings) + remark, runs.median() / kMegabyte, runs.low() / kMegabyte,
                              runs.high() / kMegabyte});
    };
    for (size_t i = 0; i < outcome.finalists.size(); ++i)
      add(outcome.finalists[i], i == outcome.chosen ? " (chosen)" : " (final)");
    for (const TuneResult& result : outcome.searched)
      if (!is_finalist(outcome, result.settings)) add(result, result.of(direction).is_given_up() ? " (given up)" : "");
    groups.push_back(std::move(group));
  }
  return bar_chart(about, "MB/s", groups);
}

}  // namespace fpfs::tools
