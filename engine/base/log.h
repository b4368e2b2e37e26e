// Logging of the engine and the programs: levels, printf by fmt. Messages are for the operator: what happened, where,
// what to do; one line each. Files are named by their paths in the mount. The data path logs failures only.
//
// Warnings and errors that repeat are counted (log_repeats.h): those with the same text, and with log_about() those
// with the same key. With level kDebug all of them are written.
//
// Thread safety: all functions but configure_log() may be called from any thread.
#pragma once

#include <string>

#include <fmt/format.h>

#include "engine/base/log_repeats.h"
#include "engine/base/status.h"

namespace fpfs {

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  // Where lines go: to this file, appended, mode 0640 when it is made (directories are not); without one to the
  // system's log (syslog(3), which journald takes in as well) if that is wanted, else to stderr.
  std::string file = {};
  bool system_log = false;
  // In the system's log and the journal, before each line: which of several mounts says so.
  std::string prefix = {};
  // stderr_is_journal(): what goes to stderr has the priority that it is to have there, and the prefix, and no time. To
  // the system's log it goes only once; where this is not so, to stderr besides.
  bool to_journal = false;
};

// What is written to stderr goes to the systemd journal, as that of a service does (systemd.exec(5), JOURNAL_STREAM).
bool stderr_is_journal();
// "<3>" and the like, which the journal takes a line's priority from (sd-daemon(3)).
std::string journal_priority(LogLevel level);

// Default: stderr, level kInfo. Call before threads start. A file that cannot be opened: kInvalidArgument.
Status configure_log(const LogOptions& options);
// Opens the file anew, after logrotate moved it; nothing without a file. A failure is logged, to the old file.
void reopen_log();
// "debug", "info", "warning", "error".
Result<LogLevel> parse_log_level(const std::string& name);

// `key`: what the line is about; lines with the same one are repetitions.
void log_line_about(const std::string& key, LogLevel level, const std::string& line) noexcept;
void log_line(LogLevel level, const std::string& line) noexcept;
// Writes the counts of repetitions that are due; to be called every few seconds.
void log_repetitions() noexcept;
// Writes all of them: at the end.
void end_log() noexcept;

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_about(const std::string& key, LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log_line_about(key, level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fpfs
