#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "engine/base/check.h"
#include "engine/codec/block_codec.h"
#include "engine/codec/block_format.h"
#include "engine/codec/decompress.h"
#include "engine/codec/number_planes.h"

namespace fpfs {
namespace {

using blocks::Entry;
using blocks::Method;
using blocks::PlaneEntry;
using blocks::PlaneMethod;

Status damaged_blocks(const std::string& why) {
  return Status::error(StatusCode::kCorruption, "the chunk's blocks are damaged: " + why);
}

// Of a thread, while it decodes one block.
struct Scratch {
  std::array<std::byte, kBlockSizeMax> planes;
  std::array<std::byte, kBlockSizeMax> block;  // of which only a part is asked for
};

bool valid_numbers(const Entry& entry, size_t raw_length) {
  if (entry.method != Method::kPlanes) return entry.width == 0 && entry.phase == 0 && entry.rotation == 0;
  return (entry.width == 1 || entry.width == 2 || entry.width == 4 || entry.width == 8) && entry.phase < entry.width &&
         entry.rotation < (entry.width == 1 ? 1 : 8 * entry.width) && raw_length >= size_t{entry.phase} + entry.width;
}

bool valid_length(const Entry& entry, size_t raw_length) {
  switch (entry.method) {
    case Method::kRaw:
      return entry.stored_length == raw_length;
    case Method::kConstant:
      return entry.stored_length == blocks::kElementLength && raw_length >= entry.stored_length;
    case Method::kZstd:
    case Method::kPlanes:
      return entry.stored_length > 0 && entry.stored_length < raw_length;
  }
  return false;
}

// Copies what is decoded already, twice as much each time.
void repeat(std::span<const std::byte> element, std::span<std::byte> out) {
  std::memcpy(out.data(), element.data(), element.size());
  for (size_t done = element.size(); done < out.size(); done *= 2)
    std::memcpy(&out[done], out.data(), std::min(done, out.size() - done));
}

// Makes `stored` the plane's bytes: as they lie there, or in `memory`, which has their size.
Status decode_plane(PlaneMethod method, std::span<const std::byte>* stored, std::span<std::byte> memory) {
  switch (method) {
    case PlaneMethod::kRaw:
      if (stored->size() != memory.size()) return damaged_blocks("a raw plane has another length");
      return Status::ok();
    case PlaneMethod::kConstant:
      if (stored->size() != 1) return damaged_blocks("a constant plane has another length");
      std::memset(memory.data(), static_cast<int>((*stored)[0]), memory.size());
      break;
    case PlaneMethod::kZstd:
      if (stored->size() >= memory.size()) return damaged_blocks("a plane did not shrink");
      FPFS_RETURN_IF_ERROR(decompress(*stored, memory));
      break;
    default:
      return damaged_blocks("a plane has an unknown method");
  }
  *stored = memory;
  return Status::ok();
}

Status decode_planes(const Entry& entry, std::span<const std::byte> stored, std::span<std::byte> memory,
                     std::span<std::byte> out) {
  const size_t width = entry.width, count = (out.size() - entry.phase) / width, numbers = count * width;
  const size_t directory = width * blocks::kPlaneEntryLength;
  size_t at = directory + out.size() - numbers;
  if (stored.size() < at) return damaged_blocks("a block of planes is too short");
  ConstPlanes planes{};
  for (size_t k = 0; k < width; ++k) {
    const PlaneEntry plane = blocks::get_plane_entry(&stored[k * blocks::kPlaneEntryLength]);
    if (plane.stored_length > stored.size() - at) return damaged_blocks("a plane is too long");
    auto bytes = stored.subspan(at, plane.stored_length);
    FPFS_RETURN_IF_ERROR(decode_plane(plane.method, &bytes, memory.subspan(k * count, count)));
    planes[k] = bytes.data();
    at += plane.stored_length;
  }
  if (at != stored.size()) return damaged_blocks("a block of planes is too long");
  std::memcpy(out.data(), stored.data() + directory, entry.phase);
  merge_planes(planes, {width, entry.rotation}, out.subspan(entry.phase, numbers));
  std::memcpy(out.data() + entry.phase + numbers, stored.data() + directory + entry.phase,
              out.size() - entry.phase - numbers);
  return Status::ok();
}

// `memory`: for planes.
Status decode_block(const Entry& entry, std::span<const std::byte> stored, std::span<std::byte> memory,
                    std::span<std::byte> out, uint64_t seed) {
  switch (entry.method) {
    case Method::kRaw:
      std::memcpy(out.data(), stored.data(), out.size());
      break;
    case Method::kConstant:
      repeat(stored, out);
      break;
    case Method::kZstd:
      FPFS_RETURN_IF_ERROR(decompress(stored, out));
      break;
    case Method::kPlanes:
      FPFS_RETURN_IF_ERROR(decode_planes(entry, stored, memory, out));
      break;
  }
  return hash_bytes(out, seed) == entry.checksum ? Status::ok()
                                                 : damaged_blocks("a block's content fails its checksum");
}

Entry entry_at(std::span<const std::byte> table, size_t block) {
  return blocks::get_entry(&table[block * blocks::kEntryLength]);
}

}  // namespace

Result<size_t> BlockIndex::length_of(std::span<const std::byte> header, size_t raw_length) {
  static_assert(kHeaderLength == blocks::kHeaderLength);
  if (header.size() < kHeaderLength) return damaged_blocks("they have no header");
  if (get_u32(&header[0]) != blocks::kMagic) return damaged_blocks("the header has another magic");
  const uint64_t block_size_log = get_u64(&header[8]);
  if (block_size_log >= 64 || size_t{1} << block_size_log < kBlockSizeMin ||
      size_t{1} << block_size_log > kBlockSizeMax)
    return damaged_blocks("the header has an unknown block size");
  if (raw_length == 0 || raw_length > kBlockCodecRawMax || get_u32(&header[4]) != raw_length)
    return damaged_blocks(fmt::format("they are {} bytes, not {}", get_u32(&header[4]), raw_length));
  return blocks::index_length(raw_length, size_t{1} << block_size_log);
}

Result<BlockIndex> BlockIndex::parse(std::span<const std::byte> index, size_t stored_length, size_t raw_length,
                                     uint64_t seed) {
  FPFS_ASSIGN_OR_RETURN(const size_t length, length_of(index, raw_length));
  if (index.size() < length || stored_length < length) return damaged_blocks("the index is too short");
  if (stored_length >= raw_length) return damaged_blocks("they did not shrink");
  index = index.first(length);
  if (blocks::index_checksum(index, seed) != get_u64(&index[blocks::kIndexChecksumAt]))
    return damaged_blocks("the index fails its checksum");
  const BlockIndex blocks(index, raw_length, size_t{1} << get_u64(&index[8]), seed);
  size_t total = length;
  for (size_t at = 0, i = 0; at < raw_length; at += blocks.block_size_, ++i) {
    const Entry entry = entry_at(blocks.table_, i);
    const size_t raw = std::min(blocks.block_size_, raw_length - at);
    if (!valid_numbers(entry, raw) || !valid_length(entry, raw))
      return damaged_blocks("the index has an invalid entry");
    total += entry.stored_length;
  }
  if (total != stored_length) return damaged_blocks(fmt::format("they end after {} of {} bytes", total, stored_length));
  return blocks;
}

BlockIndex::Range BlockIndex::stored_range(Range raw) const {
  FPFS_CHECK(raw.length > 0 && raw.offset < raw_length_ && raw.length <= raw_length_ - raw.offset,
             "a part of the content");
  Range stored{kHeaderLength + table_.size(), 0};
  const size_t first = raw.offset / block_size_, last = (raw.offset + raw.length - 1) / block_size_;
  for (size_t i = 0; i < first; ++i) stored.offset += entry_at(table_, i).stored_length;
  for (size_t i = first; i <= last; ++i) stored.length += entry_at(table_, i).stored_length;
  return stored;
}

Status BlockIndex::decode(size_t offset, std::span<const std::byte> stored, std::span<std::byte> out) const {
  if (out.empty()) return Status::ok();
  FPFS_CHECK(stored.size() == stored_range({offset, out.size()}).length, "the stored bytes of these blocks");
  thread_local const auto scratch = std::make_unique_for_overwrite<Scratch>();
  while (!out.empty()) {
    const size_t block = offset / block_size_, start = block * block_size_, skip = offset - start;
    const size_t raw_length = std::min(block_size_, raw_length_ - start);
    const size_t wanted = std::min(raw_length - skip, out.size());
    const Entry entry = entry_at(table_, block);
    const bool whole = wanted == raw_length;
    const auto decoded = whole ? out.first(wanted) : std::span(scratch->block).first(raw_length);
    FPFS_RETURN_IF_ERROR(decode_block(entry, stored.first(entry.stored_length), scratch->planes, decoded, seed_));
    if (!whole) std::memcpy(out.data(), &decoded[skip], wanted);
    stored = stored.subspan(entry.stored_length);
    out = out.subspan(wanted);
    offset += wanted;
  }
  return Status::ok();
}

BlockIndex::BlockIndex(std::span<const std::byte> index, size_t raw_length, size_t block_size, uint64_t seed)
    : table_(index.subspan(kHeaderLength)),
      checksum_(get_u64(&index[blocks::kIndexChecksumAt])),
      raw_length_(raw_length),
      block_size_(block_size),
      seed_(seed) {}

uint64_t blocks_checksum(std::span<const std::byte> stored, uint64_t seed) {
  if (stored.size() >= blocks::kHeaderLength) {
    const Result<size_t> length = BlockIndex::length_of(stored, get_u32(&stored[4]));
    if (length.is_ok() && *length <= stored.size()) {
      const uint64_t checksum = blocks::index_checksum(stored.first(*length), seed);
      if (checksum == get_u64(&stored[blocks::kIndexChecksumAt]) &&
          hash_bytes(stored.subspan(*length), seed) == get_u64(&stored[blocks::kRestChecksumAt]))
        return checksum;
    }
  }
  return hash_bytes(stored, seed);
}

Status decode_blocks(std::span<const std::byte> stored, std::span<std::byte> out, uint64_t seed) {
  return decode_range(stored, out.size(), 0, out, seed);
}

Status decode_range(std::span<const std::byte> stored, size_t raw_length, size_t offset, std::span<std::byte> out,
                    uint64_t seed) {
  FPFS_ASSIGN_OR_RETURN(const BlockIndex index, BlockIndex::parse(stored, stored.size(), raw_length, seed));
  if (out.empty()) return Status::ok();
  const BlockIndex::Range range = index.stored_range({offset, out.size()});
  return index.decode(offset, stored.subspan(range.offset, range.length), out);
}

}  // namespace fpfs
