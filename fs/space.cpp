// fallocate and lseek: the holes of a file. Space is not reserved: chunks get their place when they are written, so
// fallocate checks that there is room and sets the size.
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <cerrno>

#include "fs/operations.h"
#include "fs/privileges.h"
#include "fs/reply.h"

namespace fpfs::operations {
namespace {

// What the file would need beyond its size must be free now.
Status check_room(FileSystem& file_system, const File& file, uint64_t end) {
  const uint64_t size = file.size();
  if (end <= size) return Status::ok();
  for (bool again : {true, false}) {
    FPFS_ASSIGN_OR_RETURN(const struct statvfs space, file_system.store().space());
    const uint64_t available = space.f_bavail * space.f_frsize;
    if (end - size <= available) return Status::ok();
    if (again && file_system.store().finish_frees()) continue;
    return Status::error(StatusCode::kNoSpace,
                         "fallocate of " + format_size(end - size) + " with " + format_size(available) + " free");
  }
  return Status::ok();
}

void extend_then_reply(fuse_req_t request, const std::shared_ptr<File>& file, uint64_t end) {
  if (end <= file->size()) {
    fuse_reply_err(request, 0);
    return;
  }
  file_system_of(request).control(file, ControlRequest::Kind::kTruncate, end, 0,
                                  [request](const Status& status) { reply_status(request, status); });
}

void punch(fuse_req_t request, const std::shared_ptr<File>& file, uint64_t offset, uint64_t length, bool extend) {
  auto punched = [request, file, end = offset + length, extend](const Status& status) {
    if (!status.is_ok() || !extend) return reply_status(request, status);
    extend_then_reply(request, file, end);
  };
  file_system_of(request).control(file, ControlRequest::Kind::kPunchHole, offset, length, std::move(punched));
}

}  // namespace

void fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length,
               fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  OpenFile& open = OpenHandles::file(info->fh);
  open.changes.fetch_add(1);
  const std::shared_ptr<File>& file = open.file;
  const auto begin = static_cast<uint64_t>(offset);
  const auto count = static_cast<uint64_t>(length);
  const bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  const int kind = mode & ~FALLOC_FL_KEEP_SIZE;
  if (kind != 0 && kind != FALLOC_FL_ZERO_RANGE && !(kind == FALLOC_FL_PUNCH_HOLE && keep_size)) {
    fuse_reply_err(request, EOPNOTSUPP);
    return;
  }
  Status status = drop_privileges(file_system, request, file_system.inodes().get(node), !may_keep_set_id(request));
  if (status.is_ok() && kind != FALLOC_FL_PUNCH_HOLE) status = check_room(file_system, *file, begin + count);
  if (!status.is_ok()) return reply_status(request, status);
  if (kind != 0) return punch(request, file, begin, count, !keep_size);
  if (keep_size) {
    fuse_reply_err(request, 0);
    return;
  }
  extend_then_reply(request, file, begin + count);
}

void lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) noexcept {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  Result<uint64_t> found = OpenHandles::file(info->fh).file->seek(static_cast<uint64_t>(offset), whence == SEEK_HOLE);
  if (!found.is_ok()) return reply_status(request, found.status());
  fuse_reply_lseek(request, static_cast<off_t>(*found));
}

}  // namespace fpfs::operations
