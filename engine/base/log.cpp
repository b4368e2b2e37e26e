#include "engine/base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>

#include "engine/base/clock.h"
#include "engine/base/file_descriptor.h"
#include "engine/base/mutex.h"
#include "engine/base/one_line.h"
#include "engine/base/tool_log.h"

namespace fpfs {
namespace {

constexpr const char* kProgramName = "fastpersistfs";
constexpr const char* kLinePattern = "%Y-%m-%dT%H:%M:%S.%e%z %l %v";
constexpr mode_t kLogFileMode = 0640;  // it names users' files

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

int priority_of(spdlog::level::level_enum level) {
  return level >= spdlog::level::err ? LOG_ERR : level == spdlog::level::warn ? LOG_WARNING : LOG_INFO;
}

// Each line is one write to the end of the file, so that several writers, and logrotate's copytruncate, do no harm.
// spdlog's own makes directories, and files that everybody may read.
class LogFile : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  Status open() {
    FileDescriptor opened(
        ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kLogFileMode));
    if (!opened.is_open()) return Status::from_errno(errno, "open " + path_);
    const std::lock_guard<std::mutex> lock(mutex_);
    file_ = std::move(opened);
    return Status::ok();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t count = ::write(file_.number(), line.data() + done, line.size() - done);
      if (count > 0) done += static_cast<size_t>(count);
      if (count >= 0 || errno == EINTR) continue;
      // The drive of the log is full, or fails: who looks for the line finds it with the system's.
      const std::string text(line.data() + done, line.size() - done - 1);
      const std::string why = std::generic_category().message(errno);
      constexpr const char* kFormat = "%s cannot be written (%s), so this line is here: %s";
      ::syslog(LOG_DAEMON | priority_of(message.level), kFormat, path_.c_str(), why.c_str(), text.c_str());
      // With -f.
      if (!stderr_is_journal()) std::fprintf(stderr, kFormat, path_.c_str(), why.c_str(), (text + "\n").c_str());
      return;
    }
  }
  void flush_() override {}

 private:
  const std::string path_;
  FileDescriptor file_;
};

struct Log {
  std::shared_ptr<LogFile> file;
  bool counts_repetitions = true;
  std::shared_ptr<spdlog::logger> logger;
  Mutex mutex;
  LogRepeats repeats FPFS_GUARDED_BY(mutex);
};

std::shared_ptr<spdlog::logger> make_logger(LogLevel level, std::vector<spdlog::sink_ptr> sinks) {
  auto logger = std::make_shared<spdlog::logger>(kProgramName, sinks.begin(), sinks.end());
  logger->set_level(to_spdlog(level));
  // Lines are rare and the last one before a crash matters most.
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::shared_ptr<spdlog::logger> make_stderr_logger(LogLevel level) {
  auto logger = make_logger(level, {std::make_shared<spdlog::sinks::stderr_sink_mt>()});
  logger->set_pattern(kLinePattern);
  return logger;
}

// Never destroyed: threads and destructors of statics may log until the process ends.
Log& current() {
  static auto* log = new Log{nullptr, true, make_stderr_logger(LogLevel::kInfo), {}, {}};
  return *log;
}

std::string pattern_behind(const std::string& prefix) {
  std::string pattern;
  for (const char c : one_line(prefix)) pattern += c == '%' ? "%%" : std::string(1, c);
  return pattern + (pattern.empty() ? "" : ": ") + "%v";
}

// Time, program and level are the system log's own.
spdlog::sink_ptr make_system_log(const std::string& prefix) {
  auto sink = std::make_shared<spdlog::sinks::syslog_sink_mt>(kProgramName, LOG_PID, LOG_DAEMON, true);
  sink->set_pattern(pattern_behind(prefix));
  return sink;
}

class JournalPriority : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/, spdlog::memory_buf_t& line) override {
    fmt::format_to(std::back_inserter(line), "<{}>", priority_of(message.level));
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JournalPriority>(); }
};

std::unique_ptr<spdlog::formatter> make_journal_format(const std::string& prefix) {
  auto format = std::make_unique<spdlog::pattern_formatter>();
  format->add_flag<JournalPriority>('*').set_pattern("%*" + pattern_behind(prefix));
  return format;
}

