// The bytes of a sidecar, shared by the files of engine/index that write and read them. docs/format.md explains each
// field; nothing outside engine/index includes this.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/index/sidecar.h"

namespace fpfs::sidecar {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kHeadSize = 96;
constexpr uint32_t kExtentSize = 40;
// Records start and end at multiples of this, so that a search for the next one need not look at every byte.
constexpr uint32_t kRecordAlignment = 8;
// The unit that a power cut keeps or loses as a whole.
constexpr uint32_t kSectorSize = 512;

constexpr uint64_t kHeaderMagic = 0x3152414345444953;  // "SIDECAR1" as stored
constexpr uint64_t kHeadMagic = 0x44524f4345525046;    // "FPRECORD" as stored
constexpr uint16_t kTrailerMagic = 0x5446;             // "FT" as stored

// Whether the bytes begin as the magic does, as far as there are any.
inline bool begins_with(std::span<const std::byte> bytes, uint64_t magic) {
  std::array<std::byte, sizeof magic> stored;
  put_u64(stored.data(), magic);
  const size_t length = std::min(bytes.size(), stored.size());
  return length > 0 && std::equal(stored.begin(), stored.begin() + length, bytes.begin());
}

enum HeadFlags : uint16_t { kSnapshotFlag = 1, kInlineFlag = 2, kTruncateFlag = 4, kKnownFlags = 7 };

namespace header_at {
constexpr size_t kMagic = 0, kVersion = 8, kChunkSize = 12, kArrayId = 16, kFileId = 32, kReserved = 40,
                 kChecksum = 120;
}
namespace head_at {
constexpr size_t kMagic = 0, kLength = 8, kSequence = 16, kFileId = 24, kGeneration = 32, kFlags = 36,
                 kZeroSectors = 38, kReserved = 39, kSize = 40, kAllocated = 48, kTruncateFrom = 56, kExtentCount = 64,
                 kInlineLength = 68, kBodyChecksum = 72, kReserved2 = 80, kHeadChecksum = 88;
}
namespace extent_at {
constexpr size_t kChunk = 0, kSlot = 8, kChecksum = 16, kStoredLength = 24, kRawLength = 28, kVisibleLength = 32,
                 kMember = 36, kCodec = 38, kReserved = 39;
}
namespace trailer_at {
constexpr size_t kMagic = 0, kFlags = 2, kZeroSectors = 3, kGeneration = 4, kFileId = 8, kSequence = 16, kSize = 24,
                 kAllocated = 32, kRecordOffset = 40, kSnapshotOffset = 48, kChecksum = 56;
}
static_assert(header_at::kChecksum + 8 == kSidecarHeaderSize);
static_assert(head_at::kHeadChecksum + 8 == kHeadSize);
static_assert(extent_at::kReserved + 1 == kExtentSize);
static_assert(trailer_at::kChecksum + 8 == kSidecarTrailerSize);
static_assert(kHeadSize % kRecordAlignment == 0 && kExtentSize % kRecordAlignment == 0 &&
              kSidecarTrailerSize % kRecordAlignment == 0 && kSidecarHeaderSize % kRecordAlignment == 0);

inline bool is_aligned(SidecarOffset offset, uint64_t alignment) {
  return round_down(offset, alignment) == offset;
}

// The fixed head of a record, its checksum verified.
struct RecordHead {
  uint64_t length = 0;  // of the whole record: head, body, padding, trailer
  uint64_t sequence = 0;
  FileId file_id;
  Generation generation;
  uint16_t flags = 0;
  uint8_t zero_sectors = 0;  // see count_zero_sectors()
  uint64_t size = 0;
  uint64_t allocated = 0;
  uint64_t truncate_from = 0;
  uint32_t extent_count = 0;
  uint32_t inline_length = 0;
  uint64_t body_checksum = 0;

  bool is_snapshot() const { return (flags & kSnapshotFlag) != 0; }
  bool is_inline() const { return (flags & kInlineFlag) != 0; }
  uint64_t body_length() const {
    return round_up(inline_length + uint64_t{extent_count} * kExtentSize, kRecordAlignment);
  }
};

// A trailer, its checksum verified.
struct Trailer {
  SidecarSummary summary;
  bool snapshot = false;
  uint8_t zero_sectors = 0;
};

// Binds the checksums of a record to its place: a record copied to another sidecar or to another offset fails.
uint64_t record_seed(const Uuid& array_id, FileId file_id, SidecarOffset record_offset);

// Nothing when the bytes are no head that was written at `offset` of a sidecar of this array: wrong magic, wrong
// checksum, or lengths that contradict each other. The file id is the head's own claim.
std::optional<RecordHead> decode_head(std::span<const std::byte> bytes, const Uuid& array_id, SidecarOffset offset);

// Nothing when the bytes are no trailer that was written to end at `end`.
std::optional<Trailer> decode_trailer(std::span<const std::byte> bytes, SidecarOffset end);

// The whole bytes of a record whose head is `head`: true when body and trailer are what was written.
bool record_is_whole(std::span<const std::byte> bytes, const RecordHead& head, const Uuid& array_id,
                     SidecarOffset offset);

// How many of the aligned sectors that lie wholly within [offset, offset + bytes) are all zeros. Head and trailer
// repeat this number, so a record that does not verify shows whether a sector of it never reached the drive (a power
// cut: there are more zero sectors than were written) or every sector was written and one was damaged since.
uint64_t count_zero_sectors(std::span<const std::byte> bytes, SidecarOffset offset);

// Decodes and validates the body of a record that is whole. kCorruption: values that no writer of this format writes.
Result<SidecarRecord> decode_record(std::span<const std::byte> bytes, const RecordHead& head, uint16_t member_count,
                                    uint32_t chunk_size);

}  // namespace fpfs::sidecar
