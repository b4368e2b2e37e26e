#include "fs/privileges.h"

#include <cerrno>

namespace fpfs {
namespace {

constexpr const char* kCapability = "security.capability";

Status drop_set_id(FileSystem& file_system, const Inode& inode) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, file_system.storage().fstat(inode.handle));
  const mode_t mode = attributes.st_mode & 07777;
  mode_t kept = mode & ~static_cast<mode_t>(S_ISUID);
  // Without group execution the bit means something else (mandatory locking, once) and stays.
  if ((mode & S_IXGRP) != 0) kept &= ~static_cast<mode_t>(S_ISGID);
  if (kept == mode) return Status::ok();
  FPFS_RETURN_IF_ERROR(file_system.store().chmod(inode.handle, kept));
  file_system.invalidate_attributes(inode);
  return Status::ok();
}

Status drop_capability(FileSystem& file_system, const Inode& inode) {
  if (!file_system.storage().get_xattr(inode.handle, kCapability, {}).is_ok()) return Status::ok();
  return file_system.storage().remove_xattr(inode.handle, kCapability);
}

}  // namespace

Status drop_privileges(FileSystem& file_system, Inode& inode, bool kill_set_id) {
  // Cleared before looking: a chmod that comes in between sets it again afterwards, so nothing is missed.
  if (kill_set_id && inode.may_have_set_id.load(std::memory_order_relaxed)) {
    inode.may_have_set_id.store(false);
    Status status = drop_set_id(file_system, inode);
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
