// How a report becomes the text of an attribute.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace fpfs {

// In one line. Paths may hold any bytes; what is no UTF-8 is replaced.
inline std::string to_text(const nlohmann::json& report) {
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fpfs
