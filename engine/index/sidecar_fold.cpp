#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/index/sidecar_tail.h"

namespace fpfs {

using namespace sidecar;

namespace {

// Applies records one after the other to a FileImage.
class Folder {
 public:
  Folder(SidecarLog& log, const SidecarHeader& header, uint16_t member_count)
      : log_(log), header_(header), member_count_(member_count) {}

  // Folds the records from `start` on (just behind the header, or a snapshot) into a new image, up to the first place
  // where no whole record follows.
  Status fold_from(SidecarOffset start);
  FileImage& image() { return image_; }

 private:
  // Folds the record at `offset`; false when there is no whole one.
  Result<bool> fold_record(SidecarOffset offset);
  void apply(SidecarRecord& record, SidecarOffset offset);

  SidecarLog& log_;
  const SidecarHeader& header_;
  const uint16_t member_count_;
  FileImage image_;
};

Status Folder::fold_from(SidecarOffset start) {
  image_ = FileImage();
  image_.file_id = header_.file_id;
  image_.end = start;
  while (image_.end < log_.end()) {
    FPFS_ASSIGN_OR_RETURN(bool folded, fold_record(image_.end));
    if (!folded) {
      // Behind a gap of zeros there may be a snapshot.
      const SidecarOffset aligned = round_up(image_.end, kSnapshotAlignment);
      FPFS_ASSIGN_OR_RETURN(const auto gap, log_.view(image_.end, aligned - image_.end));
      if (aligned == image_.end || !all_zero(gap)) break;
      FPFS_ASSIGN_OR_RETURN(const auto head, log_.head_at(aligned));
      if (!head || !head->is_snapshot()) break;
      FPFS_ASSIGN_OR_RETURN(folded, fold_record(aligned));
      if (!folded) break;
    }
  }
  return Status::ok();
}

Result<bool> Folder::fold_record(SidecarOffset offset) {
  FPFS_ASSIGN_OR_RETURN(const auto head, log_.head_at(offset));
  if (!head || head->file_id != header_.file_id) return false;
  FPFS_ASSIGN_OR_RETURN(const auto bytes, log_.record_at(offset, *head));
  if (bytes.empty()) return false;

  // The bytes are what a writer wrote. What they say must make sense; if not, this is no torn tail.
  const auto place = [&](const Status& status) {
    return status.with_context(fmt::format("sidecar record {} at offset {}", head->sequence, offset));
  };
  Result<SidecarRecord> record = decode_record(bytes, *head, member_count_, header_.chunk_size);
  if (!record.is_ok()) return place(record.status());
  const bool starts_anywhere = image_.sequence == 0 && head->is_snapshot();
  if (!starts_anywhere && head->sequence != image_.sequence + 1)
    return place(Status::error(StatusCode::kCorruption, fmt::format("it follows record {}", image_.sequence)));
  const std::optional<Trailer> trailer = decode_trailer(bytes.last(kSidecarTrailerSize), offset + head->length);
  apply(*record, offset);
  if (trailer->summary.snapshot_offset != image_.snapshot_offset)
    return place(Status::error(StatusCode::kCorruption,
                               fmt::format("it names the snapshot at offset {}, the newest one is at {}",
                                           trailer->summary.snapshot_offset, image_.snapshot_offset)));
  image_.end = offset + head->length;
  return true;
}

void Folder::apply(SidecarRecord& record, SidecarOffset offset) {
  if (record.snapshot) image_.snapshot_offset = offset;
  // Inline content replaces everything, and nothing of another generation remains.
  if (record.snapshot || record.has_inline || record.generation != image_.generation) image_.extents.clear();
  if (record.truncate_from) image_.extents.remove_from(*record.truncate_from, nullptr);
  for (const auto& [chunk, extent] : record.extents) image_.extents.set(chunk, extent);
  image_.is_inline = record.has_inline;
  image_.inline_data = std::move(record.inline_data);
  image_.record_offset = offset;
  image_.generation = record.generation;
  image_.sequence = record.sequence;
  image_.size = record.size;
}

Status check_header(const SidecarHeader& header, const Uuid& expected_array, uint32_t chunk_size) {
  if (header.array_id != expected_array)
    return Status::error(StatusCode::kCorruption,
                         fmt::format("sidecar of another array: it belongs to {}, this one is {}",
                                     to_string(header.array_id), to_string(expected_array)));
  if (header.chunk_size != chunk_size)
    return Status::error(StatusCode::kCorruption, fmt::format("sidecar header: chunk size {}, but the array's is {}",
                                                              header.chunk_size, chunk_size));
  return Status::ok();
}

void finish(const SidecarLog& log, FileImage& image, SidecarFindings* findings) {
  if (image.sequence == 0) image = FileImage();  // no commit took place: the next one starts with a header again
  if (image.end < log.end() && findings != nullptr) {
    findings->torn_tail = true;
    findings->torn_bytes = log.end() - image.end;
  }
  image.live_bytes = kSidecarHeaderSize + kHeadSize + kSidecarTrailerSize + image.inline_data.size() +
                     image.extents.count() * kExtentSize;
}

// What is read from drives is an error value, also when there is too much of it.
template <typename Run>
auto within_memory(Run run) -> decltype(run()) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return Status::from_errno(ENOMEM, "read a sidecar");
}

Result<FileImage> fold(SidecarReader& reader, const Uuid& expected_array, uint16_t member_count, uint32_t chunk_size,
                       SidecarFindings* findings) {
  if (findings != nullptr) *findings = SidecarFindings();
  FileImage empty;
  if (reader.end() == SidecarOffset(0)) return empty;

  SidecarLog log(reader, expected_array);
  FPFS_ASSIGN_OR_RETURN(const auto header_bytes, log.view(SidecarOffset(0), kSidecarHeaderSize));
  const Result<SidecarHeader> header = decode_sidecar_header(header_bytes);
  FPFS_ASSIGN_OR_RETURN(const auto last_trailer, log.last_trailer());
  if (!header.is_ok()) {
    if (header.status().code() != StatusCode::kCorruption) return header.status();
    FPFS_RETURN_IF_ERROR(judge_header(log, header.status(), last_trailer));
    finish(log, empty, findings);
    return empty;
  }
  FPFS_RETURN_IF_ERROR(check_header(*header, expected_array, chunk_size));

  Folder folder(log, *header, member_count);
  // The trailer says where to start. When nothing is wrong, the records from there on end where the file ends.
  if (last_trailer && last_trailer->summary.file_id == header->file_id) {
    const SidecarOffset snapshot = last_trailer->summary.snapshot_offset;
    FPFS_RETURN_IF_ERROR(folder.fold_from(std::max(snapshot, kFirstRecord)));
    if (folder.image().end == log.end()) {
      finish(log, folder.image(), findings);
      return std::move(folder.image());
    }
  }
  // Otherwise search, and judge what is left over.
  FPFS_ASSIGN_OR_RETURN(const auto snapshot, log.find_newest_snapshot(header->file_id));
  FPFS_RETURN_IF_ERROR(folder.fold_from(snapshot ? snapshot->offset : kFirstRecord));
  if (folder.image().end < log.end())
    FPFS_RETURN_IF_ERROR(judge_tail(log, header->file_id, folder.image().end, last_trailer));
  finish(log, folder.image(), findings);
  return std::move(folder.image());
}

Result<std::optional<FileId>> identify(SidecarReader& reader, const Uuid& array_id) {
  SidecarLog log(reader, array_id);
  std::vector<FileId> claims;
  FPFS_ASSIGN_OR_RETURN(const auto header_bytes, log.view(SidecarOffset(0), kSidecarHeaderSize));
  const Result<SidecarHeader> header = decode_sidecar_header(header_bytes);
  if (header.is_ok() && header->array_id == array_id) claims.push_back(header->file_id);
  FPFS_ASSIGN_OR_RETURN(const auto trailer, log.last_trailer());
  if (trailer) claims.push_back(trailer->summary.file_id);
  for (SidecarOffset from = kFirstRecord;;) {
    FPFS_ASSIGN_OR_RETURN(const auto found, log.find_head(from));
    if (!found) break;
    claims.push_back(found->head.file_id);
    from = found->offset + kRecordAlignment;
  }
  if (claims.empty() || std::count(claims.begin(), claims.end(), claims[0]) != std::ssize(claims))
    return std::optional<FileId>();
  return std::optional<FileId>(claims[0]);
}

Result<bool> has_no_mark(SidecarReader& reader, const Uuid& array_id) {
  SidecarLog log(reader, array_id);
  FPFS_ASSIGN_OR_RETURN(const auto begin, log.view(SidecarOffset(0), kSidecarHeaderSize + sizeof(kHeadMagic)));
  const size_t first_record = std::min<size_t>(kSidecarHeaderSize, begin.size());
  if (all_zero(begin) || begins_with(begin, kHeaderMagic) || begins_with(begin.subspan(first_record), kHeadMagic))
    return false;
  FPFS_ASSIGN_OR_RETURN(const auto trailer, log.last_trailer());
  FPFS_ASSIGN_OR_RETURN(const auto head, log.find_head(kFirstRecord));
  return !trailer && !head;
}

}  // namespace

