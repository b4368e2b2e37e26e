#include "tools/fpfs/end_wait.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "fs/interface/end_report.h"
#include "tools/common/command_line.h"

namespace fpfs::tools {

namespace {

constexpr int kSilentMs = 1000;
// After a failure: the process may be caught in the kernel by the drive that failed.
constexpr int kFailedEndMaxMs = 5000;

bool poll_one(int descriptor, int timeout_ms) {
  pollfd event{descriptor, POLLIN, 0};
  for (;;) {
    const int ready = ::poll(&event, 1, timeout_ms);
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) return true;
  }
}

}  // namespace

Result<EndWait> EndWait::begin(const MountEntry& mount) {
  const EndReportAddress address(mount);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.number() < 0) return Status::from_errno(errno, "make a socket");
  if (::connect(socket.number(), address.get(), address.length()) != 0)
    return Status::error(StatusCode::kNotFound, "no daemon listens at " + address.name());
  ucred daemon{};
  socklen_t size = sizeof daemon;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &daemon, &size) != 0)
    return Status::from_errno(errno, "ask who listens at " + address.name());
  // Anybody may take the name of a mount that is yet to come.
  if (daemon.uid != 0 && daemon.uid != mount.owner)
    return Status::error(StatusCode::kNotFound, fmt::format("user {} listens at {}", daemon.uid, address.name()));
  FileDescriptor process(daemon.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, daemon.pid, 0)) : -1);
  return EndWait(std::move(socket), std::move(process), daemon.pid);
}

std::string EndWait::read_report(const std::string& program) const {
  std::string report;
  bool was_silent = ::isatty(STDERR_FILENO) != 0;
  for (;;) {
    if (!poll_one(socket_.number(), was_silent ? kSilentMs : -1)) {
      note(program, fmt::format("waiting for the daemon (process {}), which commits what was written", process_id_));
      was_silent = false;
      continue;
    }
    char buffer[4096];
    const ssize_t count = ::recv(socket_.number(), buffer, sizeof buffer, 0);
    if (count > 0) report.append(buffer, static_cast<size_t>(count));
    // The whole report comes at once; the connection itself may stay for as long as a drive holds the process.
    if (count > 0 || count == 0 || (errno != EINTR && errno != EAGAIN)) return report;
  }
}

Result<std::string> EndWait::finish(const std::string& program) {
  const std::string report = read_report(program);
  const size_t line_end = report.find('\n');
  const bool is_success = report.substr(0, line_end) == "0";
  // Its drives are free when the process is gone, not before.
  if (process_.number() >= 0) poll_one(process_.number(), is_success ? -1 : kFailedEndMaxMs);
  if (is_success) return report.substr(std::min(line_end, report.size() - 1) + 1);
  if (line_end == std::string::npos)
    return Status::error(
        StatusCode::kIoError,
        fmt::format("the daemon (process {}) was killed, and what it had not committed yet is lost; the next "
                    "mount cleans up",
                    process_id_));
  return Status::error(StatusCode::kIoError, fmt::format("the daemon ended with exit status {}: {}",
                                                         report.substr(0, line_end), report.substr(line_end + 1)));
}

}  // namespace fpfs::tools
