// A sidecar is appended to by one write at a time, and the next one starts only after the one before was synced. Before
// anything is appended behind a torn tail, the tail is cut off and the cut is synced, so an append always lands on
// nothing. A power cut during an append therefore leaves the file before it as it was, and behind that a part of what
// was written: the file may be too short, and any 512-byte sector may be missing, which reads as zeros.
//
// Everything else is damage to what a commit had acknowledged and must not be rolled back in silence:
// - a valid head further on (or a trailer at the end of the file that belongs to one): the append at `end` had been
//   synced when that one started;
// - a record whose sectors are all there, which head or trailer tells by the number of zero sectors that it was written
//   with, and which nevertheless does not verify.
// What cannot be told apart: damage that makes whole sectors of the last record zeros, and a power cut.

#include "engine/index/sidecar_tail.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpfs::sidecar {

namespace {

Status damaged(SidecarOffset offset, const std::string& why) {
  return Status::error(StatusCode::kCorruption, fmt::format("the record at offset {} is damaged: {}", offset, why));
}

Result<bool> is_zero(SidecarLog& log, SidecarOffset begin, SidecarOffset end) {
  FPFS_ASSIGN_OR_RETURN(const auto bytes, log.view(begin, end - begin));
  return all_zero(bytes);
}

// True when a sector of the record [begin, end) was never written: more of its sectors, counting the parts of sectors
// at both ends (which hold magic and checksum, so are never zeros), are zeros than it was written with.
Result<bool> misses_a_sector(SidecarLog& log, SidecarOffset begin, SidecarOffset end, uint64_t written_zero_sectors) {
  uint64_t zero_sectors = 0;
  for (SidecarOffset at = begin; at < end;) {
    const SidecarOffset next = std::min(end, round_down(at, kSectorSize) + kSectorSize);
    FPFS_ASSIGN_OR_RETURN(const bool zero, is_zero(log, at, next));
    if (zero && ++zero_sectors > written_zero_sectors) return true;  // however long the record says it is
    at = next;
  }
  return false;
}

Status judge_record(SidecarLog& log, SidecarOffset begin, SidecarOffset end, uint64_t written_zero_sectors) {
  FPFS_ASSIGN_OR_RETURN(const bool torn, misses_a_sector(log, begin, end, written_zero_sectors));
  return torn ? Status::ok() : damaged(begin, "every sector of it was written, yet it does not verify");
}

// Neither head nor trailer is there to tell how long the record is. Torn when a sector of its head is missing.
Status judge_headless(SidecarLog& log, SidecarOffset begin) {
  if (log.end() - begin < kHeadSize) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const bool torn, misses_a_sector(log, begin, begin + kHeadSize, 0));
  return torn ? Status::ok() : damaged(begin, "its head was written, yet does not verify");
}

}  // namespace

Status judge_tail(SidecarLog& log, FileId file_id, SidecarOffset end, const std::optional<Trailer>& last_trailer) {
  // A snapshot starts at the next multiple of kSnapshotAlignment, behind zeros; another record at once.
  const SidecarOffset aligned = round_up(end, kSnapshotAlignment);
  FPFS_ASSIGN_OR_RETURN(const bool gap_is_zero, is_zero(log, end, aligned));
  const SidecarOffset start = gap_is_zero ? aligned : end;
  if (start >= log.end()) return Status::ok();

  if (last_trailer && last_trailer->summary.file_id == file_id) {
    const SidecarOffset offset = last_trailer->summary.record_offset;
    if (offset != end && offset != start)
      return damaged(end, fmt::format("the file ends with the trailer of a later record at offset {}", offset));
    return judge_record(log, offset, log.end(), last_trailer->zero_sectors);
  }

  for (SidecarOffset from = end;;) {
    FPFS_ASSIGN_OR_RETURN(const auto found, log.find_head(from));
    if (!found) break;
    if (found->offset != start && found->head.file_id == file_id)
      return damaged(end, fmt::format("record {} follows at offset {}", found->head.sequence, found->offset));
    from = found->offset + kRecordAlignment;
  }
  FPFS_ASSIGN_OR_RETURN(const auto head, log.head_at(start));
  if (!head || head->file_id != file_id) {
    // With the gap zeros, this may also be a common record that lost its first sectors.
    return start == end ? judge_headless(log, start) : Status::ok();
  }
  if (head->length > log.end() - start) return Status::ok();
  if (head->length < log.end() - start)
    return damaged(start, fmt::format("it ends at offset {}, but the file goes on", start + head->length));
  return judge_record(log, start, log.end(), head->zero_sectors);
}

Status judge_header(SidecarLog& log, const Status& failure, const std::optional<Trailer>& last_trailer) {
  if (log.end() < kFirstRecord) {
    // The beginning of a header, or sectors that are missing. Whatever else there is was not written here.
    FPFS_ASSIGN_OR_RETURN(const auto bytes, log.view(SidecarOffset(0), sizeof(kHeaderMagic)));
    return all_zero(bytes) || begins_with(bytes, kHeaderMagic) ? Status::ok() : failure;
  }
  FPFS_ASSIGN_OR_RETURN(const bool first_sector_missing, is_zero(log, SidecarOffset(0), SidecarOffset(kSectorSize)));
  if (!first_sector_missing) return failure;
  if (last_trailer && last_trailer->summary.sequence > 1)
    return failure.with_context(
        fmt::format("the file ends with the trailer of record {}", last_trailer->summary.sequence));
  for (SidecarOffset from = kFirstRecord;;) {
    FPFS_ASSIGN_OR_RETURN(const auto found, log.find_head(from));
    if (!found) return Status::ok();
    if (found->head.sequence > 1)
      return failure.with_context(fmt::format("record {} is at offset {}", found->head.sequence, found->offset));
    from = found->offset + kRecordAlignment;
  }
}

}  // namespace fpfs::sidecar
