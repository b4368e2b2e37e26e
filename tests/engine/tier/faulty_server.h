// A small HTTP server that answers as a test says, also wrongly: slowly, in part, with other bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/base/file_descriptor.h"

namespace fpfs::test {

struct ServerRequest {
  std::string method, path, query;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string content;
};

struct ServerReply {
  int status = 200;
  std::vector<std::string> headers = {};
  std::string content = "";
  std::chrono::milliseconds delay{0};
  size_t cut_after = SIZE_MAX;  // bytes of the answer, head included; then the connection is closed
  size_t length = SIZE_MAX;     // what Content-Length says; SIZE_MAX: the truth
};

class FaultyServer {
 public:
  using Handler = std::function<ServerReply(const ServerRequest& request, int count)>;

  // `handler` is called by several threads; `count` is 1 for the first request.
  explicit FaultyServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<struct sockaddr*>(&address);
    if (::bind(listener_.number(), generic, length) != 0 || ::listen(listener_.number(), 64) != 0 ||
        ::getsockname(listener_.number(), generic, &length) != 0)
      ADD_FAILURE() << "cannot listen";
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FaultyServer() {
    stopping_ = true;
    ::shutdown(listener_.number(), SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const FileDescriptor& connection : connections_) ::shutdown(connection.number(), SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int count() const { return count_; }
  std::vector<ServerRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept_all() {
    while (true) {
      FileDescriptor connection(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.is_open()) return;
      const int number = connection.number();
      const std::lock_guard lock(mutex_);
      connections_.push_back(std::move(connection));
      threads_.emplace_back([this, number] { serve(number); });
    }
  }

  void serve(int connection) {
    std::string buffer;
    while (true) {
      ServerRequest request;
      if (!receive(connection, buffer, request)) return;
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const ServerReply reply = handler_(request, ++count_);
      for (auto left = reply.delay; left.count() > 0 && !stopping_; left -= std::chrono::milliseconds(10))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!send_reply(connection, reply, request.method == "HEAD")) break;
    }
    ::shutdown(connection, SHUT_RDWR);
  }

  static bool more(int connection, std::string& buffer) {
    char bytes[65536];
    const ssize_t length = ::recv(connection, bytes, sizeof(bytes), 0);
    if (length <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(length));
    return true;
  }

  static bool receive(int connection, std::string& buffer, ServerRequest& request) {
    size_t end;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos)
      if (!more(connection, buffer)) return false;
    std::string head = buffer.substr(0, end + 2);
    buffer.erase(0, end + 4);
    const size_t first_end = head.find("\r\n"), space = head.find(' '), space2 = head.find(' ', space + 1);
    request.method = head.substr(0, space);
    const std::string target = head.substr(space + 1, space2 - space - 1);
    request.path = target.substr(0, target.find('?'));
    if (target.find('?') != std::string::npos) request.query = target.substr(target.find('?') + 1);
    for (size_t begin = first_end + 2, line_end; begin < head.size(); begin = line_end + 2) {
      line_end = head.find("\r\n", begin);
      std::string name = head.substr(begin, head.find(':', begin) - begin);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      const size_t value = std::min(line_end, head.find_first_not_of(' ', begin + name.size() + 1));
      request.headers[name] = head.substr(value, line_end - value);
    }
    if (request.headers.count("expect") != 0) {
      const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      if (::send(connection, go_on.data(), go_on.size(), MSG_NOSIGNAL) < 0) return false;
    }
    const size_t length =
        request.headers.count("content-length") != 0 ? std::stoul(request.headers["content-length"]) : 0;
    while (buffer.size() < length)
      if (!more(connection, buffer)) return false;
    request.content = buffer.substr(0, length);
    buffer.erase(0, length);
    return true;
  }

  // False: the connection is to be closed.
  static bool send_reply(int connection, const ServerReply& reply, bool head_only) {
    std::string text = fmt::format("HTTP/1.1 {} Said\r\n", reply.status);
    for (const std::string& header : reply.headers) text += header + "\r\n";
    const size_t length = reply.length == SIZE_MAX ? reply.content.size() : reply.length;
    if (reply.status != 204) text += fmt::format("Content-Length: {}\r\n", length);
    text += "\r\n";
    if (!head_only) text += reply.content;
    const bool whole = text.size() <= reply.cut_after;
    text.resize(std::min(text.size(), reply.cut_after));
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return whole;
  }

  const Handler handler_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> count_ = 0;
  std::mutex mutex_;
  std::vector<ServerRequest> requests_;
  std::vector<FileDescriptor> connections_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace fpfs::test
