// The sidecar: the index of one logical file, itself one file in tree/. Encoding and decoding only; no I/O here.
//
// A sidecar of zero bytes is an empty file (so creating a name costs one system call). Otherwise:
//
//   header (128 bytes) | record | record | ... | record
//
// Each commit appends one record: a fixed head, a body (extents or inline content), and a 64-byte trailer that repeats
// what stat needs, so that the last 64 bytes of the sidecar alone answer it. The last whole valid record wins; a torn
// tail is ignored. A snapshot record describes the whole file by itself and starts at a multiple of 4096 (the gap
// before it is zeros), so that the dead log before it (from offset 4096 on) can be punched out while the inode stays.
//
// What readers rely on to tell a torn tail from damage, and writers therefore keep to:
// - a record is appended only after the one before was synced;
// - before anything is appended behind a torn tail or a failed append, the sidecar is cut to FileImage::end and the cut
//   is synced, so that what an append does not reach reads as zeros.
//
// docs/format.md gives every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/index/extent_table.h"
#include "engine/index/superblock.h"

namespace fpfs {

constexpr uint32_t kSidecarHeaderSize = 128;
constexpr uint32_t kSidecarTrailerSize = 64;
constexpr uint32_t kSnapshotAlignment = 4096;
constexpr SidecarOffset kFirstRecord(kSidecarHeaderSize);
constexpr uint32_t kInlineSizeMax = 32 * 1024;  // default limit; a record never holds more inline bytes than this
constexpr uint32_t kInlineRecordMax = kInlineSizeMax + 160;  // the longest record with inline content

// No sidecar counts this far; a number above it is no count of commits. File refuses at half of it, so that whatever it
// opens can be committed to.
constexpr uint64_t kSequenceMax = uint64_t{1} << 63;

struct SidecarHeader {
  Uuid array_id{};
  FileId file_id;
  uint32_t chunk_size = 0;
};

// One commit, in the form that writers build and readers get back.
struct SidecarRecord {
  uint64_t sequence = 0;  // 1, 2, 3 ... without gaps
  bool snapshot = false;  // describes the whole file; otherwise a change to the records before
  Generation generation;
  uint64_t size = 0;       // logical bytes
  uint64_t allocated = 0;  // bytes of the members that the file occupies
  bool has_inline = false;
  std::vector<std::byte> inline_data;  // when has_inline: the content, zeros follow up to size; there are no extents
  // Changed chunks, ascending. An entry with Codec::kNone says the chunk is now a hole. A truncation that removes
  // chunks [k, infinity) is said by truncate_from = k, applied before `extents`.
  std::optional<ChunkIndex> truncate_from;
  std::vector<std::pair<ChunkIndex, Extent>> extents;
  // Nothing of the state before remains behind a snapshot, behind inline content, or when the generation is another.
};

// Where a record lies in its sidecar: bytes [offset, end).
struct RecordPlace {
  SidecarOffset offset, end;
  bool operator==(const RecordPlace&) const = default;
};

// What the trailer alone tells (stat, unlink).
struct SidecarSummary {
  FileId file_id;
  Generation generation;
  uint64_t sequence = 0;
  uint64_t size = 0;
  uint64_t allocated = 0;
  bool is_inline = false;         // content inside the sidecar: no objects exist
  SidecarOffset record_offset;    // of the record that this trailer ends
  SidecarOffset snapshot_offset;  // of the newest snapshot record at or before it: where reading starts
};

// The folded state of a sidecar.
struct FileImage {
  FileId file_id;
  Generation generation;
  uint64_t sequence = 0;  // of the last valid record; 0 when the sidecar has none (then everything here is empty)
  uint64_t size = 0;
  bool is_inline = false;
  std::vector<std::byte> inline_data;
  ExtentTable extents;
  SidecarOffset snapshot_offset;
  SidecarOffset record_offset;  // of the last valid record
  SidecarOffset end;            // where the next record goes; bytes after it are a torn tail
  uint64_t live_bytes = 0;      // roughly what a snapshot would take: the measure for compaction
};

std::vector<std::byte> encode_sidecar_header(const SidecarHeader& header);
Result<SidecarHeader> decode_sidecar_header(std::span<const std::byte> bytes);

// Appends to `out` the bytes that a commit writes at `at` (the sidecar's end): zeros up to the snapshot alignment when
// the record is a snapshot, then the record. `snapshot_offset` is that of the newest snapshot before it (ignored when
// the record is one). Returns the offset of the record itself.
SidecarOffset encode_sidecar_record(const SidecarHeader& header, const SidecarRecord& record, SidecarOffset at,
                                    SidecarOffset snapshot_offset, std::vector<std::byte>& out);

// From the last kSidecarTrailerSize bytes of the file. kCorruption when they are no valid trailer of a file that ends
// at `end` (a torn tail, or damage: fold the whole sidecar to tell).
Result<SidecarSummary> decode_sidecar_trailer(std::span<const std::byte> bytes, SidecarOffset end);

// How fold_sidecar reads: fills `buffer` from `offset`, returns the bytes read (fewer only at end of file).
class SidecarReader {
 public:
  virtual ~SidecarReader() = default;
  virtual Result<size_t> read(SidecarOffset offset, std::span<std::byte> buffer) = 0;
  // The first offset at or after `offset` that holds data (not a punched hole); end() when none.
  virtual Result<SidecarOffset> next_data(SidecarOffset offset) = 0;
  virtual SidecarOffset end() const = 0;  // of the file
};

// What a reader may complain about without failing.
struct SidecarFindings {
  bool torn_tail = false;  // bytes after the last valid record
  uint64_t torn_bytes = 0;
};

// Why a sidecar that ends in a torn tail is not read as it was before: nobody was writing it when the array ended.
// `end` is FileImage::end.
Status damaged_tail(SidecarOffset end, const SidecarFindings& findings);

// Reads a whole sidecar: from the newest snapshot (named by the trailer, or searched for at multiples of
// kSnapshotAlignment when the tail is torn) to the last valid record. `expected_array` guards against foreign sidecars.
// kCorruption when no consistent state can be read (a damaged header; damage before valid records), with a message that
// says what is wrong at which offset. Every integer is validated before it is used for an allocation or an offset:
// extents lie inside `member_count` members, lengths inside the chunk, chunks ascending. What it takes of memory goes
// with the data that the file holds: its length does not count, as holes make any length. kSystem with ENOMEM when even
// that is not there.
Result<FileImage> fold_sidecar(SidecarReader& reader, const Uuid& expected_array, uint16_t member_count,
                               uint32_t chunk_size, SidecarFindings* findings);

// The inline content of one record, which was whole before, checked again. `buffer` (kInlineRecordMax bytes or more)
// has it at its beginning afterwards; what lies behind it there is lost. Returns its length. kCorruption: the record is
// not what was written.
Result<uint32_t> read_inline(SidecarReader& reader, const Uuid& array_id, FileId file_id, const RecordPlace& place,
                             std::span<std::byte> buffer);

// The file id of a sidecar that fold_sidecar() cannot read, when header, heads and trailer, as far as they are intact,
// agree on one; nothing otherwise. For repair, which keeps the objects that such a sidecar may name.
Result<std::optional<FileId>> identify_sidecar(SidecarReader& reader, const Uuid& array_id);

// Of a file that fold_sidecar() cannot read: whether nothing in it is a sidecar's, so that somebody put it there. Of
// a damaged one something is left (a magic at its place, a head, a trailer; zeros are what a drive gives for what it
// lost), unless all of it was overwritten: that cannot be told apart.
Result<bool> is_no_sidecar(SidecarReader& reader, const Uuid& array_id);

}  // namespace fpfs
