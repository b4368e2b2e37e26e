#include "tools/fpfs/stats_view.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

// Those that grow only.
constexpr std::array kCounters = {"bytes_read", "bytes_written", "commits", "buffer_waits", "metadata_errors"};

uint64_t grown(uint64_t now, uint64_t before) {
  return now >= before ? now - before : now;
}

// All numbers of two objects alike.
Json counts_between(const Json& now, const Json& before) {
  Json between = Json::object();
  for (const auto& [name, value] : now.items())
    if (value.is_number_unsigned() || value.is_number_integer())
      between[name] = grown(number_at(now, name.c_str()), number_at(before, name.c_str()));
  return between;
}

uint64_t sum_of(const Json& counts) {
  uint64_t sum = 0;
  for (const auto& [name, value] : counts.items()) sum += number_at(counts, name.c_str());
  return sum;
}

uint64_t count_at(const Json& buckets, size_t index) {
  return index < buckets.size() && buckets[index].is_number() ? buckets[index].get<uint64_t>() : 0;
}

Json operation_between(const Json& now, const Json& before) {
  if (number_at(now, "count") < number_at(before, "count")) return now;
  Json between = now;
  between["count"] = grown(number_at(now, "count"), number_at(before, "count"));
  between["seconds"] = std::max(0.0, real_at(now, "seconds") - real_at(before, "seconds"));
  between["failures"] = counts_between(object_at(now, "failures"), object_at(before, "failures"));
  const Json& newer = array_at(now, "buckets");
  const Json& older = array_at(before, "buckets");
  Json buckets = Json::array();
  for (size_t i = 0; i < newer.size(); ++i) buckets.push_back(grown(count_at(newer, i), count_at(older, i)));
  between["buckets"] = std::move(buckets);
  return between;
}

double quantile_of(const std::vector<uint64_t>& buckets, uint64_t count, double quantile, const Json& bounds) {
  if (count == 0 || bounds.empty()) return 0;
  const double wanted = quantile * static_cast<double>(count);
  uint64_t below = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    below += buckets[i];
    if (static_cast<double>(below) >= wanted) return bounds[std::min(i, bounds.size() - 1)].get<double>();
  }
  return bounds.back().get<double>();
}

// What of these numbers somebody should look at: failures that are not the caller's.
uint64_t faults_of(const Json& operations) {
  uint64_t faults = 0;
  for (const auto& [name, operation] : operations.items()) {
    const Json& failures = object_at(operation, "failures");
    faults += sum_of(failures) - number_at(failures, "caller");
  }
  return faults;
}

uint64_t drive_errors_of(const Json& stats) {
  return sum_of(object_at(stats, "errors")) + number_at(stats, "metadata_errors");
}

std::string duration_text(double seconds) {
  if (seconds <= 0) return "-";
  if (seconds < 0.001) return fmt::format("{:.0f}us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.{}f}ms", seconds * 1e3, seconds < 0.01 ? 1 : 0);
  return fmt::format("{:.1f}s", seconds);
}

constexpr size_t kWideColumns = 113;
constexpr const char* kWideLine = "{:>12} {:>12} {:>8} {:>10} {:>14} {:>14} {:>14} {:>14} {:>7}\n";
constexpr const char* kLine = "{:>10} {:>10} {:>7} {:>8} {:>8} {:>9} {:>7} {:>7} {:>6}\n";

bool is_wide(size_t columns) {
  return columns >= kWideColumns;
}

std::string latency_text(const Latency& latency, bool with_mean) {
  if (latency.count == 0) return "-";
  return (with_mean ? duration_text(latency.mean) + "/" : "") + duration_text(latency.p99);
}

}  // namespace

Json stats_between(const Json& now, const Json& before, double seconds) {
  Json between = now;
  between["seconds"] = seconds;
  for (const char* counter : kCounters) between[counter] = grown(number_at(now, counter), number_at(before, counter));
  between["errors"] = counts_between(object_at(now, "errors"), object_at(before, "errors"));
  Json operations = Json::object();
  for (const auto& [name, operation] : object_at(now, "operations").items())
    operations[name] = operation_between(operation, object_at(object_at(before, "operations"), name.c_str()));
  between["operations"] = std::move(operations);
  return between;
}

