// WatchedStorage: a Storage whose calls are known to a StallWatch while they run, and refused while their domain is
// stalled. Every handle belongs to a domain: the one that it was assigned, or that of the handle it was opened through.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/io/stall_watch.h"
#include "engine/io/storage.h"

namespace fpfs {

class WatchedStorage final : public Storage {
 public:
  // Both outlive it.
  WatchedStorage(Storage& storage, StallWatch& watch);

  void assign_domain(Handle handle, StallDomain domain) override;

  Result<Handle> open_directory(const std::string& path) override;
  Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode) override;
  Result<Handle> reopen(Handle handle, int flags) override;
  Result<Handle> duplicate(Handle handle) override;
  void close(Handle handle) override;
  Status retire(Handle handle) override;
  std::string describe(Handle handle) override { return storage_.describe(handle); }  // asks no drive

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

 private:
  StallDomain domain_of(Handle handle) const;
  Result<Handle> inherit(Handle from, Result<Handle> opened);
  // Makes `call` on behalf of `handle`'s domain; `Outcome` is a Status or a Result.
  template <typename Call>
  auto watched(Handle handle, Call call) -> decltype(call());
  // The same for what may as well not be done.
  template <typename Call>
  void attempt(Handle handle, Call call);
  void close_what_was_left();

  Storage& storage_;
  StallWatch& watch_;
  std::vector<std::atomic<StallDomain>> domains_;  // by handle
  Mutex unclosed_mutex_;
  std::vector<Handle> unclosed_ FPFS_GUARDED_BY(unclosed_mutex_);  // of domains that were stalled
  std::atomic<bool> has_unclosed_{false};
};

}  // namespace fpfs
