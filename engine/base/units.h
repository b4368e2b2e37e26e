// Strong types for the quantities that are easy to confuse, and sizes as people write them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace fpfs {

// Members of one array.
constexpr uint16_t kMemberCountMax = 256;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kGiB = 1024 * kMiB;

// Alignment of every O_DIRECT transfer's memory, offset and length. 4096 satisfies every drive's logical block size.
constexpr uint32_t kIoAlignment = 4096;

// The largest file, as on XFS: offsets are signed 64 bits in every interface that reaches us.
constexpr uint64_t kFileSizeMax = INT64_MAX;

constexpr uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr uint64_t round_down(uint64_t value, uint64_t alignment) {
  return value / alignment * alignment;
}

// Chunk c of a file: bytes [c * chunk_size, (c + 1) * chunk_size).
using ChunkIndex = uint64_t;
// Position of a member in its array: 0 .. member_count - 1.
using MemberIndex = uint16_t;
// A slot of an object: bytes [slot * chunk_size, (slot + 1) * chunk_size) of the object file.
using SlotIndex = uint64_t;
// Names one logical file for ever; random, never 0.
using FileId = uint64_t;
// Counts the times that a file's content was replaced as a whole (O_TRUNC): each generation has its own objects.
using Generation = uint32_t;

// Parses "4096", "64K", "1M", "2G", "1T" (powers of 1024, case ignored, an optional "iB" or "B" after the letter).
// kInvalidArgument for anything else, for negatives and on overflow.
Result<uint64_t> parse_size(std::string_view text);
// "1.5 GiB", "300 MiB", "12 B".
std::string format_size(uint64_t bytes);

}  // namespace fpfs
