#include "engine/base/log.h"

#include <cstdio>
#include <memory>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "engine/base/one_line.h"

namespace fpfs {
namespace {

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

std::shared_ptr<spdlog::logger> make_logger(LogLevel level, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("fastpersistfs", std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->set_level(to_spdlog(level));
  // Lines are rare and the last one before a crash matters most.
  logger->flush_on(spdlog::level::debug);
  return logger;
}

// Never destroyed: threads and destructors of statics may log until the process ends.
std::shared_ptr<spdlog::logger>& current_logger() {
  static auto* logger = new std::shared_ptr<spdlog::logger>(
      make_logger(LogLevel::kInfo, std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  return *logger;
}

}  // namespace

Status configure_log(LogLevel level, const std::string& file) {
  try {
    // Opened for append, so that logrotate's copytruncate works on it.
    spdlog::sink_ptr sink;
    if (file.empty())
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    else
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    current_logger() = make_logger(level, std::move(sink));
    return Status::ok();
  } catch (const std::exception& failure) {
    return Status::error(StatusCode::kInvalidArgument, fmt::format("cannot log to {}: {}", file, failure.what()));
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

void log_line(LogLevel level, const std::string& line) noexcept {
  try {
    current_logger()->log(to_spdlog(level), one_line(line));
  } catch (...) {
    // Out of memory or a broken sink: the message is still worth an attempt without either.
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace fpfs
