#include "fs/metrics/metrics_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include "engine/base/clock.h"
#include "engine/io/named_thread.h"

namespace fpfs {
namespace {

constexpr size_t kClientsMax = 16;
constexpr size_t kRequestHeaderMax = 8192;
constexpr uint64_t kClientNs = 5'000'000'000;  // for its request, and for taking the answer
constexpr int kTickMs = 1000;

Status cannot_listen(int errno_value, const MetricsAddress& address) {
  const std::string what = "metrics cannot be served at " + address.text;
  switch (errno_value) {
    case EADDRINUSE:
      return Status::error(StatusCode::kBusy, what +
                                                  ": another program, or another mount, listens there; name another "
                                                  "port: metrics=ADDRESS:PORT");
    case EADDRNOTAVAIL:
      return Status::error(StatusCode::kInvalidArgument,
                           what + ": this machine does not have that address; see: ip address");
    case EACCES:
      return Status::error(StatusCode::kPermission, what + ": ports below 1024 are root's; name one above");
    default:
      return Status::from_errno(errno_value, what);
  }
}

Result<FileDescriptor> listen_at(const MetricsAddress& address) {
  FileDescriptor listener(::socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.is_open()) return cannot_listen(errno, address);
  const int yes = 1;  // what a daemon before this has left in TIME_WAIT does not count
  (void)::setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(listener.number(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0 ||
      ::listen(listener.number(), kClientsMax) != 0)
    return cannot_listen(errno, address);
  return listener;
}

void raise(const FileDescriptor& event) {
  const uint64_t one = 1;
  (void)!::write(event.number(), &one, sizeof one);
}

std::string response(std::string_view status, std::string_view type, std::string_view body, bool with_body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                     type, body.size(), with_body ? body : "");
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const MetricsAddress& address,
                                                            std::unique_ptr<prometheus::Collectable> metrics) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(metrics)));
  FPFS_ASSIGN_OR_RETURN(server->listener_, listen_at(address));
  server->stopping_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  server->stopped_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stopping_.is_open() || !server->stopped_.is_open()) return Status::from_errno(errno, "make an eventfd");
  server->thread_ = start_thread("fpfs-metrics", [raw = server.get()] { raw->serve(); });
  return server;
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  raise(stopping_);
  thread_.join();
}

bool MetricsServer::stop(int patience_ms) {
  if (!thread_.joinable()) return true;
  raise(stopping_);
  const uint64_t deadline = monotonic_ns() + static_cast<uint64_t>(patience_ms) * 1'000'000;
  pollfd ended{stopped_.number(), POLLIN, 0};
  for (;;) {
    const uint64_t now = monotonic_ns();
    if (now >= deadline) return false;
    if (::poll(&ended, 1, static_cast<int>((deadline - now) / 1'000'000) + 1) > 0) break;
  }
  thread_.join();
  return true;
}

void MetricsServer::serve() {
  std::vector<pollfd> waits;
  for (;;) {
    waits.assign({{stopping_.number(), POLLIN, 0}});
    // With many clients, more wait until one has left.
    waits.push_back({clients_.size() < kClientsMax ? listener_.number() : -1, POLLIN, 0});
    for (const Client& client : clients_)
      waits.push_back({client.socket.number(), static_cast<short>(client.answer.empty() ? POLLIN : POLLOUT), 0});
    (void)::poll(waits.data(), waits.size(), clients_.empty() ? -1 : kTickMs);
    if (waits[0].revents != 0) break;
    const uint64_t now = monotonic_ns();
    for (size_t i = clients_.size(); i-- > 0;)
      if ((waits[i + 2].revents != 0 && !advance(clients_[i])) || now >= clients_[i].deadline_ns)
        clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    if (waits[1].revents != 0) accept_clients();
  }
  clients_.clear();
  listener_.reset();
  raise(stopped_);
}

void MetricsServer::accept_clients() {
  while (clients_.size() < kClientsMax) {
    FileDescriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    Client client;
    client.socket = std::move(socket);
    client.deadline_ns = monotonic_ns() + kClientNs;
    clients_.push_back(std::move(client));
  }
}

bool MetricsServer::advance(Client& client) {
  return client.answer.empty() ? receive(client) : send(client);
}

bool MetricsServer::receive(Client& client) {
  char buffer[2048];
  const ssize_t count = ::recv(client.socket.number(), buffer, sizeof buffer, 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  client.request.append(buffer, static_cast<size_t>(count));
  const bool is_complete = client.request.find("\r\n\r\n") != std::string::npos;
  if (!is_complete && client.request.size() <= kRequestHeaderMax) return true;
  client.answer = is_complete ? answer_to(client.request)
                              : response("431 Request Header Fields Too Large", "text/plain", "", false);
  client.deadline_ns = monotonic_ns() + kClientNs;
  return send(client);
}

bool MetricsServer::send(Client& client) {
  while (client.sent < client.answer.size()) {
    const ssize_t count = ::send(client.socket.number(), client.answer.data() + client.sent,
                                 client.answer.size() - client.sent, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    client.sent += static_cast<size_t>(count);
  }
  return false;  // it has all
}

std::string MetricsServer::answer_to(const std::string& request) const {
  const std::string_view line = std::string_view(request).substr(0, request.find("\r\n"));
  const std::string_view method = line.substr(0, line.find(' '));
  std::string_view target = line.substr(std::min(method.size() + 1, line.size()));
  target = target.substr(0, target.find_first_of(" ?"));
  const bool with_body = method != "HEAD";
  if (method != "GET" && method != "HEAD") return response("405 Method Not Allowed", "text/plain", "", with_body);
  if (target != "/metrics") return response("404 Not Found", "text/plain", "metrics are at /metrics\n", with_body);
  return response("200 OK", "text/plain; version=0.0.4; charset=utf-8",
                  prometheus::TextSerializer().Serialize(metrics_->Collect()), with_body);
}

}  // namespace fpfs