Result<FileImage> fold_sidecar(SidecarReader& reader, const Uuid& expected_array, uint16_t member_count,
                               uint32_t chunk_size, SidecarFindings* findings) {
  return within_memory([&] { return fold(reader, expected_array, member_count, chunk_size, findings); });
}

static_assert(kInlineRecordMax == kHeadSize + kInlineSizeMax + kSidecarTrailerSize);

Result<uint32_t> read_inline(SidecarReader& reader, const Uuid& array_id, FileId file_id, const RecordPlace& place,
                             std::span<std::byte> buffer) {
  const uint64_t length = place.end - place.offset;
  FPFS_CHECK(length <= kInlineRecordMax && length <= buffer.size(), "a record with inline content, and room for it");
  const std::span<std::byte> bytes = buffer.first(length);
  FPFS_ASSIGN_OR_RETURN(const size_t got, reader.read(place.offset, bytes));
  const std::optional<RecordHead> head = decode_head(bytes.first(got), array_id, place.offset);
  if (got != length || !head || head->file_id != file_id || !head->is_inline() ||
      !record_is_whole(bytes, *head, array_id, place.offset))
    return Status::error(StatusCode::kCorruption,
                         fmt::format("the sidecar record at offset {} is not what was written", place.offset));
  std::memmove(bytes.data(), &bytes[kHeadSize], head->inline_length);
  return head->inline_length;
}

Status damaged_tail(SidecarOffset end, const SidecarFindings& findings) {
  return Status::error(StatusCode::kCorruption,
                       fmt::format("the {} bytes behind offset {} of the sidecar are no whole record, and nobody was "
                                   "writing it when the array ended: it was cut short or damaged",
                                   findings.torn_bytes, end));
}

Result<std::optional<FileId>> identify_sidecar(SidecarReader& reader, const Uuid& array_id) {
  return within_memory([&] { return identify(reader, array_id); });
}

Result<bool> is_no_sidecar(SidecarReader& reader, const Uuid& array_id) {
  return within_memory([&] { return has_no_mark(reader, array_id); });
}

}  // namespace fpfs
