// Names and attributes of the simulated kernel.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/units.h"
#include "engine/io/sim/sim_kernel.h"

namespace fpfs {

struct timespec SimKernel::now() const {
  return {static_cast<time_t>(now_ns_ / 1'000'000'000), static_cast<long>(now_ns_ % 1'000'000'000)};
}

void SimKernel::touch(SimInode& inode, bool content) {
  inode.attributes.ctime = now();
  if (content) inode.attributes.mtime = now();
}

Result<SimInode*> SimKernel::directory_of(Handle handle, const std::string& name) {
  SimInode& inode = inode_of(handle);
  if (!inode.is_directory()) return Status::from_errno(ENOTDIR, "look up " + name + " in " + describe(handle));
  if (name.empty() || name.find('/') != std::string::npos) return Status::from_errno(EINVAL, "look up '" + name + "'");
  if (name.size() > 255) return Status::from_errno(ENAMETOOLONG, "look up " + name);
  return &inode;
}

SimInode& SimKernel::make_entry(SimInode& directory, const std::string& name, mode_t mode) {
  SimRole role = directory.role;
  if (role == SimRole::kOther && S_ISDIR(mode)) {
    if (name == "objects") role = SimRole::kObjects;
    if (name == "tree") role = SimRole::kTree;
  }
  SimInode& inode = world_.create(directory.filesystem, role, mode);
  touch(inode, true);
  inode.attributes.atime = now();
  touch(directory, true);
  std::set<uint64_t> also_touched;
  if (inode.is_directory()) also_touched.insert(inode.number);
  world_.change_names(directory.filesystem, {{directory.number, name, 0, inode.number}}, also_touched);
  return inode;
}

// --- making and removing --------------------------------------------------------------------------------------------

Status SimKernel::make_directory(Handle directory, const std::string& name, mode_t mode) {
  return make_node(directory, name, S_IFDIR | (mode & 07777), 0);
}

Status SimKernel::make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const parent, directory_of(directory, name));
  if (world_.lookup(*parent, name) != 0) return Status::from_errno(EEXIST, "make " + name);
  make_entry(*parent, name, mode).special_device = device;
  return Status::ok();
}

Status SimKernel::symlink(const std::string& target, Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const parent, directory_of(directory, name));
  if (world_.lookup(*parent, name) != 0) return Status::from_errno(EEXIST, "symlink " + name);
  make_entry(*parent, name, S_IFLNK | 0777).link_target = target;
  return Status::ok();
}

Status SimKernel::link(Handle handle, Handle directory, const std::string& name) {
  SimInode& inode = inode_of(handle);
  FPFS_ASSIGN_OR_RETURN(SimInode* const parent, directory_of(directory, name));
  if (inode.is_directory()) return Status::from_errno(EPERM, "link " + name);
  if (inode.filesystem != parent->filesystem) return Status::from_errno(EXDEV, "link " + name);
  if (world_.lookup(*parent, name) != 0) return Status::from_errno(EEXIST, "link " + name);
  if (inode.names == 0 && !inode.unnamed_may_be_linked) return Status::from_errno(ENOENT, "link " + name);
  touch(inode, false);
  touch(*parent, true);
  world_.change_names(parent->filesystem, {{parent->number, name, 0, inode.number}});
  return Status::ok();
}

Status SimKernel::unlink(Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const parent, directory_of(directory, name));
  const uint64_t number = world_.lookup(*parent, name);
  if (number == 0) return Status::from_errno(ENOENT, "unlink " + name);
  SimInode& inode = world_.inode(number);
  if (inode.is_directory()) return Status::from_errno(EISDIR, "unlink " + name);
  inode.unnamed_may_be_linked = false;
  touch(inode, false);
  touch(*parent, true);
  world_.change_names(parent->filesystem, {{parent->number, name, number, 0}});
  return Status::ok();
}

Status SimKernel::remove_directory(Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const parent, directory_of(directory, name));
  if (name == "." || name == "..") return Status::from_errno(EINVAL, "rmdir " + name);
  const uint64_t number = world_.lookup(*parent, name);
  if (number == 0) return Status::from_errno(ENOENT, "rmdir " + name);
  const SimInode& inode = world_.inode(number);
  if (!inode.is_directory()) return Status::from_errno(ENOTDIR, "rmdir " + name);
  if (!inode.entries.empty()) return Status::from_errno(ENOTEMPTY, "rmdir " + name);
  touch(*parent, true);
  world_.change_names(parent->filesystem, {{parent->number, name, number, 0}}, {number});
  return Status::ok();
}

// --- rename ---------------------------------------------------------------------------------------------------------

