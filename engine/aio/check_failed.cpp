// In the engine a broken invariant goes to the log. A library has none, and leaves the engine's (spdlog) out.
#include <cstdio>
#include <cstdlib>

#include "engine/base/check.h"

namespace fpfs {

void check_failed(const char* file, int line, const char* condition, const char* message) noexcept {
  std::fprintf(stderr, "fastpersist-aio: %s:%d: %s does not hold: %s\n", file, line, condition, message);
  std::abort();
}

}  // namespace fpfs
