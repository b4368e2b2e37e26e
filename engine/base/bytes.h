// Explicit little-endian encoding: the only way integers reach or leave the on-disk format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fpfs {

inline void put_u16(std::byte* p, uint16_t v) {
  for (int i = 0; i < 2; ++i) p[i] = static_cast<std::byte>(v >> (8 * i));
}
inline void put_u32(std::byte* p, uint32_t v) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::byte>(v >> (8 * i));
}
inline void put_u64(std::byte* p, uint64_t v) {
  for (int i = 0; i < 8; ++i) p[i] = static_cast<std::byte>(v >> (8 * i));
}
inline uint16_t get_u16(const std::byte* p) {
  uint16_t v = 0;
  for (int i = 0; i < 2; ++i) v = static_cast<uint16_t>(v | (static_cast<uint16_t>(p[i]) << (8 * i)));
  return v;
}
inline uint32_t get_u32(const std::byte* p) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= static_cast<uint32_t>(p[i]) << (8 * i);
  return v;
}
inline uint64_t get_u64(const std::byte* p) {
  uint64_t v = 0;
  for (int i = 0; i < 8; ++i) v |= static_cast<uint64_t>(p[i]) << (8 * i);
  return v;
}
inline bool all_zero(std::span<const std::byte> bytes) {
  for (std::byte b : bytes)
    if (b != std::byte{0}) return false;
  return true;
}

}  // namespace fpfs
