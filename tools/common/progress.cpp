#include "tools/common/progress.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

constexpr const char* kClearLine = "\r\033[K";
constexpr std::chrono::milliseconds kRedrawInterval{250}, kLogInterval{1000};

// The first moments say nothing of the time that is left, and not that nothing is done.
constexpr double kEstimateSecondsMin = 1;

std::string time_left(double seconds) {
  return seconds < 59.5 ? fmt::format("{:.0f} s left", std::ceil(seconds)) : format_duration(seconds) + " left";
}

std::string amount_text(uint64_t done, uint64_t total) {
  return total == 0 ? format_size(done)
                    : fmt::format("{} of {} ({})", format_size(done), format_size(total), format_percent(done, total));
}

bool is_over(const WorkDone& work) {
  return work.bytes_total > 0 && work.bytes >= work.bytes_total;
}

}  // namespace

std::string describe_work(const WorkDone& before, const WorkDone& now, double seconds) {
  const auto rate_of = [seconds](uint64_t was, uint64_t is) {
    return seconds > 0 && is > was ? static_cast<double>(is - was) / seconds : 0;
  };
  const auto is_told = [seconds](double rate) { return rate > 0 || seconds > kEstimateSecondsMin; };
  std::vector<std::string> parts;
  const bool counts_bytes = now.bytes > 0 || now.bytes_total > 0;
  if (counts_bytes) {
    const double rate = rate_of(before.bytes, now.bytes);
    parts.push_back(amount_text(now.bytes, now.bytes_total));
    if (is_told(rate)) parts.push_back(format_rate(rate));
    if (seconds > kEstimateSecondsMin && rate > 0 && now.bytes_total > now.bytes)
      parts.push_back(time_left(static_cast<double>(now.bytes_total - now.bytes) / rate));
  }
  if (now.files_total > 0)
    parts.push_back(fmt::format("{} of {}", now.files, format_count(now.files_total, "file")));
  else if (now.files > 0 || !counts_bytes)
    parts.push_back(format_count(now.files, "file"));
  if (const double rate = rate_of(before.files, now.files); !counts_bytes && is_told(rate))
    parts.push_back(fmt::format("{:.0f} files/s", rate));
  return fmt::format("{}", fmt::join(parts, ", "));
}

ProgressLine::ProgressLine(Show show, int descriptor)
    : descriptor_(descriptor),
      is_terminal_(::isatty(descriptor) != 0),
      show_(show == Show::kOnTerminal && !is_terminal_ ? Show::kNever : show) {}

bool ProgressLine::is_due() const {
  return is_on() && (!has_begun_ || Clock::now() - shown_ >= (is_terminal_ ? kRedrawInterval : kLogInterval));
}

void ProgressLine::update(const WorkDone& work) {
  if (!is_due() && !(is_on() && is_over(work))) return;
  if (!has_begun_ || (before_.bytes_total == 0 && work.bytes_total > 0)) {
    before_ = work;
    begun_ = Clock::now();
  }
  draw(describe_work(before_, work, std::chrono::duration<double>(Clock::now() - begun_).count()));
}

void ProgressLine::show(const std::string& text) {
  if (is_due()) draw(text);
}

void ProgressLine::draw(const std::string& text) {
  has_begun_ = true;
  shown_ = Clock::now();
  pollfd ready{descriptor_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  // One column is left for the cursor: in the last one some terminals begin a new line.
  const std::string line =
      is_terminal_ ? kClearLine + first_columns(one_line(text), columns_of(descriptor_) - 1) : one_line(text) + "\n";
  is_drawn_ = ::write(descriptor_, line.data(), line.size()) > 0 && is_terminal_;
}

void ProgressLine::clear() {
  if (!is_drawn_) return;
  is_drawn_ = false;
  const std::string_view text = kClearLine;
  if (::write(descriptor_, text.data(), text.size()) < 0) return;  // nobody looks any more
}

}  // namespace fpfs::tools
