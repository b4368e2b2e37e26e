#include "fs/metrics/metrics_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace fpfs {
namespace {

Status not_an_address() {
  return Status::error(
      StatusCode::kInvalidArgument,
      "PORT (for this machine only) from 1 to 65535, ADDRESS:PORT or [IPV6]:PORT, in figures, like 9101 or "
      "10.0.0.7:9101");
}

}  // namespace

Result<MetricsAddress> parse_metrics_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string port_text = colon == std::string::npos ? text : text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port == 0) return not_an_address();

  MetricsAddress address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six.sin6_addr) != 1) return not_an_address();
    std::memcpy(&address.socket, &six, sizeof six);
    address.length = sizeof six;
  } else {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) return not_an_address();
    std::memcpy(&address.socket, &four, sizeof four);
    address.length = sizeof four;
  }
  address.text = host + ":" + std::to_string(port);
  return address;
}

}  // namespace fpfs
