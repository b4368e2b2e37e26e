#include "engine/index/sidecar_log.h"

#include <algorithm>

namespace fpfs::sidecar {

Result<std::span<const std::byte>> SidecarLog::view(SidecarOffset offset, uint64_t length) {
  if (offset >= end()) return std::span<const std::byte>();
  length = std::min(length, end() - offset);
  const bool inside = offset >= window_offset_ && offset + length <= window_offset_ + window_.size();
  if (!inside) {
    const uint64_t wanted = std::min(std::max(length, kWindowSize), end() - offset);
    window_.resize(wanted);
    window_offset_ = offset;
    Result<size_t> got = reader_.read(offset, window_);
    window_.resize(got.is_ok() ? std::min<uint64_t>(*got, wanted) : 0);
    if (!got.is_ok()) return got.status();
    length = std::min<uint64_t>(length, window_.size());
  }
  return std::span<const std::byte>(window_).subspan(offset - window_offset_, length);
}

Result<std::optional<RecordHead>> SidecarLog::head_at(SidecarOffset offset) {
  FPFS_ASSIGN_OR_RETURN(const auto bytes, view(offset, kHeadSize));
  return decode_head(bytes, array_id_, offset);
}

Result<std::span<const std::byte>> SidecarLog::record_at(SidecarOffset offset, const RecordHead& head) {
  if (head.length > end() - offset) return std::span<const std::byte>();
  // Every byte of a record was written, and a long one has no long stretch of zeros. So before memory is taken for it,
  // each window of it must hold data: a length made of holes is not believed.
  const SidecarOffset stop = offset + head.length;
  for (SidecarOffset at = offset; head.length > kWindowSize && at < stop; at += kWindowSize) {
    FPFS_ASSIGN_OR_RETURN(const SidecarOffset data, reader_.next_data(at));
    if (data >= std::min(at + kWindowSize, stop)) return std::span<const std::byte>();
  }
  FPFS_ASSIGN_OR_RETURN(const auto bytes, view(offset, head.length));
  return record_is_whole(bytes, head, array_id_, offset) ? bytes : std::span<const std::byte>();
}

Result<std::optional<Trailer>> SidecarLog::last_trailer() {
  if (end() < kFirstRecord + kHeadSize + kSidecarTrailerSize) return std::optional<Trailer>();
  FPFS_ASSIGN_OR_RETURN(const auto bytes, view(end() - kSidecarTrailerSize, kSidecarTrailerSize));
  return decode_trailer(bytes, end());
}

Result<std::optional<SidecarLog::Found>> SidecarLog::find_head(SidecarOffset from) {
  SidecarOffset offset = round_up(from, kRecordAlignment);
  while (offset < end() && end() - offset >= kHeadSize) {
    FPFS_ASSIGN_OR_RETURN(const SidecarOffset data, reader_.next_data(offset));
    // A head may start in a hole's last bytes only if its magic is there; the magic is not zeros.
    offset = std::max(offset, round_down(data, kRecordAlignment));
    const SidecarOffset stop = std::min(end(), offset + kWindowSize);
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
  for (SidecarOffset offset(kSnapshotAlignment); offset < end(); offset += kSnapshotAlignment) {
    FPFS_ASSIGN_OR_RETURN(const SidecarOffset data, reader_.next_data(offset));
    offset = std::max(offset, round_down(data, kSnapshotAlignment));
    FPFS_ASSIGN_OR_RETURN(const auto head, head_at(offset));
    if (!head || !head->is_snapshot() || head->file_id != file_id) continue;
    FPFS_ASSIGN_OR_RETURN(const auto bytes, record_at(offset, *head));
    if (!bytes.empty() && (!newest || head->sequence > newest->head.sequence)) newest = Found{offset, *head};
  }
  return newest;
}

}  // namespace fpfs::sidecar
