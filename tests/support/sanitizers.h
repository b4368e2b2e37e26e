// Whether this is a build with a sanitizer, where everything takes several times as long.
#pragma once

#include <cstdint>

namespace fpfs::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
constexpr bool kIsSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kIsSanitized = false;
#endif

// As many of alike cases; an eighth of them with a sanitizer, which sees the same code in each.
constexpr uint64_t alike(uint64_t count) {
  return kIsSanitized ? (count + 7) / 8 : count;
}

}  // namespace fpfs::test
