// Strong types for the quantities that are easy to confuse, and sizes as people write them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/indexed_vector.h"
#include "engine/base/status.h"
#include "engine/base/strong_number.h"

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
// The same of an offset.
template <typename Kind>
constexpr StrongNumber<Kind> round_up(StrongNumber<Kind> offset, uint64_t alignment) requires Kind::kIsIndex {
  return StrongNumber<Kind>(round_up(offset.value(), alignment));
}
template <typename Kind>
constexpr StrongNumber<Kind> round_down(StrongNumber<Kind> offset, uint64_t alignment) requires Kind::kIsIndex {
  return StrongNumber<Kind>(round_down(offset.value(), alignment));
}

// Offsets in what lies on drives are of three kinds: in a file's content, in an object and in a sidecar. Sizes are
// plain numbers, and so are offsets in a chunk and in memory.

// Bytes from the beginning of a file's content, whose end is FileOffset(size).
struct FileOffsetKind : IndexKind<uint64_t> {};
using FileOffset = StrongNumber<FileOffsetKind>;
// Whether the largest file has all of the bytes [offset, offset + length).
constexpr bool fits_a_file(FileOffset offset, uint64_t length) {
  return length <= kFileSizeMax && offset <= FileOffset(kFileSizeMax - length);
}
// Chunk c of a file: bytes [c * chunk_size, (c + 1) * chunk_size).
struct ChunkKind : IndexKind<uint64_t> {};
using ChunkIndex = StrongNumber<ChunkKind>;
constexpr FileOffset offset_of(ChunkIndex chunk, uint64_t chunk_size) {
  return FileOffset(chunk.value() * chunk_size);
}
constexpr ChunkIndex chunk_of(FileOffset offset, uint64_t chunk_size) {
  return ChunkIndex(offset.value() / chunk_size);
}
constexpr uint32_t offset_in_chunk(FileOffset offset, uint32_t chunk_size) {
  return static_cast<uint32_t>(offset.value() % chunk_size);
}
// Behind every chunk.
constexpr ChunkIndex kChunksEnd(UINT64_MAX);
// Position of a member in its array: 0 .. member_count - 1.
struct MemberKind : IndexKind<uint16_t> {};
using MemberIndex = StrongNumber<MemberKind>;
using MemberRange = IndexRange<MemberKind>;
template <typename T>
using PerMember = IndexedVector<MemberIndex, T>;
// Bytes from the beginning of an object, a file on one member.
struct ObjectOffsetKind : IndexKind<uint64_t> {};
using ObjectOffset = StrongNumber<ObjectOffsetKind>;
// A slot of an object: bytes [slot * chunk_size, (slot + 1) * chunk_size) of the object file.
struct SlotKind : IndexKind<uint64_t> {};
using SlotIndex = StrongNumber<SlotKind>;
constexpr ObjectOffset offset_of(SlotIndex slot, uint64_t chunk_size) {
  return ObjectOffset(slot.value() * chunk_size);
}
// Bytes from the beginning of a sidecar, the file with the index of one logical file (engine/index).
struct SidecarOffsetKind : IndexKind<uint64_t> {};
using SidecarOffset = StrongNumber<SidecarOffsetKind>;
// Names one logical file for ever; random. FileId(), which is 0, names none.
struct FileKind : IdKind<uint64_t> {};
using FileId = StrongNumber<FileKind>;
// Counts the times that a file's content was replaced as a whole (O_TRUNC): each generation has its own objects.
struct GenerationKind : IndexKind<uint32_t> {};
using Generation = StrongNumber<GenerationKind>;

// Parses "4096", "64K", "1M", "2G", "1T" (powers of 1024, case ignored, an optional "iB" or "B" after the letter).
// kInvalidArgument for anything else, for negatives and on overflow.
Result<uint64_t> parse_size(std::string_view text);
// "1.5 GiB", "300 MiB", "12 B".
std::string format_size(uint64_t bytes);

}  // namespace fpfs
