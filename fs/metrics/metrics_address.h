// MetricsAddress: where metrics are served (option metrics=), as it is written and as the kernel takes it.
#pragma once

#include <sys/socket.h>

#include <string>

#include "engine/base/status.h"

namespace fpfs {

struct MetricsAddress {
  sockaddr_storage socket{};
  socklen_t length = 0;
  std::string text;  // "127.0.0.1:9101", "[::1]:9101"
  bool is_set() const { return length > 0; }
};

// PORT (at 127.0.0.1), ADDRESS:PORT or [IPV6]:PORT, in figures: a name may mean another address than was thought.
// kInvalidArgument: what is allowed.
Result<MetricsAddress> parse_metrics_address(const std::string& text);

}  // namespace fpfs
