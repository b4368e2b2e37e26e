#include "engine/tier/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace fpfs {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reversed

using Table = std::array<std::array<uint32_t, 256>, 8>;

// "Slicing by 8": tables[k][b] is what byte b does to the checksum when k bytes follow it.
constexpr Table make_tables() {
  Table tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

constexpr Table kTables = make_tables();

uint32_t update_by_tables(uint32_t crc, std::span<const std::byte> bytes) {
  const auto at = [&](size_t i) { return std::to_integer<uint32_t>(bytes[i]); };
  while (bytes.size() >= 8) {
    crc ^= at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][crc >> 8 & 0xff] ^ kTables[5][crc >> 16 & 0xff] ^ kTables[4][crc >> 24] ^
          kTables[3][at(4)] ^ kTables[2][at(5)] ^ kTables[1][at(6)] ^ kTables[0][at(7)];
    bytes = bytes.subspan(8);
  }
  for (size_t i = 0; i < bytes.size(); ++i) crc = crc >> 8 ^ kTables[0][(crc ^ at(i)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t update_by_instruction(uint32_t crc, std::span<const std::byte> bytes) {
  uint64_t state = crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    state = _mm_crc32_u64(state, word);
  }
  crc = static_cast<uint32_t>(state);
  for (const std::byte byte : bytes) crc = _mm_crc32_u8(crc, std::to_integer<uint8_t>(byte));
  return crc;
}
#endif

}  // namespace

uint32_t crc32c_by_tables(std::span<const std::byte> bytes) {
  return ~update_by_tables(~uint32_t{0}, bytes);
}

uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") != 0) return ~update_by_instruction(~uint32_t{0}, bytes);
#endif
  return crc32c_by_tables(bytes);
}

}  // namespace fpfs
