// What the libraries say when something went wrong.
#pragma once

#include <string>

#define FASTPERSIST_EXPORT __attribute__((visibility("default")))

namespace fastpersist {

struct [[nodiscard]] Error {
  int number = 0;       // errno; 0: no error
  std::string message;  // one line, with the path
  bool is_ok() const { return number == 0; }
};

}  // namespace fastpersist
