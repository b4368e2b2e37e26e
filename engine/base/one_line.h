// Text that may hold a stranger's file names, made fit for one line of a log or of a terminal.
#pragma once

#include <string>

namespace fpfs {

// The same text with every control character (newlines, escape sequences) replaced by '?', so that a file name can
// neither forge a log line nor steer a terminal. Bytes above 0x7f pass: UTF-8 names stay readable.
inline std::string one_line(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return text;
}

}  // namespace fpfs