void write(LogLevel level, const std::string& line) noexcept {
  try {
    current().logger->log(to_spdlog(level), line);
  } catch (...) {
    // Out of memory or a broken sink: the message is still worth an attempt without either.
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

// What `taken` gives: counts of repetitions.
void write_counts(std::vector<LogRepeats::Line> (LogRepeats::*taken)(uint64_t now_ns)) noexcept {
  try {
    Log& log = current();
    std::vector<LogRepeats::Line> lines;
    {
      const MutexLock lock(log.mutex);
      lines = (log.repeats.*taken)(monotonic_ns());
    }
    for (const LogRepeats::Line& one : lines) write(one.level, one.text);
  } catch (...) {
    return;  // out of memory: they are counted on
  }
}

}  // namespace

Status configure_log(const LogOptions& options) {
  Log& log = current();
  try {
    log.file = nullptr;
    log.counts_repetitions = options.level != LogLevel::kDebug;
    if (!options.file.empty()) {
      auto file = std::make_shared<LogFile>(options.file);
      if (const Status opened = file->open(); !opened.is_ok())
        return Status::error(StatusCode::kInvalidArgument,
                             "cannot log: " + opened.message() + "; name a file in a directory that exists");
      log.file = file;
      log.logger = make_logger(options.level, {file});
      log.logger->set_pattern(kLinePattern);
      return Status::ok();
    }
    if (!options.system_log) {
      log.logger = make_stderr_logger(options.level);
      if (options.to_journal) log.logger->set_formatter(make_journal_format(options.prefix));
      return Status::ok();
    }
    std::vector<spdlog::sink_ptr> sinks = {make_system_log(options.prefix)};
    if (!options.to_journal) {
      sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
      sinks.back()->set_pattern(kLinePattern);
    }
    log.logger = make_logger(options.level, std::move(sinks));
    return Status::ok();
  } catch (const std::exception& failure) {
    return Status::error(StatusCode::kInvalidArgument, fmt::format("cannot log: {}", failure.what()));
  }
}

bool stderr_is_journal() {
  const char* const journal = std::getenv("JOURNAL_STREAM");  // "DEVICE:INODE"
  struct stat attributes {};
  return journal != nullptr && ::fstat(STDERR_FILENO, &attributes) == 0 &&
         journal == std::to_string(attributes.st_dev) + ":" + std::to_string(attributes.st_ino);
}

std::string journal_priority(LogLevel level) {
  return fmt::format("<{}>", priority_of(to_spdlog(level)));
}

void log_for_tool(const std::string& program) {
  current().logger->set_pattern(pattern_behind(program));
}

void reopen_log() {
  const std::shared_ptr<LogFile> file = current().file;
  if (file == nullptr) return;
  if (const Status status = file->open(); !status.is_ok()) {
    const std::string line = status.message() + "; the log goes on where it went before";
    log_line(LogLevel::kError, line);
    // Where it went before may be a file that was removed.
    ::syslog(LOG_DAEMON | LOG_ERR, "%s", one_line(line).c_str());
  }
}

Result<LogLevel> parse_log_level(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return Status::error(StatusCode::kInvalidArgument,
                       fmt::format("'{}' is no log level; use debug, info, warning or error", name));
}

void log_line_about(const std::string& key, LogLevel level, const std::string& line) noexcept {
  try {
    Log& log = current();
    if (level < LogLevel::kWarning || !log.counts_repetitions) return write(level, one_line(line));
    const uint64_t now = monotonic_ns();
    const LogRepeats::Line whole{level, one_line(line)};
    std::vector<LogRepeats::Line> lines;
    {
      const MutexLock lock(log.mutex);
      lines = log.repeats.due(now);
      if (log.repeats.admits(key, whole, now)) lines.push_back(whole);
    }
    for (const LogRepeats::Line& one : lines) write(one.level, one.text);
  } catch (...) {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void log_line(LogLevel level, const std::string& line) noexcept {
  log_line_about(line, level, line);
}

void log_repetitions() noexcept {
  write_counts(&LogRepeats::due);
}

void end_log() noexcept {
  write_counts(&LogRepeats::rest);
}

}  // namespace fpfs
