// Any bytes as a sidecar. The first byte of an input chooses: the rest is the file as it is; or it describes records
// with whatever numbers in them, whose checksums are right, which is then cut, or damaged in a place.
//
// It is refused, or every number of what was read lies in its range; and what was read can be written as a snapshot and
// read again.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/codec/hash.h"
#include "engine/file/slot_map.h"
#include "engine/index/sidecar_format.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace fpfs;
using namespace fpfs::sidecar;
using fuzz::Input;
using fuzz::require;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kChunkSize = 64 * 1024;
constexpr uint16_t kMembers = 5;
constexpr FileId kFile(0x0123456789abcdef);
constexpr size_t kSizeMax = 256 * 1024;
constexpr uint64_t kTrailerSeed = 0x6c69617472504653;  // docs/format.md

Uuid test_array() {
  Uuid id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

class Memory final : public SidecarReader {
 public:
  explicit Memory(const Bytes& bytes) : bytes_(bytes) {}
  Result<size_t> read(SidecarOffset offset, std::span<std::byte> buffer) override {
    if (offset >= end()) return size_t{0};
    const size_t count = std::min<size_t>(buffer.size(), end() - offset);
    std::memcpy(buffer.data(), &bytes_[offset.value()], count);
    return count;
  }
  Result<SidecarOffset> next_data(SidecarOffset offset) override { return std::min(offset, end()); }
  SidecarOffset end() const override { return SidecarOffset(bytes_.size()); }

 private:
  const Bytes& bytes_;
};

void append_extent(Input& input, Bytes& out, uint64_t& chunk) {
  std::byte extent[kExtentSize] = {};
  chunk += input.size_like();
  put_u64(extent + extent_at::kChunk, chunk);
  put_u64(extent + extent_at::kSlot, input.size_like());
  put_u64(extent + extent_at::kChecksum, input.number(2));
  const uint64_t length = input.byte() < 200 ? kChunkSize : input.size_like();
  put_u32(extent + extent_at::kStoredLength, static_cast<uint32_t>(length));
  put_u32(extent + extent_at::kRawLength, static_cast<uint32_t>(input.byte() < 200 ? length : input.size_like()));
  put_u32(extent + extent_at::kVisibleLength, static_cast<uint32_t>(input.byte() < 200 ? length : input.size_like()));
  put_u16(extent + extent_at::kMember, static_cast<uint16_t>(input.byte() < 230 ? input.byte() % 5 : input.number(2)));
  extent[extent_at::kCodec] = static_cast<std::byte>(input.byte() % 5);
  extent[extent_at::kReserved] = input.byte() == 255 ? std::byte{1} : std::byte{0};
  out.insert(out.end(), extent, extent + kExtentSize);
}

// One record, with checksums that say it is whole.
void append_record(Input& input, Bytes& out, uint64_t sequence, SidecarOffset& snapshot_offset) {
  const uint8_t how = input.byte();
  const uint16_t flags = how < 250 ? how % 8 : static_cast<uint16_t>(input.number(2));
  const bool is_snapshot = (flags & kSnapshotFlag) != 0;
  if (is_snapshot && input.byte() < 250) out.resize(round_up(out.size(), kSnapshotAlignment));
  const SidecarOffset offset(out.size());
  if (is_snapshot) snapshot_offset = offset;

  Bytes body;
  uint32_t inline_length = 0, extents = 0;
  if ((flags & kInlineFlag) != 0) {
    const std::span<const std::byte> content = input.bytes(input.number(2) % 2000);
    body.assign(content.begin(), content.end());
    inline_length = static_cast<uint32_t>(body.size());
  } else {
    extents = input.byte() % 16;
    uint64_t chunk = 0;
    for (uint32_t i = 0; i < extents; ++i) append_extent(input, body, chunk);
  }
  body.resize(round_up(body.size(), kRecordAlignment));

  Bytes record(kHeadSize + body.size() + kSidecarTrailerSize);
  const std::span<std::byte> trailer = std::span(record).last(kSidecarTrailerSize);
  const uint64_t size = input.byte() < 128 ? inline_length + input.number(3) : input.size_like();
  const uint32_t generation = input.byte() % 4;
  put_u64(&record[head_at::kMagic], kHeadMagic);
  put_u64(&record[head_at::kLength], record.size());
  put_u64(&record[head_at::kSequence], sequence);
  put_u64(&record[head_at::kFileId], kFile.value());
  put_u32(&record[head_at::kGeneration], generation);
  put_u16(&record[head_at::kFlags], flags);
  put_u64(&record[head_at::kSize], size);
  put_u64(&record[head_at::kAllocated], input.number(3));
  if ((flags & kTruncateFlag) != 0) put_u64(&record[head_at::kTruncateFrom], input.size_like());
  put_u32(&record[head_at::kExtentCount], extents);
  put_u32(&record[head_at::kInlineLength], inline_length);
  std::copy(body.begin(), body.end(), record.begin() + kHeadSize);
  put_u16(&trailer[trailer_at::kMagic], kTrailerMagic);
  trailer[trailer_at::kFlags] = static_cast<std::byte>(flags);
  put_u32(&trailer[trailer_at::kGeneration], generation);
  put_u64(&trailer[trailer_at::kFileId], kFile.value());
  put_u64(&trailer[trailer_at::kSequence], sequence);
  put_u64(&trailer[trailer_at::kSize], size);
  put_u64(&trailer[trailer_at::kAllocated], get_u64(&record[head_at::kAllocated]));
  put_u64(&trailer[trailer_at::kRecordOffset], offset.value());
  put_u64(&trailer[trailer_at::kSnapshotOffset], input.byte() < 250 ? snapshot_offset.value() : input.size_like());
  const auto zero_sectors = static_cast<std::byte>(count_zero_sectors(record, offset));
  record[head_at::kZeroSectors] = zero_sectors;
  trailer[trailer_at::kZeroSectors] = zero_sectors;

  // One field of the head or the trailer, or nothing, is overwritten with anything.
  if (const uint8_t where = input.byte(); where < 80) record[where] = static_cast<std::byte>(input.byte());
  if (const uint8_t where = input.byte(); where < trailer_at::kChecksum)
    trailer[where] = static_cast<std::byte>(input.byte());

  const uint64_t seed = record_seed(test_array(), kFile, offset);
  put_u64(&record[head_at::kBodyChecksum], hash_bytes(body, seed));
  put_u64(&record[head_at::kHeadChecksum], hash_bytes(std::span(record).first(head_at::kHeadChecksum), seed));
  put_u64(&trailer[trailer_at::kChecksum],
          hash_bytes(trailer.first(trailer_at::kChecksum), kTrailerSeed ^ (offset + record.size()).value()));
  out.insert(out.end(), record.begin(), record.end());
}

Bytes build_log(Input& input) {
  Bytes out = encode_sidecar_header({test_array(), kFile, kChunkSize});
  SidecarOffset snapshot_offset;
  const uint8_t records = input.byte() % 12;
  uint64_t sequence = 0;
  for (uint8_t i = 0; i < records && out.size() < kSizeMax; ++i) {
    sequence += input.byte() < 250 ? 1 : input.number(8);
    append_record(input, out, sequence, snapshot_offset);
  }
  switch (input.byte() % 4) {
    case 0:
      out.resize(out.size() - std::min<size_t>(out.size(), input.number(2)));
      break;
    case 1:
      out[input.number(3) % out.size()] ^= static_cast<std::byte>(input.byte());
      break;
    case 2: {
      const size_t begin = input.number(3) % out.size() / kSectorSize * kSectorSize;
      std::fill(out.begin() + begin, out.begin() + std::min<size_t>(out.size(), begin + kSectorSize), std::byte{0});
      break;
    }
    default:
      break;
  }
  return out;
}

// What a file that is opened keeps of its slots, however far they reach.
void check_slots(const FileImage& image) {
  PerMember<SlotMap> slots(kMembers);
  uint64_t taken = 0;
  image.extents.for_each(ChunkIndex(0), [&](ChunkIndex, const Extent& extent) {
    if (slots[extent.member].is_taken(extent.slot)) return true;
    slots[extent.member].take(extent.slot);
    ++taken;
    return true;
  });
  for (const SlotMap& map : slots) {
    uint64_t free = 0;
    map.for_each_gap(SlotIndex(0), [&](SlotIndex, uint64_t count) { free += count; });
    const uint64_t used = map.end().value() - free;
    require(used <= taken, "slots are free or taken");
    taken -= used;
  }
  require(taken == 0, "each slot is taken once");
}

void check_image(const FileImage& image, SidecarOffset file_end, const SidecarFindings& findings) {
  require(image.end <= file_end, "records end inside the file");
  require(findings.torn_tail == (image.end < file_end), "what is left over is a torn tail");
  require(image.size <= kFileSizeMax, "a size that a file can have");
  require(image.sequence <= kSequenceMax, "a number of commits that can be counted on");
  require(image.inline_data.size() <= std::min<uint64_t>(image.size, kInlineSizeMax), "inline content below the size");
  require(!image.is_inline || image.extents.count() == 0, "inline content has no extents beside it");
  image.extents.for_each(ChunkIndex(0), [](ChunkIndex chunk, const Extent& extent) {
    require(chunk.value() <= kFileSizeMax / kChunkSize, "a chunk of a file");
    require(extent.member.value() < kMembers, "a member of the array");
    require(extent.stored_length > 0 && extent.stored_length <= kChunkSize, "stored inside a slot");
    require(extent.raw_length > 0 && extent.raw_length <= kChunkSize, "no longer than a chunk");
    require(extent.visible_length <= extent.raw_length, "visible inside the chunk");
    require(extent.slot.value() <= kFileSizeMax / kChunkSize, "a slot that an object can have");
    return true;
  });
  check_slots(image);
}

void check_rewritten(const FileImage& image) {
  const SidecarHeader header{test_array(), image.file_id, kChunkSize};
  SidecarRecord record;
  record.sequence = image.sequence;
  record.snapshot = true;
  record.generation = image.generation;
  record.size = image.size;
  record.allocated = image.extents.allocated_bytes();
  record.has_inline = image.is_inline;
  record.inline_data = image.inline_data;
  image.extents.for_each(ChunkIndex(0), [&](ChunkIndex chunk, const Extent& extent) {
    record.extents.emplace_back(chunk, extent);
    return true;
  });
  Bytes bytes = encode_sidecar_header(header);
  encode_sidecar_record(header, record, SidecarOffset(bytes.size()), SidecarOffset(0), bytes);
  Memory memory(bytes);
  const Result<FileImage> again = fold_sidecar(memory, test_array(), kMembers, kChunkSize, nullptr);
  require(again.is_ok() && again->size == image.size && again->sequence == image.sequence &&
              again->inline_data == image.inline_data && again->extents.count() == image.extents.count() &&
              again->extents.allocated_bytes() == image.extents.allocated_bytes(),
          "what was read can be written and read again");
}

void check(const Bytes& bytes) {
  Memory memory(bytes);
  SidecarFindings findings;
  const Result<FileImage> image = fold_sidecar(memory, test_array(), kMembers, kChunkSize, &findings);
  if (image.is_ok()) {
    check_image(*image, memory.end(), findings);
    if (image->sequence > 0) check_rewritten(*image);
  } else {
    require(image.status().code() == StatusCode::kCorruption || image.status().code() == StatusCode::kUnsupported,
            "damage is what a refusal says");
    require(!image.status().message().empty(), "a refusal says why");
  }
  require(identify_sidecar(memory, test_array()).is_ok(), "a sidecar can be looked at whatever it holds");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  if (input.byte() % 4 == 0) {
    const std::span<const std::byte> rest = input.rest();
    check(Bytes(rest.begin(), rest.end()));
  } else {
    check(build_log(input));
  }
  return 0;
}
