// PosixStorage: Storage as the Linux kernel gives it. Handles are file descriptors.
//
// O_PATH handles are accepted wherever storage.h says so. The kernel refuses most descriptor calls on them (EBADF), so
// those calls go through the magic link /proc/self/fd/N, which leads to exactly the inode that the handle refers to,
// also when that is a symbolic link, whatever has happened to its name since. /proc must be mounted.
//
// Messages name the path that the kernel knows for a handle, except for the everyday errors (ENOENT, EEXIST, ENODATA,
// ERANGE) of lookups and of xattr probes, which are too frequent to pay for it.
//
// Thread safety: stateless; any thread. Durability: the kernel's.
#pragma once

#include "engine/io/storage.h"

namespace fpfs {

class PosixStorage : public Storage {
 public:
  Result<Handle> open_directory(const std::string& path) override;
  Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode) override;
  Result<Handle> reopen(Handle handle, int flags) override;
  Result<Handle> duplicate(Handle handle) override;
  void close(Handle handle) override;
  Status retire(Handle handle) override;
  std::string describe(Handle handle) override;

  Result<size_t> pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) override;
  void read_ahead(Handle file, uint64_t offset, uint64_t length) override;
  Status pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) override;
  Status fsync(Handle handle) override;
  Status fdatasync(Handle handle) override;
  Status check_running(Handle file) override;
  Status sync_filesystem(Handle handle) override;
  void drop_cache(Handle file) override;
  Status ftruncate(Handle handle, uint64_t size) override;
  Status fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) override;
  Result<uint64_t> seek_data(Handle handle, uint64_t offset) override;
  Result<struct stat> fstat(Handle handle) override;
  Result<struct statvfs> fstatvfs(Handle handle) override;
  Result<uint64_t> filesystem_of(Handle handle) override;
  bool overwrites_in_place(Handle handle) override;
  void start_writeback(Handle file) override;
  Result<std::string> identity(Handle handle) override;
  bool syncs_own_names(Handle handle) override;
  bool logs_names_in_order(Handle handle) override;
  Status clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) override;
  Result<uint64_t> copy_range(Handle from, uint64_t from_offset, uint64_t length, Handle to,
                              uint64_t to_offset) override;
  Result<bool> has_shared_blocks(Handle file) override;
  Status lock(Handle handle, bool exclusive) override;

  Result<struct stat> stat_at(Handle directory, const std::string& name) override;
  Status make_directory(Handle directory, const std::string& name, mode_t mode) override;
  Status unlink(Handle directory, const std::string& name) override;
  Status remove_directory(Handle directory, const std::string& name) override;
  Status rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                unsigned flags) override;
  Status link(Handle handle, Handle directory, const std::string& name) override;
  Result<Place> place_of(Handle handle) override;
  Status symlink(const std::string& target, Handle directory, const std::string& name) override;
  Result<std::string> read_link(Handle handle) override;
  Status make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) override;
  Status read_directory(Handle directory, uint64_t position, size_t bytes,
                        std::vector<DirectoryEntry>& entries) override;
  Status list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) override;

  Status chmod(Handle handle, mode_t mode) override;
  Status chown(Handle handle, uid_t uid, gid_t gid) override;
  Status set_times(Handle handle, const struct timespec times[2]) override;
  void note_access(Handle handle) override;
  Result<size_t> get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) override;
  Status set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) override;
  Result<size_t> list_xattr(Handle handle, std::span<std::byte> names) override;
  Status remove_xattr(Handle handle, const std::string& name) override;
};

}  // namespace fpfs
