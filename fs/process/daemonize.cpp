#include "fs/process/daemonize.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/base/log.h"

namespace fpfs {
namespace {

constexpr char kLive = 'L';  // the whole message when the mount is live; otherwise the message is the reason

[[noreturn]] void wait_for_report(int pipe, pid_t child) {
  std::string message;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(pipe, buffer, sizeof buffer);
    if (count > 0) message.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  if (message == std::string(1, kLive)) ::_exit(0);
  if (message.empty()) {
    int result = 0;
    ::waitpid(child, &result, 0);
    message = WIFSIGNALED(result)
                  ? "the daemon was killed by signal " + std::to_string(WTERMSIG(result)) + " while starting"
                  : "the daemon ended while starting, with exit status " + std::to_string(WEXITSTATUS(result)) +
                        "; start it with -f to see more";
  }
  print_error(message);
  ::_exit(1);
}

void write_all(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count > 0) done += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR) return;  // the parent is gone: nobody to tell
  }
}

// sd_notify(3), as its page has it for programs without the library. A manager that does not listen is no failure.
void tell_service_manager(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  const size_t length = path == nullptr ? 0 : std::strlen(path);
  if (length < 2 || length >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return;
  (void)::sendto(socket.number(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

}  // namespace

void print_error(const std::string& message) {
  const std::string priority = stderr_is_journal() ? journal_priority(LogLevel::kError) : "";
  std::fprintf(stderr, "%sfastpersistfs: %s\n", priority.c_str(), message.c_str());
  std::fflush(stderr);
}

Launcher Launcher::launch(bool foreground) {
  if (foreground) return Launcher(FileDescriptor());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    print_error("cannot make a pipe: " + std::string(std::strerror(errno)));
    ::_exit(1);
  }
  FileDescriptor from_daemon(ends[0]);
  FileDescriptor to_parent(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    print_error("cannot fork: " + std::string(std::strerror(errno)));
    ::_exit(1);
  }
  if (child > 0) {
    to_parent.reset();  // what is read ends with the daemon
    wait_for_report(from_daemon.number(), child);
  }
  ::setsid();
  return Launcher(std::move(to_parent));
}

void Launcher::report_live() {
  log_ = Log::kNone;  // from here on the end is logged where it comes about
  if (pipe_.is_open())
    report(std::string(1, kLive));
  else
    tell_service_manager("READY=1");
}

void Launcher::report_failure(const std::string& message) {
  // Before the caller goes on, who may look there. The system's log goes to stderr, too, until that is let go of.
  if (log_ == Log::kFile) log(LogLevel::kError, "not mounted: {}", message);
  if (pipe_.is_open())
    report(message);
  else
    print_error(message);
  if (log_ == Log::kSystem) log(LogLevel::kError, "not mounted: {}", message);
  log_ = Log::kNone;
}

// Lets go of the caller's terminal and pipes first: a daemon that ends may be kept by a drive that hangs.
void Launcher::report(const std::string& text) {
  FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int descriptor = 0; descriptor <= 2 && null.is_open(); ++descriptor) ::dup2(null.number(), descriptor);
  if (null.number() <= 2) null.release();  // it is one of the three
  write_all(pipe_.number(), text);
  pipe_.reset();
}

}  // namespace fpfs
