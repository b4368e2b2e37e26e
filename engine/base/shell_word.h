// Paths in advice that a person types as it stands.
#pragma once

#include <string>

#include "engine/base/one_line.h"

namespace fpfs {

// The text as one word of sh(1): itself when nothing in it is special there, else in quotes. Control characters are
// replaced, as in any line: a name with a newline cannot be typed.
inline std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : one_line(text)) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace fpfs
