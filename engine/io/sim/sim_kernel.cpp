// Handles and file content. Names and attributes: sim_kernel_names.cpp.
#include "engine/io/sim/sim_kernel.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {

// --- handles --------------------------------------------------------------------------------------------------------

void SimKernel::set_world(SimWorld world) {
  FPFS_CHECK(handles_.empty(), "the world is replaced only while no handle is open");
  world_ = std::move(world);
}

SimKernel::OpenFile& SimKernel::open(Handle handle) {
  const auto found = handles_.find(handle);
  FPFS_CHECK(found != handles_.end(), "a handle that is not open was used (stale, closed twice, or never opened)");
  return found->second;
}

const SimKernel::OpenFile& SimKernel::open(Handle handle) const {
  return const_cast<SimKernel*>(this)->open(handle);
}

Result<Handle> SimKernel::add_handle(uint64_t inode, int flags) {
  const Handle handle = next_handle_++;
  handles_[handle] = {.inode = inode, .flags = flags};
  ++world_.inode(inode).handles;
  return handle;
}

Result<Handle> SimKernel::open_directory(const std::string& path) {
  const uint64_t found = world_.find(path.starts_with('/') ? path : "/" + path);
  if (found == 0) return Status::from_errno(ENOENT, "open " + path);
  if (!world_.inode(found).is_directory()) return Status::from_errno(ENOTDIR, "open " + path);
  return add_handle(found, O_RDONLY | O_DIRECTORY);
}

Result<Handle> SimKernel::open_at(Handle directory, const std::string& name, int flags, mode_t mode) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const parent, directory_of(directory, name));
  if ((flags & O_TMPFILE) == O_TMPFILE) {
    SimInode& unnamed = world_.create(parent->filesystem, parent->role, S_IFREG | (mode & 07777));
    touch(unnamed, true);
    unnamed.unnamed_may_be_linked = (flags & O_EXCL) == 0;
    return add_handle(unnamed.number, flags & ~O_TMPFILE);
  }
  uint64_t number = world_.lookup(*parent, name);
  if (number == 0) {
    if ((flags & O_CREAT) == 0) return Status::from_errno(ENOENT, "open " + name);
    number = make_entry(*parent, name, S_IFREG | (mode & 07777)).number;
  } else if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
    return Status::from_errno(EEXIST, "open " + name);
  }
  const SimInode& inode = world_.inode(number);
  if (inode.is_symlink() && (flags & O_PATH) == 0) return Status::from_errno(ELOOP, "open " + name);
  if ((flags & O_DIRECTORY) != 0 && !inode.is_directory()) return Status::from_errno(ENOTDIR, "open " + name);
  FPFS_ASSIGN_OR_RETURN(const Handle path_only, add_handle(number, O_PATH));
  if ((flags & O_PATH) != 0) return path_only;
  Result<Handle> opened = reopen(path_only, flags & ~(O_CREAT | O_EXCL));
  close(path_only);
  return opened;
}

Result<Handle> SimKernel::reopen(Handle handle, int flags) {
  SimInode& inode = inode_of(handle);
  const int access = flags & O_ACCMODE;
  if (inode.is_symlink() && (flags & O_PATH) == 0) return Status::from_errno(ELOOP, "open " + describe(handle));
  if (inode.is_directory() && access != O_RDONLY) return Status::from_errno(EISDIR, "open " + describe(handle));
  if ((flags & O_DIRECT) != 0 && !world_.filesystem(inode.filesystem).has_direct_io)
    return Status::from_errno(EINVAL, "open " + describe(handle) + " for direct I/O");
  if ((flags & O_TRUNC) != 0 && access != O_RDONLY && inode.is_regular()) {
    inode.content.set_size(0);
    touch(inode, true);
  }
  return add_handle(inode.number, flags);
}

Result<Handle> SimKernel::duplicate(Handle handle) {
  const OpenFile file = open(handle);
  return add_handle(file.inode, file.flags);
}

bool SimKernel::is_direct(Handle handle) const {
  return (open(handle).flags & O_DIRECT) != 0;
}

void SimKernel::close(Handle handle) {
  const OpenFile file = open(handle);
  FPFS_CHECK(file.transfers == 0, "a handle was closed while a transfer on it was under way");
  handles_.erase(handle);
  --world_.inode(file.inode).handles;
  world_.collect(file.inode);
}

