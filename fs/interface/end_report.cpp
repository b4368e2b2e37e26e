#include "fs/interface/end_report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kWaitingMax = 64;
// What a socket takes at once, so that say() need not wait.
constexpr size_t kMessageMax = 4000;

}  // namespace

EndReportAddress::EndReportAddress(const MountEntry& mount)
    : name_(fmt::format("@fastpersistfs-end-{}-{:016x}", mount.device(),
                        hash_bytes(std::as_bytes(std::span(mount.source))))) {
  FPFS_CHECK(name_.size() <= sizeof bytes_.sun_path, "two numbers are no longer than this");
  bytes_.sun_family = AF_UNIX;
  std::copy(name_.begin() + 1, name_.end(), bytes_.sun_path + 1);  // behind the NUL of the abstract namespace
  length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
}

Status EndReport::listen(const MountEntry& mount) {
  const EndReportAddress address(mount);
  FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.is_open()) return Status::from_errno(errno, "make a socket");
  if (::bind(listener.number(), address.get(), address.length()) != 0 || ::listen(listener.number(), kBacklog) != 0)
    return Status::from_errno(errno, "listen at " + address.name());
  const MutexLock lock(mutex_);
  listener_ = std::move(listener);
  return Status::ok();
}

void EndReport::stop_listening() {
  const MutexLock lock(mutex_);
  accept_all();
  listener_.reset();
}

int EndReport::descriptor() const {
  const MutexLock lock(mutex_);
  return listener_.number();
}

void EndReport::accept() {
  const MutexLock lock(mutex_);
  accept_all();
}

void EndReport::accept_all() {
  while (listener_.is_open()) {
    FileDescriptor connection(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.is_open()) return;
    ucred peer{};
    socklen_t length = sizeof peer;
    const bool is_known = ::getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    const bool may_wait = is_known && (peer.uid == 0 || peer.uid == ::geteuid());
    if (may_wait && waiting_.size() < kWaitingMax) waiting_.push_back(std::move(connection));
  }
}

void EndReport::say(int exit_status, const std::string& message) {
  stop_listening();  // the kernel may keep the process, and its descriptors, longer
  const MutexLock lock(mutex_);
  const std::string text = std::to_string(exit_status) + "\n" + message.substr(0, kMessageMax);
  for (const FileDescriptor& connection : waiting_)
    (void)::send(connection.number(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace fpfs
