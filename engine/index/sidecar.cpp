#include "engine/index/sidecar.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/codec/hash.h"
#include "engine/index/sidecar_format.h"

namespace fpfs {

using namespace sidecar;

namespace {

// Seeds the checksum of a trailer with the place where it ends, so that the last bytes of a torn append, which may hold
// anything, do not pass for the trailer of another length.
constexpr uint64_t kTrailerSeed = 0x6c69617472504653;

uint64_t trailer_checksum(std::span<const std::byte> bytes, SidecarOffset end) {
  return hash_bytes(bytes.first(trailer_at::kChecksum), kTrailerSeed ^ end.value());
}

uint16_t flags_of(const SidecarRecord& record) {
  return static_cast<uint16_t>((record.snapshot ? kSnapshotFlag : 0) | (record.has_inline ? kInlineFlag : 0) |
                               (record.truncate_from ? kTruncateFlag : 0));
}

void put_extent(std::byte* p, ChunkIndex chunk, const Extent& extent) {
  put_u64(p + extent_at::kChunk, chunk.value());
  if (!extent.exists()) return;  // the rest is zeros already
  put_u64(p + extent_at::kSlot, extent.slot.value());
  put_u64(p + extent_at::kChecksum, extent.checksum);
  put_u32(p + extent_at::kStoredLength, extent.stored_length);
  put_u32(p + extent_at::kRawLength, extent.raw_length);
  put_u32(p + extent_at::kVisibleLength, extent.visible_length);
  put_u16(p + extent_at::kMember, extent.member.value());
  p[extent_at::kCodec] = static_cast<std::byte>(extent.codec);
}

void put_body(std::byte* p, const SidecarRecord& record) {
  std::copy(record.inline_data.begin(), record.inline_data.end(), p);
  for (size_t i = 0; i < record.extents.size(); ++i)
    put_extent(p + i * kExtentSize, record.extents[i].first, record.extents[i].second);
}

void put_head(std::byte* p, const SidecarHeader& header, const SidecarRecord& record, uint64_t length) {
  put_u64(p + head_at::kMagic, kHeadMagic);
  put_u64(p + head_at::kLength, length);
  put_u64(p + head_at::kSequence, record.sequence);
  put_u64(p + head_at::kFileId, header.file_id.value());
  put_u32(p + head_at::kGeneration, record.generation.value());
  put_u16(p + head_at::kFlags, flags_of(record));
  put_u64(p + head_at::kSize, record.size);
  put_u64(p + head_at::kAllocated, record.allocated);
  put_u64(p + head_at::kTruncateFrom, record.truncate_from.value_or(ChunkIndex(0)).value());
  put_u32(p + head_at::kExtentCount, static_cast<uint32_t>(record.extents.size()));
  put_u32(p + head_at::kInlineLength, static_cast<uint32_t>(record.inline_data.size()));
}

void put_trailer(std::byte* p, const SidecarHeader& header, const SidecarRecord& record, SidecarOffset record_offset,
                 SidecarOffset snapshot_offset) {
  put_u16(p + trailer_at::kMagic, kTrailerMagic);
  p[trailer_at::kFlags] = static_cast<std::byte>(flags_of(record));
  put_u32(p + trailer_at::kGeneration, record.generation.value());
  put_u64(p + trailer_at::kFileId, header.file_id.value());
  put_u64(p + trailer_at::kSequence, record.sequence);
  put_u64(p + trailer_at::kSize, record.size);
  put_u64(p + trailer_at::kAllocated, record.allocated);
  put_u64(p + trailer_at::kRecordOffset, record_offset.value());
  put_u64(p + trailer_at::kSnapshotOffset, (record.snapshot ? record_offset : snapshot_offset).value());
}

}  // namespace

std::vector<std::byte> encode_sidecar_header(const SidecarHeader& header) {
  FPFS_CHECK(header.file_id != FileId(), "a file id is never 0");
  std::vector<std::byte> bytes(kSidecarHeaderSize);
  put_u64(&bytes[header_at::kMagic], kHeaderMagic);
  put_u32(&bytes[header_at::kVersion], kVersion);
  put_u32(&bytes[header_at::kChunkSize], header.chunk_size);
  std::copy(header.array_id.begin(), header.array_id.end(), &bytes[header_at::kArrayId]);
  put_u64(&bytes[header_at::kFileId], header.file_id.value());
  put_u64(&bytes[header_at::kChecksum], hash_bytes(std::span(bytes).first(header_at::kChecksum)));
  return bytes;
}

Result<SidecarHeader> decode_sidecar_header(std::span<const std::byte> bytes) {
  const auto corruption = [](std::string what) { return Status::error(StatusCode::kCorruption, std::move(what)); };
  if (bytes.size() < kSidecarHeaderSize)
    return corruption(fmt::format("sidecar header: only {} of {} bytes", bytes.size(), kSidecarHeaderSize));
  bytes = bytes.first(kSidecarHeaderSize);
  if (get_u64(&bytes[header_at::kMagic]) != kHeaderMagic)
    return corruption("sidecar header at offset 0: the magic is wrong; this is no sidecar, or it is damaged");
  if (get_u64(&bytes[header_at::kChecksum]) != hash_bytes(bytes.first(header_at::kChecksum)))
    return corruption("sidecar header at offset 0: the checksum is wrong");
  const uint32_t version = get_u32(&bytes[header_at::kVersion]);
  if (version != kVersion)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("sidecar header: version {}, this program knows {}", version, kVersion));
  if (!all_zero(bytes.subspan(header_at::kReserved, header_at::kChecksum - header_at::kReserved)))
    return corruption("sidecar header: reserved bytes are not zero");
  SidecarHeader header;
  header.chunk_size = get_u32(&bytes[header_at::kChunkSize]);
  std::copy_n(&bytes[header_at::kArrayId], header.array_id.size(), header.array_id.begin());
  header.file_id = FileId(get_u64(&bytes[header_at::kFileId]));
  if (header.file_id == FileId()) return corruption("sidecar header: the file id is 0");
  return header;
}

