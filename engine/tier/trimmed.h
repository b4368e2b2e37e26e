// Text without the white space around it, as headers and files of credentials have it.
#pragma once

#include <string>

namespace fpfs {

inline std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace fpfs
