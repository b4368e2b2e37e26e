#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "engine/codec/hash.h"
#include "engine/index/sidecar_format.h"

namespace fpfs::sidecar {

uint64_t record_seed(const Uuid& array_id, FileId file_id, SidecarOffset record_offset) {
  std::byte place[32];
  std::copy(array_id.begin(), array_id.end(), place);
  put_u64(place + 16, file_id.value());
  put_u64(place + 24, record_offset.value());
  return hash_bytes(place);
}

uint64_t count_zero_sectors(std::span<const std::byte> bytes, SidecarOffset offset) {
  uint64_t count = 0;
  for (uint64_t at = round_up(offset, kSectorSize) - offset; at + kSectorSize <= bytes.size(); at += kSectorSize)
    if (all_zero(bytes.subspan(at, kSectorSize))) ++count;
  return count;
}

std::optional<RecordHead> decode_head(std::span<const std::byte> bytes, const Uuid& array_id, SidecarOffset offset) {
  if (bytes.size() < kHeadSize || get_u64(&bytes[head_at::kMagic]) != kHeadMagic) return std::nullopt;
  bytes = bytes.first(kHeadSize);
  RecordHead head;
  head.file_id = FileId(get_u64(&bytes[head_at::kFileId]));
  const uint64_t seed = record_seed(array_id, head.file_id, offset);
  if (get_u64(&bytes[head_at::kHeadChecksum]) != hash_bytes(bytes.first(head_at::kHeadChecksum), seed))
    return std::nullopt;
  head.length = get_u64(&bytes[head_at::kLength]);
  head.sequence = get_u64(&bytes[head_at::kSequence]);
  head.generation = Generation(get_u32(&bytes[head_at::kGeneration]));
  head.flags = get_u16(&bytes[head_at::kFlags]);
  head.zero_sectors = std::to_integer<uint8_t>(bytes[head_at::kZeroSectors]);
  head.size = get_u64(&bytes[head_at::kSize]);
  head.allocated = get_u64(&bytes[head_at::kAllocated]);
  head.truncate_from = get_u64(&bytes[head_at::kTruncateFrom]);
  head.extent_count = get_u32(&bytes[head_at::kExtentCount]);
  head.inline_length = get_u32(&bytes[head_at::kInlineLength]);
  head.body_checksum = get_u64(&bytes[head_at::kBodyChecksum]);
  // What follows cannot fail for bytes that encode_sidecar_record() made; it keeps made-up ones from misleading.
  const bool sane = head.length == kHeadSize + head.body_length() + kSidecarTrailerSize && head.sequence > 0 &&
                    head.file_id != FileId() && head.inline_length <= kInlineSizeMax &&
                    (!head.is_snapshot() || is_aligned(offset, kSnapshotAlignment));
  if (!sane) return std::nullopt;
  return head;
}

bool record_is_whole(std::span<const std::byte> bytes, const RecordHead& head, const Uuid& array_id,
                     SidecarOffset offset) {
  if (bytes.size() != head.length) return false;
  const uint64_t seed = record_seed(array_id, head.file_id, offset);
  if (hash_bytes(bytes.subspan(kHeadSize, head.body_length()), seed) != head.body_checksum) return false;
  const std::optional<Trailer> trailer = decode_trailer(bytes.last(kSidecarTrailerSize), offset + head.length);
  if (!trailer) return false;
  const SidecarSummary& summary = trailer->summary;
  return summary.record_offset == offset && summary.sequence == head.sequence && summary.file_id == head.file_id &&
         summary.generation == head.generation && summary.size == head.size && summary.allocated == head.allocated &&
         summary.is_inline == head.is_inline() && trailer->snapshot == head.is_snapshot() &&
         trailer->zero_sectors == head.zero_sectors;
}

namespace {

Status invalid(std::string what) {
  return Status::error(StatusCode::kCorruption, std::move(what));
}

Status validate_head(std::span<const std::byte> bytes, const RecordHead& head, uint32_t chunk_size) {
  if ((head.flags & ~kKnownFlags) != 0)
    return Status::error(StatusCode::kUnsupported, fmt::format("unknown record flags {:#x}", head.flags));
  if (bytes[head_at::kReserved] != std::byte{0} || get_u64(&bytes[head_at::kReserved2]) != 0)
    return invalid("reserved bytes of the head are not zero");
  if (head.size > kFileSizeMax) return invalid(fmt::format("size {} is above the limit", head.size));
  if (head.is_inline() ? head.extent_count != 0 || head.inline_length > head.size : head.inline_length != 0)
    return invalid(fmt::format("{} inline bytes and {} extents in a record of size {}", head.inline_length,
                               head.extent_count, head.size));
  if ((head.flags & kTruncateFlag) == 0 && head.truncate_from != 0) return invalid("a truncation without its flag");
  if (head.truncate_from > kFileSizeMax / chunk_size + 1)
    return invalid(fmt::format("a truncation from chunk {}, beyond the largest file", head.truncate_from));
  return Status::ok();
}

Status validate_extent(ChunkIndex chunk, const Extent& extent, uint16_t member_count, uint32_t chunk_size) {
  if (extent.member.value() >= member_count)
    return invalid(fmt::format("chunk {} on member {} of an array of {}", chunk, extent.member, member_count));
  if (extent.is_away() && (extent.slot.value() != 0 || extent.member.value() != 0 || extent.stored_length != 0))
    return invalid(fmt::format("chunk {} is on no member, and has a place there", chunk));
  if (extent.is_away() && extent.visible_length != extent.raw_length)
    return invalid(fmt::format("chunk {} is on no member, and shown in part", chunk));
  if (extent.is_here() && (extent.stored_length == 0 || extent.stored_length > chunk_size))
    return invalid(
        fmt::format("chunk {} stored in {} bytes, chunk size is {}", chunk, extent.stored_length, chunk_size));
  if (extent.raw_length == 0 || extent.raw_length > chunk_size || extent.visible_length > extent.raw_length)
    return invalid(
        fmt::format("chunk {} of {} bytes, {} of them visible", chunk, extent.raw_length, extent.visible_length));
  if (extent.codec == Codec::kRaw && extent.raw_length != extent.stored_length)
    return invalid(
        fmt::format("chunk {} stored raw in {} bytes, but is {} long", chunk, extent.stored_length, extent.raw_length));
  if (extent.slot.value() > kFileSizeMax / chunk_size - 1)
    return invalid(fmt::format("chunk {} in slot {}, beyond the largest object", chunk, extent.slot));
  return Status::ok();
}

Result<std::pair<ChunkIndex, Extent>> decode_extent(const std::byte* p, uint16_t member_count, uint32_t chunk_size) {
  const ChunkIndex chunk(get_u64(p + extent_at::kChunk));
  if (chunk.value() > kFileSizeMax / chunk_size)
    return invalid(fmt::format("chunk {} lies beyond the largest file", chunk));
  const auto codec = std::to_integer<uint8_t>(p[extent_at::kCodec]);
  if (codec >= kCodecs)
    return Status::error(StatusCode::kUnsupported, fmt::format("chunk {} has the unknown codec {}", chunk, codec));
  if (p[extent_at::kReserved] != std::byte{0}) return invalid(fmt::format("chunk {}: reserved byte not zero", chunk));
  Extent extent;
  extent.codec = static_cast<Codec>(codec);
  if (!extent.exists()) {
    if (!all_zero({p + extent_at::kSlot, kExtentSize - extent_at::kSlot}))
      return invalid(fmt::format("chunk {} is a hole, but not all zeros", chunk));
    return std::pair(chunk, extent);
  }
  extent.slot = SlotIndex(get_u64(p + extent_at::kSlot));
  extent.checksum = get_u64(p + extent_at::kChecksum);
  extent.stored_length = get_u32(p + extent_at::kStoredLength);
  extent.raw_length = get_u32(p + extent_at::kRawLength);
  extent.visible_length = get_u32(p + extent_at::kVisibleLength);
  extent.member = MemberIndex(get_u16(p + extent_at::kMember));
  FPFS_RETURN_IF_ERROR(validate_extent(chunk, extent, member_count, chunk_size));
  return std::pair(chunk, extent);
}

}  // namespace

Result<SidecarRecord> decode_record(std::span<const std::byte> bytes, const RecordHead& head, uint16_t member_count,
                                    uint32_t chunk_size) {
  FPFS_RETURN_IF_ERROR(validate_head(bytes, head, chunk_size));
  SidecarRecord record;
  record.sequence = head.sequence;
  record.snapshot = head.is_snapshot();
  record.generation = head.generation;
  record.size = head.size;
  record.allocated = head.allocated;
  record.has_inline = head.is_inline();
  if ((head.flags & kTruncateFlag) != 0) record.truncate_from = ChunkIndex(head.truncate_from);

  // The lengths were checked against the record's own length, which lies inside the file.
  const std::span<const std::byte> body = bytes.subspan(kHeadSize, head.body_length());
  record.inline_data.assign(body.begin(), body.begin() + head.inline_length);
  record.extents.reserve(head.extent_count);
  for (uint32_t i = 0; i < head.extent_count; ++i) {
    FPFS_ASSIGN_OR_RETURN(auto entry, decode_extent(&body[uint64_t{i} * kExtentSize], member_count, chunk_size));
    if (!record.extents.empty() && entry.first <= record.extents.back().first)
      return invalid(fmt::format("chunk {} after chunk {}: not ascending", entry.first, record.extents.back().first));
    record.extents.push_back(entry);
  }
  const uint64_t used = head.inline_length + uint64_t{head.extent_count} * kExtentSize;
  if (!all_zero(body.subspan(used))) return invalid("the padding is not zero");
  return record;
}

}  // namespace fpfs::sidecar
