// FPFS_CHECK: a broken invariant aborts with a message, in every build type. Never used for what comes from drives,
// users or the network; those are error values.
#pragma once

namespace fpfs {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* message) noexcept;

}  // namespace fpfs

#define FPFS_CHECK(condition, message)                               \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::fpfs::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