bool SimKernel::is_inside(uint64_t directory, uint64_t ancestor) const {
  const uint64_t root = world_.filesystem(world_.inode(directory).filesystem).root;
  for (uint64_t at = directory;; at = world_.inode(at).parent) {
    if (at == ancestor) return true;
    if (at == root) return false;
  }
}

Status SimKernel::check_replace(const SimInode& source, uint64_t target, unsigned flags,
                                const std::string& what) const {
  if ((flags & RENAME_EXCHANGE) != 0) return target == 0 ? Status::from_errno(ENOENT, what) : Status::ok();
  if (target == 0) return Status::ok();
  if ((flags & RENAME_NOREPLACE) != 0) return Status::from_errno(EEXIST, what);
  const SimInode& replaced = world_.inode(target);
  if (source.is_directory() && !replaced.is_directory()) return Status::from_errno(ENOTDIR, what);
  if (!source.is_directory() && replaced.is_directory()) return Status::from_errno(EISDIR, what);
  if (!replaced.entries.empty()) return Status::from_errno(ENOTEMPTY, what);
  return Status::ok();
}

Status SimKernel::rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                         unsigned flags) {
  const std::string what = "rename " + from_name + " to " + to_name;
  FPFS_ASSIGN_OR_RETURN(SimInode* const source_parent, directory_of(from, from_name));
  FPFS_ASSIGN_OR_RETURN(SimInode* const target_parent, directory_of(to, to_name));
  if (source_parent->filesystem != target_parent->filesystem) return Status::from_errno(EXDEV, what);
  const uint64_t source = world_.lookup(*source_parent, from_name);
  const uint64_t target = world_.lookup(*target_parent, to_name);
  if (source == 0) return Status::from_errno(ENOENT, what);
  FPFS_RETURN_IF_ERROR(check_replace(world_.inode(source), target, flags, what));
  if (source == target) return Status::ok();
  const bool exchange = (flags & RENAME_EXCHANGE) != 0;
  if (world_.inode(source).is_directory() && is_inside(target_parent->number, source))
    return Status::from_errno(EINVAL, what);
  if (exchange && world_.inode(target).is_directory() && is_inside(source_parent->number, target))
    return Status::from_errno(EINVAL, what);
  touch(world_.inode(source), false);
  touch(*source_parent, true);
  touch(*target_parent, true);
  std::set<uint64_t> also_touched;
  if (target != 0 && !exchange && world_.inode(target).is_directory()) also_touched.insert(target);
  const unsigned filesystem = source_parent->filesystem;
  const SimNameChange away{source_parent->number, from_name, source, exchange ? target : 0};
  const SimNameChange there{target_parent->number, to_name, target, source};
  if (rename_atomic_) {
    world_.change_names(filesystem, {away, there}, also_touched);
    return Status::ok();
  }
  // The planted bug: the steps of a rename reach the drive one by one.
  if (target != 0 && !exchange)
    world_.change_names(filesystem, {{target_parent->number, to_name, target, 0}}, also_touched);
  world_.change_names(filesystem, {{target_parent->number, to_name, exchange ? target : 0, source}});
  world_.change_names(filesystem, {away});
  return Status::ok();
}

// --- looking --------------------------------------------------------------------------------------------------------

struct stat SimKernel::stat_of(const SimInode& inode) const {
  struct stat result {};
  result.st_dev = 100 + inode.filesystem;
  result.st_ino = inode.number;
  result.st_mode = inode.attributes.mode;
  result.st_uid = inode.attributes.uid;
  result.st_gid = inode.attributes.gid;
  result.st_rdev = inode.special_device;
  result.st_nlink = inode.names;
  if (inode.is_directory()) {
    result.st_nlink = inode.names == 0 ? 0 : 2;
    for (const auto& [name, child] : inode.entries)
      if (world_.inode(child).is_directory()) ++result.st_nlink;
    result.st_size = 4096;
  } else if (inode.is_symlink()) {
    result.st_size = static_cast<off_t>(inode.link_target.size());
  } else {
    result.st_size = static_cast<off_t>(inode.content.visible().size());
  }
  result.st_blksize = 4096;
  result.st_blocks = static_cast<blkcnt_t>(inode.content.visible().allocated_bytes() / 512);
  result.st_atim = inode.attributes.atime;
  result.st_mtim = inode.attributes.mtime;
  result.st_ctim = inode.attributes.ctime;
  return result;
}

Result<struct stat> SimKernel::fstat(Handle handle) {
  return stat_of(inode_of(handle));
}

Result<struct stat> SimKernel::stat_at(Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(const SimInode* const parent, directory_of(directory, name));
  const uint64_t number = world_.lookup(*parent, name);
  if (number == 0) return Status::from_errno(ENOENT, "stat " + name);
  return stat_of(world_.inode(number));
}

