#include "engine/file/committed_version.h"

#include <utility>

#include <fmt/format.h>

#include "engine/file/file.h"
#include "engine/index/sidecar_file.h"

namespace fpfs {

CommittedVersion::CommittedVersion(std::shared_ptr<File> file, Storage& storage, Array& array, ChunkIo& io,
                                   std::shared_ptr<const ScopedHandle> sidecar, const SidecarLogState& log,
                                   HeldFrees::Ticket ticket)
    : file_(std::move(file)),
      storage_(storage),
      array_(array),
      io_(io),
      sidecar_(std::move(sidecar)),
      log_(log),
      ticket_(ticket) {}

std::string CommittedVersion::path() const {
  return file_->path();
}

CommittedVersion::~CommittedVersion() {
  file_->let_go(ticket_);
}

Result<FileImage> CommittedVersion::image() const {
  StorageSidecarReader reader(storage_, sidecar_->get(), log_.end);
  FPFS_ASSIGN_OR_RETURN(FileImage image, fold_sidecar(reader, array_.id(), array_.stripes().member_count,
                                                      array_.stripes().chunk_size, nullptr));
  if (image.sequence == log_.sequence) return image;
  return Status::error(StatusCode::kCorruption,
                       fmt::format("{}: the sidecar ends with record {}, record {} was committed", file_->path(),
                                   image.sequence, log_.sequence));
}

std::shared_ptr<ObjectSet> CommittedVersion::objects(const FileImage& image) const {
  return std::make_shared<ObjectSet>(storage_, array_, nullptr, array_.member_count(), image.file_id, image.generation,
                                     true);
}

void CommittedVersion::read(ChunkTransfer& transfer, std::shared_ptr<const void> keep) const {
  if (transfer.extent.is_away()) return file_->read_away(transfer, std::move(keep));
  transfer.kind = IoRequest::Kind::kRead;
  io_.start(transfer);
}

}  // namespace fpfs
