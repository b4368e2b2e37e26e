#include "engine/index/sidecar_writer.h"

#include <vector>

namespace fpfs {

namespace {
// A sidecar is compacted when its log exceeds this many bytes plus kLogFactor times what is live.
constexpr uint64_t kLogSlack = 64 * kKiB;
constexpr uint64_t kLogFactor = 4;
}  // namespace

bool SidecarLogState::is_long(uint64_t live_bytes) const {
  return sequence > 0 && end - snapshot_offset > kLogSlack + kLogFactor * live_bytes;
}

SidecarWriter::Outcome SidecarWriter::append(SidecarRecord& record, bool may_be_unsynced,
                                             const std::function<bool()>& make_room) {
  record.sequence = log_.sequence + 1;
  std::vector<std::byte>& bytes = bytes_;
  if (log_.end == SidecarOffset(0)) bytes = encode_sidecar_header(header_);
  const SidecarOffset record_offset =
      encode_sidecar_record(header_, record, log_.end + bytes.size(), log_.snapshot_offset, bytes);
  record.inline_data = {};
  record.extents = {};
  FPFS_ASSIGN_OR_RETURN(before_, storage_.fstat(sidecar_));
  FPFS_RETURN_IF_ERROR(secure_end(may_be_unsynced));
  Status written = storage_.pwrite(sidecar_, bytes, log_.end.value());
  if (written.code() == StatusCode::kNoSpace && make_room())
    written = storage_.pwrite(sidecar_, bytes, log_.end.value());
  if (!written.is_ok()) {
    FPFS_RETURN_IF_ERROR(cut().with_context(written.message()));
    return written.code() == StatusCode::kNoSpace ? Outcome::unchanged(written) : Outcome(written);
  }
  place_ = {record_offset, log_.end + bytes.size()};
  log_.sequence = record.sequence;
  log_.end = place_.end;
  if (record.snapshot) log_.snapshot_offset = record_offset;
  return {};
}

Status SidecarWriter::secure_end(bool may_be_unsynced) {
  if (SidecarOffset(static_cast<uint64_t>(before_.st_size)) > log_.end) return cut();
  return may_be_unsynced && log_.end > SidecarOffset(0) ? storage_.fdatasync(sidecar_) : Status::ok();
}

Status SidecarWriter::cut() {
  FPFS_RETURN_IF_ERROR(storage_.ftruncate(sidecar_, log_.end.value()));
  return storage_.fdatasync(sidecar_);
}

}  // namespace fpfs
