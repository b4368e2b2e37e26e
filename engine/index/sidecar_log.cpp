#include "engine/index/sidecar_log.h"

#include <algorithm>

namespace fpfs::sidecar {

Result<std::span<const std::byte>> SidecarLog::view(uint64_t offset, uint64_t length) {
  if (offset >= size()) return std::span<const std::byte>();
  length = std::min(length, size() - offset);
  const bool inside = offset >= window_offset_ && offset + length <= window_offset_ + window_.size();
  if (!inside) {
    const uint64_t wanted = std::min(std::max(length, kWindowSize), size() - offset);
    window_.resize(wanted);
    window_offset_ = offset;
    Result<size_t> got = reader_.read(offset, window_);
    window_.resize(got.is_ok() ? std::min<uint64_t>(*got, wanted) : 0);
    if (!got.is_ok()) return got.status();
    length = std::min<uint64_t>(length, window_.size());
  }
  return std::span<const std::byte>(window_).subspan(offset - window_offset_, length);
}

Result<std::optional<RecordHead>> SidecarLog::head_at(uint64_t offset) {
  FPFS_ASSIGN_OR_RETURN(const auto bytes, view(offset, kHeadSize));
  return decode_head(bytes, array_id_, offset);
}

Result<std::span<const std::byte>> SidecarLog::record_at(uint64_t offset, const RecordHead& head) {
  if (head.length > size() - offset) return std::span<const std::byte>();
  // Every byte of a record was written, and a long one has no long stretch of zeros. So before memory is taken for it,
  // each window of it must hold data: a length made of holes is not believed.
  const uint64_t end = offset + head.length;
  for (uint64_t at = offset; head.length > kWindowSize && at < end; at += kWindowSize) {
    FPFS_ASSIGN_OR_RETURN(const uint64_t data, reader_.next_data(at));
    if (data >= std::min(at + kWindowSize, end)) return std::span<const std::byte>();
  }
  FPFS_ASSIGN_OR_RETURN(const auto bytes, view(offset, head.length));
  return record_is_whole(bytes, head, array_id_, offset) ? bytes : std::span<const std::byte>();
}

Result<std::optional<Trailer>> SidecarLog::last_trailer() {
  if (size() < kSidecarHeaderSize + kHeadSize + kSidecarTrailerSize) return std::optional<Trailer>();
  FPFS_ASSIGN_OR_RETURN(const auto bytes, view(size() - kSidecarTrailerSize, kSidecarTrailerSize));
  return decode_trailer(bytes, size());
}

Result<std::optional<SidecarLog::Found>> SidecarLog::find_head(uint64_t from) {
  uint64_t offset = round_up(from, kRecordAlignment);
  while (offset < size() && size() - offset >= kHeadSize) {
    FPFS_ASSIGN_OR_RETURN(const uint64_t data, reader_.next_data(offset));
    // A head may start in a hole's last bytes only if its magic is there; the magic is not zeros.
    offset = std::max(offset, round_down(data, kRecordAlignment));
    const uint64_t stop = std::min(size(), offset + kWindowSize);
    for (; offset < stop; offset += kRecordAlignment) {
      FPFS_ASSIGN_OR_RETURN(const auto magic, view(offset, 8));
      if (magic.size() < 8) return std::optional<Found>();
      if (get_u64(magic.data()) != kHeadMagic) continue;
      FPFS_ASSIGN_OR_RETURN(const auto head, head_at(offset));
      if (head) return std::optional<Found>({offset, *head});
    }
  }
  return std::optional<Found>();
}

Result<std::optional<SidecarLog::Found>> SidecarLog::find_newest_snapshot(FileId file_id) {
  std::optional<Found> newest;
  for (uint64_t offset = kSnapshotAlignment; offset < size(); offset += kSnapshotAlignment) {
    FPFS_ASSIGN_OR_RETURN(const uint64_t data, reader_.next_data(offset));
    offset = std::max(offset, round_down(data, kSnapshotAlignment));
    FPFS_ASSIGN_OR_RETURN(const auto head, head_at(offset));
    if (!head || !head->is_snapshot() || head->file_id != file_id) continue;
    FPFS_ASSIGN_OR_RETURN(const auto bytes, record_at(offset, *head));
    if (!bytes.empty() && (!newest || head->sequence > newest->head.sequence)) newest = Found{offset, *head};
  }
  return newest;
}

}  // namespace fpfs::sidecar
