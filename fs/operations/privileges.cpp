#include "fs/operations/privileges.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace fpfs {
namespace {

constexpr const char* kCapability = "security.capability";

// Asks /proc, so only where a set-group-ID bit hangs on it.
bool is_in_group(fuse_req_t request, gid_t group) {
  if (fuse_req_ctx(request)->gid == group) return true;
  std::vector<gid_t> groups(64);
  int count = fuse_req_getgroups(request, static_cast<int>(groups.size()), groups.data());
  if (count > static_cast<int>(groups.size())) {
    groups.resize(static_cast<size_t>(count));
    count = fuse_req_getgroups(request, count, groups.data());
  }
  if (count < 0) return false;  // a caller in another PID namespace
  const auto end = groups.begin() + std::min<ptrdiff_t>(count, static_cast<ptrdiff_t>(groups.size()));
  return std::find(groups.begin(), end, group) != end;
}

Status set_mode(FileSystem& file_system, Inode& inode, mode_t mode) {
  FPFS_RETURN_IF_ERROR(file_system.store().chmod(inode.handle, mode));
  file_system.invalidate_attributes(inode);
  return Status::ok();
}

Status drop_set_id(FileSystem& file_system, fuse_req_t request, Inode& inode) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, file_system.storage().fstat(inode.handle));
  const mode_t mode = attributes.st_mode & 07777;
  mode_t kept = mode & ~static_cast<mode_t>(S_ISUID);
  // Without group execution the bit once meant mandatory locking: the group's members may keep it.
  if ((mode & S_ISGID) != 0 && ((mode & S_IXGRP) != 0 || !is_in_group(request, attributes.st_gid)))
    kept &= ~static_cast<mode_t>(S_ISGID);
  if ((kept & S_ISGID) != 0) inode.may_have_set_id.store(true);
  return kept == mode ? Status::ok() : set_mode(file_system, inode, kept);
}

Status drop_capability(FileSystem& file_system, const Inode& inode) {
  if (!file_system.storage().get_xattr(inode.handle, kCapability, {}).is_ok()) return Status::ok();
  return file_system.store().remove_xattr(inode.handle, kCapability);
}

}  // namespace

bool may_keep_set_id(fuse_req_t request) {
  return fuse_req_ctx(request)->uid == 0;
}

bool owns_mount(fuse_req_t request) {
  const uid_t user = fuse_req_ctx(request)->uid;
  return user == 0 || user == ::geteuid();
}

Status drop_set_group_id(FileSystem& file_system, fuse_req_t request, Inode& inode) {
  if (may_keep_set_id(request)) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, file_system.storage().fstat(inode.handle));
  if ((attributes.st_mode & S_ISGID) == 0 || is_in_group(request, attributes.st_gid)) return Status::ok();
  return set_mode(file_system, inode, attributes.st_mode & 07777 & ~static_cast<mode_t>(S_ISGID));
}

Status drop_privileges(FileSystem& file_system, fuse_req_t request, Inode& inode, bool kill_set_id) {
  // Cleared before looking: a chmod that comes in between sets it again afterwards, so nothing is missed.
  if (kill_set_id && inode.may_have_set_id.load(std::memory_order_relaxed)) {
    inode.may_have_set_id.store(false);
    Status status = drop_set_id(file_system, request, inode);
    if (!status.is_ok()) {
      inode.may_have_set_id.store(true);
      return status;
    }
  }
  if (inode.may_have_capability.load(std::memory_order_relaxed)) {
    inode.may_have_capability.store(false);
    Status status = drop_capability(file_system, inode);
    if (!status.is_ok()) {
      inode.may_have_capability.store(true);
      return status;
    }
  }
  return Status::ok();
}

}  // namespace fpfs
