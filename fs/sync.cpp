// flush (every close of a descriptor), fsync, fsyncdir: where durability is promised and failures are told.
#include "fs/operations.h"
#include "fs/reply.h"

namespace fpfs::operations {
namespace {

void commit_then_reply(fuse_req_t request, const OpenFile& open, ControlRequest::Kind kind) {
  FileSystem::forget_access(*open.inode);  // the commit moves the sidecar's other times
  file_system_of(request).control(open.file, kind, 0, 0,
                                  [request](const Status& status) { reply_status(request, status); });
}

}  // namespace

void flush(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  OpenFile& open = OpenHandles::file(info->fh);
  if (!open.may_write) {
    fuse_reply_err(request, 0);
    return;
  }
  // Here also when another descriptor of the handle is closed (dup, fork), and when pages of a mapping are still to
  // come.
  if (!open.unflushed.exchange(false)) return reply_status(request, open.file->error());
  if (file_system_of(request).settings().durable_at_close)
    return commit_then_reply(request, open, ControlRequest::Kind::kClose);
  open.file->closed_by_writer();
  reply_status(request, open.file->error());
}

// Also with data_only: the size and the extents are what makes data reachable, and they are the whole commit.
void fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) noexcept {
  commit_then_reply(request, OpenHandles::file(info->fh), ControlRequest::Kind::kCommit);
}

void fsyncdir(fuse_req_t request, fuse_ino_t node, int, fuse_file_info*) noexcept {
  FileSystem& file_system = file_system_of(request);
  file_system.run_in_background([request, node] {
    FileSystem& owner = file_system_of(request);
    reply_status(request, owner.store().sync_directory(owner.inodes().get(node).handle));
  });
}

}  // namespace fpfs::operations
