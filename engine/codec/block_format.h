// The stored form of docs/format.md, "Blocks": the header, the entries of the table, and the head of a block of planes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"

namespace fpfs::blocks {

inline constexpr uint32_t kMagic = 0x4b4c4246;  // the bytes "FBLK"
inline constexpr size_t kHeaderLength = 32;
inline constexpr size_t kEntryLength = 16;
inline constexpr size_t kPlaneEntryLength = 4;
inline constexpr size_t kElementLength = 8;  // what a constant block repeats

enum class Method : uint8_t { kRaw = 1, kConstant = 2, kZstd = 3, kPlanes = 4 };
enum class PlaneMethod : uint8_t { kRaw = 1, kConstant = 2, kZstd = 3 };

// One block; the numbers are 0 for all methods but kPlanes.
struct Entry {
  uint32_t stored_length = 0;
  Method method = Method::kRaw;
  uint8_t width = 0;
  uint8_t phase = 0;
  uint8_t rotation = 0;
  uint64_t checksum = 0;  // of the content
};

inline void put_entry(std::byte* to, const Entry& entry) {
  put_u32(to, entry.stored_length);
  to[4] = static_cast<std::byte>(entry.method);
  to[5] = static_cast<std::byte>(entry.width);
  to[6] = static_cast<std::byte>(entry.phase);
  to[7] = static_cast<std::byte>(entry.rotation);
  put_u64(to + 8, entry.checksum);
}

inline Entry get_entry(const std::byte* from) {
  return {get_u32(from),
          static_cast<Method>(from[4]),
          static_cast<uint8_t>(from[5]),
          static_cast<uint8_t>(from[6]),
          static_cast<uint8_t>(from[7]),
          get_u64(from + 8)};
}

// One plane: 24 bits of stored length, 8 of method.
struct PlaneEntry {
  uint32_t stored_length = 0;
  PlaneMethod method = PlaneMethod::kRaw;
};

inline void put_plane_entry(std::byte* to, PlaneEntry entry) {
  put_u32(to, entry.stored_length | static_cast<uint32_t>(entry.method) << 24);
}
inline PlaneEntry get_plane_entry(const std::byte* from) {
  const uint32_t both = get_u32(from);
  return {both & 0xffffff, static_cast<PlaneMethod>(both >> 24)};
}

inline size_t block_count(size_t raw_length, size_t block_size) {
  return (raw_length + block_size - 1) / block_size;
}
inline size_t index_length(size_t raw_length, size_t block_size) {
  return kHeaderLength + block_count(raw_length, block_size) * kEntryLength;
}

// Of the header: the checksum of all stored bytes behind the index, and that of the index.
inline constexpr size_t kRestChecksumAt = 16, kIndexChecksumAt = 24;
// Of an entry: the checksum of its block.
inline constexpr size_t kEntryChecksumAt = 8;

// `index`: header and table. The header's field for this is left out.
inline uint64_t index_checksum(std::span<const std::byte> index, uint64_t seed) {
  return hash_bytes(index.subspan(kHeaderLength), hash_bytes(index.first(kIndexChecksumAt), seed));
}

// Both checksums, when all else is there. `stored`: index and blocks.
inline void put_checksums(std::span<std::byte> stored, size_t index_length, uint64_t seed) {
  put_u64(&stored[kRestChecksumAt], hash_bytes(stored.subspan(index_length), seed));
  put_u64(&stored[kIndexChecksumAt], index_checksum(stored.first(index_length), seed));
}

// The header but for its checksums.
inline void put_header(std::span<std::byte> stored, size_t raw_length, size_t block_size) {
  put_u32(&stored[0], kMagic);
  put_u32(&stored[4], static_cast<uint32_t>(raw_length));
  put_u64(&stored[8], static_cast<uint64_t>(std::countr_zero(block_size)));  // one byte, and seven reserved
}

}  // namespace fpfs::blocks
