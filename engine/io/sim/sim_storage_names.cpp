// Handles, names and attributes of SimStorage: the kernel's, while there is power.
#include <fcntl.h>

#include "engine/io/sim/sim_storage.h"

namespace fpfs {

Result<Handle> SimStorage::open_directory(const std::string& path) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  return kernel_.open_directory(path);
}

Result<Handle> SimStorage::open_at(Handle directory, const std::string& name, int flags, mode_t mode) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  FPFS_RETURN_IF_ERROR(fault_of(changes ? SimFault::Call::kName : SimFault::Call::kLook, directory, "open in"));
  if (!changes) return kernel_.open_at(directory, name, flags, mode);
  if (!begin("create", directory, name)) return power_off();
  Result<Handle> opened = kernel_.open_at(directory, name, flags, mode);
  if (!off_ || !opened.is_ok()) return opened;
  kernel_.close(*opened);
  return power_off();
}

Result<Handle> SimStorage::reopen(Handle handle, int flags) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "open again"));
  return kernel_.reopen(handle, flags);
}

Result<Handle> SimStorage::duplicate(Handle handle) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "duplicate"));
  return kernel_.duplicate(handle);
}

void SimStorage::close(Handle handle) {
  MutexLock lock(mutex_);
  kernel_.close(handle);
}

Status SimStorage::retire(Handle handle) {
  MutexLock lock(mutex_);
  return kernel_.retire(handle);
}

std::string SimStorage::describe(Handle handle) {
  MutexLock lock(mutex_);
  return kernel_.describe(handle);
}

Status SimStorage::lock(Handle handle, bool exclusive) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  return kernel_.lock(handle, exclusive);
}

// --- looking ---------------------------------------------------------------------------------------------------------

Result<struct stat> SimStorage::fstat(Handle handle) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "stat"));
  return kernel_.fstat(handle);
}

Result<struct statvfs> SimStorage::fstatvfs(Handle handle) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "statvfs"));
  return kernel_.fstatvfs(handle);
}

bool SimStorage::overwrites_in_place(Handle handle) {
  MutexLock lock(mutex_);
  return kernel_.overwrites_in_place(handle);
}

Result<std::string> SimStorage::identity(Handle handle) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  return kernel_.identity(handle);
}

bool SimStorage::syncs_own_names(Handle handle) {
  MutexLock lock(mutex_);
  return kernel_.syncs_own_names(handle);
}

Result<struct stat> SimStorage::stat_at(Handle directory, const std::string& name) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, directory, "stat in"));
  return kernel_.stat_at(directory, name);
}

Result<std::string> SimStorage::read_link(Handle handle) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "readlink"));
  return kernel_.read_link(handle);
}

// The visitor runs without the lock: it may call back into the storage.
Status SimStorage::list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) {
  std::vector<DirectoryEntry> entries;
  {
    MutexLock lock(mutex_);
    if (off_) return power_off();
    FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, directory, "list"));
    FPFS_RETURN_IF_ERROR(kernel_.list(directory, [&entries](const DirectoryEntry& entry) {
      entries.push_back(entry);
      return true;
    }));
  }
  for (const DirectoryEntry& entry : entries)
    if (!visit(entry)) break;
  return Status::ok();
}

Result<size_t> SimStorage::get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "getxattr"));
  return kernel_.get_xattr(handle, name, value);
}

Result<size_t> SimStorage::list_xattr(Handle handle, std::span<std::byte> names) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "listxattr"));
  return kernel_.list_xattr(handle, names);
}

// --- changing --------------------------------------------------------------------------------------------------------

Status SimStorage::make_directory(Handle directory, const std::string& name, mode_t mode) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, directory, "mkdir in"));
  return end(begin("mkdir", directory, name) ? kernel_.make_directory(directory, name, mode) : Status::ok());
}

Status SimStorage::make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, directory, "mknod in"));
  return end(begin("mknod", directory, name) ? kernel_.make_node(directory, name, mode, device) : Status::ok());
}

Status SimStorage::symlink(const std::string& target, Handle directory, const std::string& name) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, directory, "symlink in"));
  return end(begin("symlink", directory, name) ? kernel_.symlink(target, directory, name) : Status::ok());
}

Status SimStorage::link(Handle handle, Handle directory, const std::string& name) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, directory, "link in"));
  return end(begin("link", directory, name) ? kernel_.link(handle, directory, name) : Status::ok());
}

Status SimStorage::unlink(Handle directory, const std::string& name) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, directory, "unlink in"));
  return end(begin("unlink", directory, name) ? kernel_.unlink(directory, name) : Status::ok());
}

Status SimStorage::remove_directory(Handle directory, const std::string& name) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, directory, "rmdir in"));
  return end(begin("rmdir", directory, name) ? kernel_.remove_directory(directory, name) : Status::ok());
}

Status SimStorage::rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                          unsigned flags) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kName, from, "rename in"));
  if (kernel_.inode_of(from).role == SimRole::kObjects) ++object_renames_;
  return end(begin("rename", from, from_name + " to " + kernel_.describe(to) + "/" + to_name)
                 ? kernel_.rename(from, from_name, to, to_name, flags)
                 : Status::ok());
}

Status SimStorage::chmod(Handle handle, mode_t mode) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kAttribute, handle, "chmod"));
  return end(begin() ? kernel_.chmod(handle, mode) : Status::ok());
}

Status SimStorage::chown(Handle handle, uid_t uid, gid_t gid) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kAttribute, handle, "chown"));
  return end(begin() ? kernel_.chown(handle, uid, gid) : Status::ok());
}

Status SimStorage::set_times(Handle handle, const struct timespec times[2]) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kAttribute, handle, "set times of"));
  return end(begin() ? kernel_.set_times(handle, times) : Status::ok());
}

Status SimStorage::set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kAttribute, handle, "setxattr"));
  return end(begin() ? kernel_.set_xattr(handle, name, value, flags) : Status::ok());
}

Status SimStorage::remove_xattr(Handle handle, const std::string& name) {
  MutexLock lock(mutex_);
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kAttribute, handle, "removexattr"));
  return end(begin() ? kernel_.remove_xattr(handle, name) : Status::ok());
}

}  // namespace fpfs