Latency latency_of(const Json& stats, const std::vector<std::string>& names) {
  const Json& bounds = array_at(stats, "latency_bounds");
  std::vector<uint64_t> buckets(bounds.size() + 1);
  Latency latency;
  double seconds = 0;
  for (const std::string& name : names) {
    const Json& operation = object_at(object_at(stats, "operations"), name.c_str());
    latency.count += number_at(operation, "count");
    seconds += real_at(operation, "seconds");
    const Json& counts = array_at(operation, "buckets");
    for (size_t i = 0; i < counts.size() && i < buckets.size(); ++i) buckets[i] += count_at(counts, i);
  }
  if (latency.count == 0) return latency;
  latency.mean = seconds / static_cast<double>(latency.count);
  latency.p50 = quantile_of(buckets, latency.count, 0.5, bounds);
  latency.p99 = quantile_of(buckets, latency.count, 0.99, bounds);
  return latency;
}

std::string describe_totals(const Json& stats) {
  Facts facts;
  facts.add("Mounted for", format_duration(real_at(stats, "uptime_seconds")));
  facts.add("Read", format_size(number_at(stats, "bytes_read")));
  facts.add("Written", format_size(number_at(stats, "bytes_written")));
  facts.add("Commits", fmt::format("{}", number_at(stats, "commits")));
  facts.add("Errors of drives", fmt::format("{}", drive_errors_of(stats)));
  Table table;
  table.add_column("OPERATION", Table::Align::kLeft);
  for (const char* heading : {"COUNT", "MEAN", "50%", "99%", "FAILED: IO", "SPACE", "RESOURCES", "CALLER"})
    table.add_column(heading, Table::Align::kRight);
  for (const auto& [name, operation] : object_at(stats, "operations").items()) {
    const Latency latency = latency_of(stats, {name});
    const Json& failures = object_at(operation, "failures");
    std::vector<std::string> row = {name, fmt::format("{}", latency.count), duration_text(latency.mean),
                                    duration_text(latency.p50), duration_text(latency.p99)};
    for (const char* kind : {"io", "space", "resources", "caller"})
      row.push_back(fmt::format("{}", number_at(failures, kind)));
    table.add_row(std::move(row));
  }
  return facts.text() + "\n" + table.text();
}

std::string interval_heading(size_t columns) {
  if (is_wide(columns))
    return fmt::format(kWideLine, "READ/S", "WRITTEN/S", "OPS/S", "COMMITS/S", "READ MEAN/99%", "WRITE MEAN/99%",
                       "CLOSE", "FSYNC", "ERRORS");
  return fmt::format(kLine, "READ/S", "WRITTEN/S", "OPS/S", "COMMIT/S", "READ 99%", "WRITE 99%", "CLOSE", "FSYNC",
                     "ERRORS");
}

std::string describe_interval(const Json& between, size_t columns) {
  const double seconds = std::max(real_at(between, "seconds"), 1e-9);
  const auto per_second = [&](const char* counter) {
    return static_cast<double>(number_at(between, counter)) / seconds;
  };
  uint64_t operations = 0;
  for (const auto& [name, operation] : object_at(between, "operations").items())
    operations += number_at(operation, "count");
  const bool wide = is_wide(columns);
  const auto rate_text = [&](const char* counter) {
    return wide ? format_rate(per_second(counter)) : format_size(static_cast<uint64_t>(per_second(counter)));
  };
  const auto latency_of_operation = [&](const char* name) { return latency_text(latency_of(between, {name}), wide); };
  return fmt::format(fmt::runtime(wide ? kWideLine : kLine), rate_text("bytes_read"), rate_text("bytes_written"),
                     fmt::format("{:.0f}", static_cast<double>(operations) / seconds),
                     fmt::format("{:.1f}", per_second("commits")), latency_of_operation("read"),
                     latency_of_operation("write"), latency_of_operation("flush"), latency_of_operation("fsync"),
                     faults_of(object_at(between, "operations")) + drive_errors_of(between));
}

}  // namespace fpfs::tools
