// SimKernel: Storage over a SimWorld, as a kernel that never fails and never loses power would serve it. SimStorage
// puts those misfortunes on top.
//
// It is strict where a kernel is lax: an unknown handle, a handle closed twice or closed under a transfer aborts, and
// so does a misaligned transfer or a buffer that changed while the drive was reading it. Those are bugs of the caller.
//
// Thread safety: none; SimStorage's mutex guards it.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/io/sim/sim_world.h"
#include "engine/io/storage.h"

namespace fpfs {

class SimKernel final : public Storage {
 public:
  explicit SimKernel(const std::vector<std::string>& mount_paths) : world_(mount_paths) {}

  SimWorld& world() { return world_; }
  const SimWorld& world() const { return world_; }
  void set_world(SimWorld world);  // no handle may be open
  // fsync of an inode, for one that is late: its handle may be closed by now.
  void sync(uint64_t inode);
  void set_time(uint64_t nanoseconds) { now_ns_ = nanoseconds; }
  void set_rename_atomic(bool atomic) { rename_atomic_ = atomic; }
  SimInode& inode_of(Handle handle) { return world_.inode(open(handle).inode); }
  bool is_direct(Handle handle) const;
  std::vector<std::string> open_handles() const;
  void forget_handles();  // the process is gone

  // Transfers of IoQueue. start_write() gives a number for the other two.
  Result<uint64_t> start_write(Handle handle, std::span<const std::byte> data, uint64_t offset);
  void finish_write(uint64_t transfer, std::span<const std::byte> data, uint64_t bytes);
  void drop_write(uint64_t transfer);  // the caller hears of a failure; a power cut decides what was written
  Result<size_t> read_direct(Handle handle, std::span<std::byte> buffer, uint64_t offset);

  Result<Handle> open_directory(const std::string& path) override;
  Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode) override;
  Result<Handle> reopen(Handle handle, int flags) override;
  Result<Handle> duplicate(Handle handle) override;
  void close(Handle handle) override;
  Status retire(Handle handle) override;
  std::string describe(Handle handle) override;
  Result<size_t> pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) override;
  Status pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) override;
  Status fsync(Handle handle) override;
  Status fdatasync(Handle handle) override;
  Status sync_filesystem(Handle handle) override;
  Status ftruncate(Handle handle, uint64_t size) override;
  Status fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) override;
  Result<uint64_t> seek_data(Handle handle, uint64_t offset) override;
  Result<struct stat> fstat(Handle handle) override;
  Result<struct statvfs> fstatvfs(Handle handle) override;
  bool overwrites_in_place(Handle) override { return true; }
  bool syncs_own_names(Handle handle) override {
    return world_.filesystem(inode_of(handle).filesystem).syncs_own_names;
  }
  bool logs_names_in_order(Handle handle) override { return syncs_own_names(handle); }
  // None where a sync makes less durable than a commit log builds on (engine/file/commit_log.h).
  Result<std::string> identity(Handle handle) override {
    if (world_.filesystem(inode_of(handle).filesystem).order != SimFilesystem::JournalOrder::kWhole)
      return Storage::identity(handle);
    return fmt::format("inode {}", open(handle).inode);
  }
  bool syncs_writes(Handle handle) const { return (open(handle).flags & O_DSYNC) != 0; }
  Status clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) override;
  Result<bool> has_shared_blocks(Handle file) override;
  Status lock(Handle handle, bool exclusive) override;
  Result<struct stat> stat_at(Handle directory, const std::string& name) override;
  Status make_directory(Handle directory, const std::string& name, mode_t mode) override;
  Status unlink(Handle directory, const std::string& name) override;
  Status remove_directory(Handle directory, const std::string& name) override;
  Status rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                unsigned flags) override;
  Status link(Handle handle, Handle directory, const std::string& name) override;
  Status symlink(const std::string& target, Handle directory, const std::string& name) override;
  Result<std::string> read_link(Handle handle) override;
  Status make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) override;
  Status list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) override;
  std::vector<DirectoryEntry> entries(Handle directory);
  Status chmod(Handle handle, mode_t mode) override;
  Status chown(Handle handle, uid_t uid, gid_t gid) override;
  Status set_times(Handle handle, const struct timespec times[2]) override;
  Result<size_t> get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) override;
  Status set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) override;
  Result<size_t> list_xattr(Handle handle, std::span<std::byte> names) override;
  Status remove_xattr(Handle handle, const std::string& name) override;

 private:
  struct OpenFile {
    uint64_t inode = 0;
    int flags = 0;
    bool locked = false;
    bool locked_exclusively = false;
    unsigned transfers = 0;
  };
  struct Transfer {
    Handle handle = kNoHandle;
    uint64_t inode = 0;
  };
  OpenFile& open(Handle handle);
  const OpenFile& open(Handle handle) const;
  Result<Handle> add_handle(uint64_t inode, int flags);
  Result<SimInode*> directory_of(Handle handle, const std::string& name);
  Result<SimInode*> file_of(Handle handle, bool for_write, const char* call);
  void check_direct(Handle handle, const void* data, size_t length, uint64_t offset) const;
  Status check_space(const SimInode& inode, uint64_t offset, uint64_t length) const;
  SimInode& make_entry(SimInode& directory, const std::string& name, mode_t mode);
  struct stat stat_of(const SimInode& inode) const;
  struct timespec now() const;
  void touch(SimInode& inode, bool content);
  bool is_inside(uint64_t directory, uint64_t ancestor) const;
  Status check_replace(const SimInode& source, uint64_t target, unsigned flags, const std::string& what) const;

  SimWorld world_;
  std::map<Handle, OpenFile> handles_;
  std::map<uint64_t, Transfer> transfers_;
  Handle next_handle_ = 3;  // never reused: a stale handle is always caught
  uint64_t next_transfer_ = 1;
  uint64_t now_ns_ = 0;
  bool rename_atomic_ = true;
};

}  // namespace fpfs
