// Going to the background: the command returns when the mount is live, or with the reason why it is not.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/base/file_descriptor.h"
#include "engine/base/status.h"

namespace fpfs {

// One line on stderr, prefixed by the program's name. In a service's journal it is an error.
void print_error(const std::string& message);

// The link from the daemon to the command that started it. In the foreground, reports go to stderr.
class Launcher {
 public:
  // Forks, before any thread exists. Returns in the daemon only; the parent waits for its report and exits (0 live, 1
  // not, after printing the reason). With `foreground` nothing is forked.
  static Launcher launch(bool foreground);

  // The mount works: the parent exits 0. In the background stdin, stdout and stderr become /dev/null with either
  // report, so that nothing holds the caller's terminal or pipes. In the foreground the service manager is told, where
  // one waits (NOTIFY_SOCKET, as Type=notify has it).
  void report_live();
  // The log was configured, and goes elsewhere than to stderr: why nothing was mounted is for that, too.
  void set_log(bool is_file) { log_ = is_file ? Log::kFile : Log::kSystem; }
  // The daemon will end with exit status 1; prints the one line that says why, and logs it when nothing was live.
  void report_failure(const std::string& message);

 private:
  explicit Launcher(FileDescriptor pipe) : pipe_(std::move(pipe)) {}
  void report(const std::string& text);
  enum class Log : uint8_t { kNone, kFile, kSystem };
  Log log_ = Log::kNone;
  FileDescriptor pipe_;  // to the parent; none in the foreground, and after the report
};

}  // namespace fpfs
