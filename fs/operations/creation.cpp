#include "fs/operations/creation.h"

#include <cerrno>

#include "fs/operations/reply.h"

namespace fpfs {

namespace {

Status give_to_caller(FileSystem& file_system, const fuse_ctx& caller, const Inode& parent, Store::Node& node) {
  const struct stat made = node.attributes;
  gid_t group = caller.gid;
  if (made.st_gid != group) {
    FPFS_ASSIGN_OR_RETURN(const struct stat directory, file_system.storage().fstat(parent.handle));
    if ((directory.st_mode & S_ISGID) != 0) group = made.st_gid;
  }
  if (made.st_uid == caller.uid && made.st_gid == group) return Status::ok();

  FPFS_RETURN_IF_ERROR(file_system.store().chown(node.handle.get(), caller.uid, group));
  // A change of owner takes these bits away, also when root makes it, from all but directories.
  const bool lost_bits = !S_ISDIR(made.st_mode) && (made.st_mode & (S_ISUID | S_ISGID)) != 0;
  if (lost_bits) FPFS_RETURN_IF_ERROR(file_system.store().chmod(node.handle.get(), made.st_mode & 07777));
  FPFS_ASSIGN_OR_RETURN(node.attributes, file_system.store().attributes(node.handle.get()));
  return Status::ok();
}

Result<bool> inherit(FileSystem& file_system, Inode& parent, Store::Node& node) {
  if (!S_ISREG(node.attributes.st_mode) && !S_ISDIR(node.attributes.st_mode)) return false;
  if (parent.settings.is_absent()) return false;
  const unsigned changes = parent.settings.changes();
  FPFS_ASSIGN_OR_RETURN(const bool inherited, file_system.store().inherit_settings(parent.handle, node.handle.get()));
  if (!inherited) {
    parent.settings.note_absent(changes);
    return false;
  }
  FPFS_ASSIGN_OR_RETURN(node.attributes, file_system.store().attributes(node.handle.get()));
  return true;
}

}  // namespace

mode_t creation_mode(FileSystem& file_system, Inode& parent, mode_t mode, mode_t umask) {
  if (parent.default_acl.is_absent()) return mode & ~umask;
  const unsigned changes = parent.default_acl.changes();
  const Result<size_t> size = file_system.storage().get_xattr(parent.handle, kDefaultAcl, {});
  if (size.is_ok()) return mode;
  // A look that failed for another reason says nothing about the next.
  if (size.status().errno_value() == ENODATA) parent.default_acl.note_absent(changes);
  return mode & ~umask;
}

Result<bool> finish_entry(FileSystem& file_system, const fuse_ctx& caller, Inode& parent, Store::Node& node) {
  FPFS_RETURN_IF_ERROR(give_to_caller(file_system, caller, parent, node));
  return inherit(file_system, parent, node);
}

void reply_made(fuse_req_t request, Inode& parent, const char* name, bool is_directory, HandleShares::Lease handles) {
  FileSystem& file_system = file_system_of(request);
  Store& store = file_system.store();
  Result<Store::Node> node = store.lookup(parent.handle, name);
  Status status = node.status();
  if (status.is_ok()) {
    status = finish_entry(file_system, *fuse_req_ctx(request), parent, *node).status();
    if (status.is_ok()) return reply_node(request, std::move(node), std::move(handles));
    node->handle.reset();
  }
  // Nobody has seen it: the kernel holds the directory's lock until the answer.
  store.take_back(parent.handle, name, is_directory);
  reply_status(request, status);
}

}  // namespace fpfs
