#include "tools/fsck/progress.h"

#include <cstdio>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {
constexpr const char* kClearLine = "\r\033[K";
}

void ProgressLine::update(uint64_t done_bytes, uint64_t total_bytes) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_bytes) / seconds : 0;
  std::string line = fmt::format("{} of {} ({}), {}", format_size(done_bytes), format_size(total_bytes),
                                 format_percent(done_bytes, total_bytes), format_rate(rate));
  // An estimate from the first moments says nothing.
  if (seconds > 1 && rate > 0 && total_bytes > done_bytes)
    line += fmt::format(", {} left", format_duration(static_cast<double>(total_bytes - done_bytes) / rate));
  fmt::print(stderr, "{}{}{}", redraw_ ? kClearLine : "", line, redraw_ ? "" : "\n");
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::finish() {
  if (redraw_ && drawn_) fmt::print(stderr, "{}", kClearLine);
  drawn_ = false;
}

}  // namespace fpfs::tools
