// Logging of the engine and the programs: one sink, levels, printf by fmt. Messages are for the operator: what
// happened, where, what to do; one line each. The data path logs failures only.
#pragma once

#include <string>

#include <fmt/format.h>

#include "engine/base/status.h"

namespace fpfs {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Default: stderr, level kInfo. `file` empty: stderr. Call before threads start.
Status configure_log(LogLevel level, const std::string& file);
// "debug", "info", "warning", "error".
Result<LogLevel> parse_log_level(const std::string& name);

void log_line(LogLevel level, const std::string& line) noexcept;

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fpfs