SidecarOffset encode_sidecar_record(const SidecarHeader& header, const SidecarRecord& record, SidecarOffset at,
                                    SidecarOffset snapshot_offset, std::vector<std::byte>& out) {
  FPFS_CHECK(at >= kFirstRecord && is_aligned(at, kRecordAlignment), "a record starts where another ended");
  FPFS_CHECK(record.sequence > 0, "sequences start at 1");
  FPFS_CHECK(record.extents.size() <= UINT32_MAX, "a record counts its extents in 32 bits");
  FPFS_CHECK(record.has_inline ? record.extents.empty() && record.inline_data.size() <= kInlineSizeMax &&
                                     record.inline_data.size() <= record.size
                               : record.inline_data.empty(),
             "inline content is all the content, and lies below the size");
  FPFS_CHECK(record.size <= kFileSizeMax, "a file's size is below 2^63");

  const SidecarOffset offset = record.snapshot ? round_up(at, kSnapshotAlignment) : at;
  const uint64_t body = round_up(record.inline_data.size() + record.extents.size() * kExtentSize, kRecordAlignment);
  const uint64_t length = kHeadSize + body + kSidecarTrailerSize;
  const size_t start = out.size() + (offset - at);
  out.resize(start + length);
  const std::span<std::byte> bytes = std::span(out).subspan(start, length);
  const std::span<std::byte> trailer = bytes.last(kSidecarTrailerSize);

  put_head(bytes.data(), header, record, length);
  put_body(&bytes[kHeadSize], record);
  put_trailer(trailer.data(), header, record, offset, snapshot_offset);
  // The sectors that hold a part of the head are not zeros once its checksum, which ends it, is there; nor is the
  // trailer's.
  const auto zero_sectors = static_cast<std::byte>(count_zero_sectors(bytes.subspan(kHeadSize), offset + kHeadSize));
  bytes[head_at::kZeroSectors] = zero_sectors;
  trailer[trailer_at::kZeroSectors] = zero_sectors;

  const uint64_t seed = record_seed(header.array_id, header.file_id, offset);
  put_u64(&bytes[head_at::kBodyChecksum], hash_bytes(bytes.subspan(kHeadSize, body), seed));
  put_u64(&bytes[head_at::kHeadChecksum], hash_bytes(bytes.first(head_at::kHeadChecksum), seed));
  put_u64(&trailer[trailer_at::kChecksum], trailer_checksum(trailer, offset + length));
  return offset;
}

Result<SidecarSummary> decode_sidecar_trailer(std::span<const std::byte> bytes, SidecarOffset end) {
  if (std::optional<Trailer> trailer = decode_trailer(bytes, end)) return trailer->summary;
  return Status::error(StatusCode::kCorruption,
                       fmt::format("the last {} bytes of the sidecar, which ends at {}, are no valid trailer",
                                   kSidecarTrailerSize, end));
}

namespace sidecar {

std::optional<Trailer> decode_trailer(std::span<const std::byte> bytes, SidecarOffset end) {
  if (bytes.size() != kSidecarTrailerSize || get_u16(&bytes[trailer_at::kMagic]) != kTrailerMagic ||
      get_u64(&bytes[trailer_at::kChecksum]) != trailer_checksum(bytes, end))
    return std::nullopt;
  const auto flags = std::to_integer<uint16_t>(bytes[trailer_at::kFlags]);
  Trailer trailer;
  trailer.snapshot = (flags & kSnapshotFlag) != 0;
  trailer.zero_sectors = std::to_integer<uint8_t>(bytes[trailer_at::kZeroSectors]);
  SidecarSummary& summary = trailer.summary;
  summary.is_inline = (flags & kInlineFlag) != 0;
  summary.generation = Generation(get_u32(&bytes[trailer_at::kGeneration]));
  summary.file_id = FileId(get_u64(&bytes[trailer_at::kFileId]));
  summary.sequence = get_u64(&bytes[trailer_at::kSequence]);
  summary.size = get_u64(&bytes[trailer_at::kSize]);
  summary.allocated = get_u64(&bytes[trailer_at::kAllocated]);
  summary.record_offset = SidecarOffset(get_u64(&bytes[trailer_at::kRecordOffset]));
  summary.snapshot_offset = SidecarOffset(get_u64(&bytes[trailer_at::kSnapshotOffset]));
  // A checksum that matches by chance or by malice must not lead a reader astray.
  const bool sane =
      flags <= kKnownFlags && summary.file_id != FileId() && summary.sequence > 0 && summary.sequence <= kSequenceMax &&
      summary.size <= kFileSizeMax && summary.allocated <= kFileSizeMax && summary.record_offset >= kFirstRecord &&
      is_aligned(summary.record_offset, kRecordAlignment) && summary.record_offset < end &&
      end - summary.record_offset >= kHeadSize + kSidecarTrailerSize &&
      is_aligned(summary.snapshot_offset, kSnapshotAlignment) && summary.snapshot_offset <= summary.record_offset &&
      trailer.snapshot == (summary.snapshot_offset == summary.record_offset);
  if (!sane) return std::nullopt;
  return trailer;
}

}  // namespace sidecar
}  // namespace fpfs
