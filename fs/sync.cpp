// flush (every close of a descriptor), fsync, fsyncdir: where durability is promised and failures are told.
#include "fs/operations.h"
#include "fs/reply.h"

namespace fpfs::operations {
void flush(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  OpenFile& open = OpenHandles::file(info->fh);
  if (!open.may_write) {
    fuse_reply_err(request, 0);
    return;
  }
  // Also called when another descriptor of the handle is closed (dup, fork), maybe at the same time: each waits until
  // what it covers is durable. Pages of a mapping may still come; see release.
  if (!open.has_unflushed()) return reply_status(request, open.file->error());
  const uint64_t covered = open.changes.load();
  if (!file_system_of(request).settings().durable_at_close) {
    open.file->closed_by_writer();
    open.flushed.store(covered);
    return reply_status(request, open.file->error());
  }
  FileSystem::note_change(*open.inode);
  file_system_of(request).control(open.file, ControlRequest::Kind::kClose, 0, 0,
                                  [request, &open, covered](const Status& status) {
                                    if (status.is_ok()) open.flushed.store(covered);
                                    reply_status(request, status);
                                  });
}

// Also with data_only: the size and the extents are what makes data reachable, and they are the whole commit.
void fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) noexcept {
  const OpenFile& open = OpenHandles::file(info->fh);
  FileSystem::note_change(*open.inode);  // the commit moves the sidecar's other times
  file_system_of(request).control(open.file, ControlRequest::Kind::kCommit, 0, 0,
                                  [request](const Status& status) { reply_status(request, status); });
}

void fsyncdir(fuse_req_t request, fuse_ino_t node, int, fuse_file_info*) noexcept {
  FileSystem& file_system = file_system_of(request);
  file_system.run_in_background([request, node] {
    FileSystem& owner = file_system_of(request);
    reply_status(request, owner.store().sync_directory(owner.inodes().get(node).handle));
  });
}

}  // namespace fpfs::operations