Result<struct statvfs> SimKernel::fstatvfs(Handle handle) {
  const unsigned index = inode_of(handle).filesystem;
  const uint64_t capacity = world_.filesystem(index).capacity_bytes;
  struct statvfs result {};
  result.f_bsize = result.f_frsize = 4096;
  result.f_blocks = capacity / 4096;
  result.f_bfree = result.f_bavail = (capacity - std::min(capacity, world_.used_bytes(index))) / 4096;
  result.f_files = 1 << 20;
  result.f_ffree = result.f_favail = 1 << 19;
  result.f_fsid = 100 + index;
  result.f_namemax = 255;
  return result;
}

Result<std::string> SimKernel::read_link(Handle handle) {
  const SimInode& inode = inode_of(handle);
  if (!inode.is_symlink()) return Status::from_errno(EINVAL, "readlink " + describe(handle));
  return inode.link_target;
}

std::vector<DirectoryEntry> SimKernel::entries(Handle directory) {
  std::vector<DirectoryEntry> result;
  for (const auto& [name, child] : inode_of(directory).entries)
    result.push_back({name, child, static_cast<unsigned char>(IFTODT(world_.inode(child).attributes.mode))});
  return result;
}

Status SimKernel::list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) {
  FPFS_RETURN_IF_ERROR(directory_of(directory, ".").status());
  for (const DirectoryEntry& entry : entries(directory))
    if (!visit(entry)) break;
  return Status::ok();
}

// --- attributes -----------------------------------------------------------------------------------------------------

Status SimKernel::chmod(Handle handle, mode_t mode) {
  SimInode& inode = inode_of(handle);
  if (inode.is_symlink()) return Status::from_errno(EOPNOTSUPP, "chmod " + describe(handle));
  inode.attributes.mode = (inode.attributes.mode & S_IFMT) | (mode & 07777);
  touch(inode, false);
  return Status::ok();
}

Status SimKernel::chown(Handle handle, uid_t uid, gid_t gid) {
  SimInode& inode = inode_of(handle);
  if (uid != static_cast<uid_t>(-1)) inode.attributes.uid = uid;
  if (gid != static_cast<gid_t>(-1)) inode.attributes.gid = gid;
  touch(inode, false);
  return Status::ok();
}

Status SimKernel::set_times(Handle handle, const struct timespec times[2]) {
  SimInode& inode = inode_of(handle);
  struct timespec* const fields[2] = {&inode.attributes.atime, &inode.attributes.mtime};
  for (int i = 0; i < 2; ++i)
    if (times[i].tv_nsec != UTIME_OMIT) *fields[i] = times[i].tv_nsec == UTIME_NOW ? now() : times[i];
  touch(inode, false);
  return Status::ok();
}

Result<size_t> SimKernel::get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) {
  const auto& xattrs = inode_of(handle).attributes.xattrs;
  const auto found = xattrs.find(name);
  if (found == xattrs.end()) return Status::from_errno(ENODATA, "getxattr " + name);
  if (value.empty()) return found->second.size();
  if (value.size() < found->second.size()) return Status::from_errno(ERANGE, "getxattr " + name);
  std::copy(found->second.begin(), found->second.end(), value.begin());
  return found->second.size();
}

Status SimKernel::set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) {
  SimInode& inode = inode_of(handle);
  if (name.starts_with("user.") && !inode.is_regular() && !inode.is_directory())
    return Status::from_errno(EPERM, "setxattr " + name);
  const bool exists = inode.attributes.xattrs.contains(name);
  if (flags == XATTR_CREATE && exists) return Status::from_errno(EEXIST, "setxattr " + name);
  if (flags == XATTR_REPLACE && !exists) return Status::from_errno(ENODATA, "setxattr " + name);
  inode.attributes.xattrs[name].assign(value.begin(), value.end());
  touch(inode, false);
  return Status::ok();
}

Result<size_t> SimKernel::list_xattr(Handle handle, std::span<std::byte> names) {
  std::string all;
  for (const auto& [name, value] : inode_of(handle).attributes.xattrs) all.append(name).push_back('\0');
  if (names.empty()) return all.size();
  if (names.size() < all.size()) return Status::from_errno(ERANGE, "listxattr");
  std::memcpy(names.data(), all.data(), all.size());
  return all.size();
}

Status SimKernel::remove_xattr(Handle handle, const std::string& name) {
  SimInode& inode = inode_of(handle);
  if (inode.attributes.xattrs.erase(name) == 0) return Status::from_errno(ENODATA, "removexattr " + name);
  touch(inode, false);
  return Status::ok();
}

}  // namespace fpfs
