#include "engine/base/check.h"

#include <cstdlib>

#include <fmt/format.h>

#include "engine/base/log.h"

namespace fpfs {

void check_failed(const char* file, int line, const char* condition, const char* message) noexcept {
  // The log, not stderr alone: a daemon's stderr is closed, and this line is all that will ever be known.
  log_line(LogLevel::kError, fmt::format("{}:{}: broken invariant: {} ({})", file, line, message, condition));
  std::abort();
}

}  // namespace fpfs