// It leads to a file that nobody can read from now on.
Status SimKernel::retire(Handle handle) {
  OpenFile& file = open(handle);
  FPFS_CHECK(file.transfers == 0, "a handle was retired while a transfer on it was under way");
  const uint64_t before = file.inode;
  SimInode& nothing = world_.create(0, SimRole::kOther, S_IFREG);
  ++nothing.handles;
  file = {.inode = nothing.number, .flags = O_PATH};
  --world_.inode(before).handles;
  world_.collect(before);
  return Status::ok();
}

std::string SimKernel::describe(Handle handle) {
  return world_.path_of(open(handle).inode);
}

std::vector<std::string> SimKernel::open_handles() const {
  std::vector<std::string> result;
  for (const auto& [handle, file] : handles_)
    result.push_back("handle " + std::to_string(handle) + ": " + world_.path_of(file.inode));
  return result;
}

void SimKernel::forget_handles() {
  for (const auto& [handle, file] : handles_) --world_.inode(file.inode).handles;
  handles_.clear();
  transfers_.clear();
}

Status SimKernel::lock(Handle handle, bool exclusive) {
  OpenFile& mine = open(handle);
  for (const auto& [other_handle, other] : handles_) {
    if (other_handle == handle || other.inode != mine.inode || !other.locked) continue;
    if (exclusive || other.locked_exclusively)
      return Status::error(StatusCode::kBusy, "lock " + describe(handle) + ": held by another open file");
  }
  mine.locked = true;
  mine.locked_exclusively = exclusive;
  return Status::ok();
}

// --- content --------------------------------------------------------------------------------------------------------

Result<SimInode*> SimKernel::file_of(Handle handle, bool for_write, const char* call) {
  const OpenFile& file = open(handle);
  SimInode& inode = world_.inode(file.inode);
  const int access = file.flags & O_ACCMODE;
  const bool allowed = (file.flags & O_PATH) == 0 && (for_write ? access != O_RDONLY : access != O_WRONLY);
  if (inode.is_directory()) return Status::from_errno(EISDIR, call + (" " + describe(handle)));
  if (!inode.is_regular()) return Status::from_errno(EINVAL, call + (" " + describe(handle)));
  if (!allowed) return Status::from_errno(EBADF, call + (" " + describe(handle)));
  return &inode;
}

void SimKernel::check_direct(Handle handle, const void* data, size_t length, uint64_t offset) const {
  if ((open(handle).flags & O_DIRECT) == 0) return;
  FPFS_CHECK(reinterpret_cast<uintptr_t>(data) % kIoAlignment == 0, "direct I/O from misaligned memory");
  FPFS_CHECK(length % kIoAlignment == 0, "direct I/O of a misaligned length");
  FPFS_CHECK(offset % kIoAlignment == 0, "direct I/O at a misaligned offset");
}

Status SimKernel::check_space(const SimInode& inode, uint64_t offset, uint64_t length) const {
  const SimFilesystem& filesystem = world_.filesystem(inode.filesystem);
  if (filesystem.capacity_bytes >= kSimCapacityUnlimited) return Status::ok();
  const uint64_t missing = inode.content.visible().missing_bytes(offset, length);
  if (missing > 0 && world_.used_bytes(inode.filesystem) + missing > filesystem.capacity_bytes)
    return Status::from_errno(ENOSPC, "write to " + world_.path_of(inode.number));
  return Status::ok();
}

Result<size_t> SimKernel::pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) {
  FPFS_ASSIGN_OR_RETURN(const SimInode* const inode, file_of(handle, false, "read"));
  check_direct(handle, buffer.data(), buffer.size(), offset);
  return inode->content.visible().read(offset, buffer);
}

Status SimKernel::pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const inode, file_of(handle, true, "write"));
  check_direct(handle, data.data(), data.size(), offset);
  FPFS_RETURN_IF_ERROR(check_space(*inode, offset, data.size()));
  inode->content.write(offset, data);
  touch(*inode, true);
  return Status::ok();
}

Result<uint64_t> SimKernel::start_write(Handle handle, std::span<const std::byte> data, uint64_t offset) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const inode, file_of(handle, true, "write"));
  check_direct(handle, data.data(), data.size(), offset);
  FPFS_RETURN_IF_ERROR(check_space(*inode, offset, data.size()));
  const uint64_t transfer = next_transfer_++;
  inode->content.begin_write(transfer, offset, data);
  ++open(handle).transfers;
  transfers_[transfer] = {handle, inode->number};
  return transfer;
}

