// mknod, symlink, readlink, link, unlink, rename: names in directories. The filesystem under tree/ makes each atomic.
#include <fcntl.h>

#include <cerrno>
#include <cstdio>

#include "fs/creation.h"
#include "fs/operations.h"
#include "fs/reply.h"

namespace fpfs::operations {
namespace {

// An empty regular file made by mknod(2): there is no close, so the name is committed here.
void make_file(fuse_req_t request, const Inode& parent, const char* name, mode_t mode) {
  FileSystem& file_system = file_system_of(request);
  Result<Store::Created> created = file_system.store().create(parent.handle, name, mode);
  if (!created.is_ok()) return reply_status(request, created.status());
  file_system.storage().close(created->node.handle);
  if (!file_system.settings().durable_at_close) {
    created->file->closed_by_writer();
    return reply_made(request, parent, name, false);
  }
  auto committed = [request, &parent, text = std::string(name)](const Status& status) {
    if (!status.is_ok()) return reply_status(request, status);
    reply_made(request, parent, text.c_str(), false);
  };
  file_system.control(std::move(created->file), ControlRequest::Kind::kCommit, 0, 0, std::move(committed));
}

}  // namespace

void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  const mode_t permissions = creation_mode(file_system, directory, mode & 07777, fuse_req_ctx(request)->umask);
  if (S_ISREG(mode)) return make_file(request, directory, name, permissions);
  Status status = file_system.store().make_node(directory.handle, name, (mode & S_IFMT) | permissions, device);
  if (!status.is_ok()) return reply_status(request, status);
  reply_made(request, directory, name, false);
}

void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) noexcept {
  FileSystem& file_system = file_system_of(request);
  const Inode& directory = file_system.inodes().get(parent);
  Status status = file_system.store().symlink(target, directory.handle, name);
  if (!status.is_ok()) return reply_status(request, status);
  reply_made(request, directory, name, false);
}

void readlink(fuse_req_t request, fuse_ino_t node) noexcept {
  FileSystem& file_system = file_system_of(request);
  Result<std::string> target = file_system.storage().read_link(file_system.inodes().get(node).handle);
  if (!target.is_ok()) return reply_status(request, target.status());
  fuse_reply_readlink(request, target->c_str());
}

void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) noexcept {
  FileSystem& file_system = file_system_of(request);
  const Inode& directory = file_system.inodes().get(new_parent);
  Inode& inode = file_system.inodes().get(node);
  FileSystem::note_change(inode);
  Status status = file_system.store().link(inode.handle, directory.handle, new_name);
  if (!status.is_ok()) return reply_status(request, status);
  file_system.inodes().keep(inode.number, nullptr);
  reply_node(request, file_system.store().lookup(directory.handle, new_name));
}

void unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  FileSystem& file_system = file_system_of(request);
  reply_status(request, file_system.store().unlink(file_system.inodes().get(parent).handle, name));
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
            unsigned flags) noexcept {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  InodeTable& inodes = file_system.inodes();
  // Answered later when uncommitted content is about to replace committed content: that waits for its commit.
  file_system.store().rename_async(inodes.get(parent).handle, name, inodes.get(new_parent).handle, new_name, flags,
                                   [request](const Status& status) { reply_status(request, status); });
}

}  // namespace fpfs::operations