void SimKernel::finish_write(uint64_t transfer, std::span<const std::byte> data, uint64_t bytes) {
  const Transfer ended = transfers_.extract(transfer).mapped();
  SimInode& inode = world_.inode(ended.inode);
  const std::span<const std::byte> taken = inode.content.in_flight(transfer);
  // Not std::equal(), which compares std::byte one by one.
  FPFS_CHECK(taken.size() == data.size() && std::memcmp(taken.data(), data.data(), data.size()) == 0,
             "a buffer changed while it was being written");
  --open(ended.handle).transfers;
  inode.content.abort_write(transfer, bytes);
  touch(inode, true);
}

void SimKernel::drop_write(uint64_t transfer) {
  --open(transfers_.extract(transfer).mapped().handle).transfers;
}

Result<size_t> SimKernel::read_direct(Handle handle, std::span<std::byte> buffer, uint64_t offset) {
  return pread(handle, buffer, offset);
}

Status SimKernel::fsync(Handle handle) {
  SimInode& inode = inode_of(handle);
  if ((open(handle).flags & O_PATH) != 0) return Status::from_errno(EBADF, "fsync " + describe(handle));
  sync(inode.number);
  return Status::ok();
}

void SimKernel::sync(uint64_t number) {
  if (!world_.has(number)) return;
  SimInode& inode = world_.inode(number);
  if (!inode.is_directory()) inode.content.sync();
  world_.sync_names(number);
}

Status SimKernel::fdatasync(Handle handle) {
  SimInode& inode = inode_of(handle);
  if (inode.is_directory()) return fsync(handle);
  if ((open(handle).flags & O_PATH) != 0) return Status::from_errno(EBADF, "fdatasync " + describe(handle));
  inode.content.sync();
  return Status::ok();
}

Status SimKernel::sync_filesystem(Handle handle) {
  world_.sync_filesystem(inode_of(handle).filesystem);
  return Status::ok();
}

Status SimKernel::ftruncate(Handle handle, uint64_t size) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const inode, file_of(handle, true, "truncate"));
  if (size > kFileSizeMax) return Status::from_errno(EFBIG, "truncate " + describe(handle));
  inode->content.set_size(size);
  touch(*inode, true);
  return Status::ok();
}

Status SimKernel::fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const inode, file_of(handle, true, "fallocate"));
  if (length == 0) return Status::from_errno(EINVAL, "fallocate " + describe(handle));
  if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
    inode->content.punch(offset, length);
  } else if (mode == 0 || mode == FALLOC_FL_KEEP_SIZE) {
    FPFS_RETURN_IF_ERROR(check_space(*inode, offset, length));
    inode->content.allocate(offset, length, mode != 0);
  } else {
    return Status::from_errno(EOPNOTSUPP, "fallocate " + describe(handle));
  }
  touch(*inode, true);
  return Status::ok();
}

Status SimKernel::clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) {
  FPFS_ASSIGN_OR_RETURN(SimInode* const source, file_of(from, false, "share blocks of"));
  FPFS_ASSIGN_OR_RETURN(SimInode* const target, file_of(to, true, "share blocks with"));
  if (source->filesystem != target->filesystem) return Status::from_errno(EXDEV, "share blocks with " + describe(to));
  if (!world_.filesystem(source->filesystem).shares_blocks)
    return Status::from_errno(EOPNOTSUPP, "share blocks with " + describe(to));
  constexpr uint64_t kBlock = SparseImage::kPageSize;
  const uint64_t size = source->content.visible().size();
  if (source == target || from_offset % kBlock != 0 || to_offset % kBlock != 0 || length == 0 || length % kBlock != 0 ||
      from_offset + length > size)
    return Status::from_errno(EINVAL, "share blocks with " + describe(to));
  FPFS_RETURN_IF_ERROR(check_space(*target, to_offset, length));
  std::vector<std::byte> data(length);
  source->content.visible().read(from_offset, data);
  source->content.set_may_share();
  target->content.clone(to_offset, data);
  touch(*target, true);
  return Status::ok();
}

Result<bool> SimKernel::has_shared_blocks(Handle file) {
  FPFS_ASSIGN_OR_RETURN(const SimInode* const inode, file_of(file, false, "look for blocks of"));
  return inode->content.may_share();
}

Result<uint64_t> SimKernel::seek_data(Handle handle, uint64_t offset) {
  FPFS_ASSIGN_OR_RETURN(const SimInode* const inode, file_of(handle, false, "seek in"));
  const std::optional<uint64_t> found = inode->content.visible().next_data(offset);
  if (!found.has_value())
    return Status::error(StatusCode::kNotFound, "no data at or after this offset in " + describe(handle));
  return *found;
}

}  // namespace fpfs
