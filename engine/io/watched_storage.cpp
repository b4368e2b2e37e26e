#include "engine/io/watched_storage.h"

#include "engine/io/drive_failure.h"

namespace fpfs {

namespace {

// Handles are file descriptors: small numbers. One beyond the table belongs to no array.
constexpr size_t kHandlesMax = 1024 * 1024;

}  // namespace

WatchedStorage::WatchedStorage(Storage& storage, StallWatch& watch)
    : storage_(storage), watch_(watch), domains_(kHandlesMax) {
  for (auto& domain : domains_) domain.store(kElsewhereDomain, std::memory_order_relaxed);
}

void WatchedStorage::assign_domain(Handle handle, StallDomain domain) {
  if (handle >= 0 && static_cast<size_t>(handle) < domains_.size())
    domains_[static_cast<size_t>(handle)].store(domain, std::memory_order_relaxed);
}

StallDomain WatchedStorage::domain_of(Handle handle) const {
  if (handle < 0 || static_cast<size_t>(handle) >= domains_.size()) return kElsewhereDomain;
  return domains_[static_cast<size_t>(handle)].load(std::memory_order_relaxed);
}

template <typename Call>
auto WatchedStorage::watched(Handle handle, Call call) -> decltype(call()) {
  const StallDomain domain = domain_of(handle);
  if (watch_.is_stalled(domain)) return watch_.check(domain);
  const StallWatch::Call under_way(watch_, domain);
  auto outcome = call();
  if (!outcome.is_ok() && blames_the_drive(status_of(outcome))) watch_.note_error(domain, status_of(outcome));
  return outcome;
}

template <typename Call>
void WatchedStorage::attempt(Handle handle, Call call) {
  const StallDomain domain = domain_of(handle);
  if (watch_.is_stalled(domain)) return;
  const StallWatch::Call under_way(watch_, domain);
  call();
}

Result<Handle> WatchedStorage::inherit(Handle from, Result<Handle> opened) {
  if (opened.is_ok()) assign_domain(*opened, domain_of(from));
  return opened;
}

// --- handles ---------------------------------------------------------------------------------------------------------

Result<Handle> WatchedStorage::open_directory(const std::string& path) {
  const StallWatch::Call under_way(watch_, kElsewhereDomain);
  Result<Handle> opened = storage_.open_directory(path);
  if (opened.is_ok()) assign_domain(*opened, kElsewhereDomain);
  return opened;
}

Result<Handle> WatchedStorage::open_at(Handle directory, const std::string& name, int flags, mode_t mode) {
  return watched(directory, [&] { return inherit(directory, storage_.open_at(directory, name, flags, mode)); });
}

Result<Handle> WatchedStorage::reopen(Handle handle, int flags) {
  return watched(handle, [&] { return inherit(handle, storage_.reopen(handle, flags)); });
}

Result<Handle> WatchedStorage::duplicate(Handle handle) {
  return inherit(handle, storage_.duplicate(handle));  // no drive is asked
}

// The last close of a file may wait for its drive: of a stalled domain it is left for later.
void WatchedStorage::close(Handle handle) {
  const StallDomain domain = domain_of(handle);
  if (watch_.is_stalled(domain)) {
    const MutexLock lock(unclosed_mutex_);
    unclosed_.push_back(handle);
    has_unclosed_.store(true, std::memory_order_relaxed);
    return;
  }
  if (has_unclosed_.load(std::memory_order_relaxed)) close_what_was_left();
  const StallWatch::Call under_way(watch_, domain);
  storage_.close(handle);
}

Status WatchedStorage::retire(Handle handle) {
  FPFS_RETURN_IF_ERROR(watched(handle, [&] { return storage_.retire(handle); }));
  assign_domain(handle, kElsewhereDomain);
  return Status::ok();
}

void WatchedStorage::close_what_was_left() {
  std::vector<Handle> handles;
  {
    const MutexLock lock(unclosed_mutex_);
    std::erase_if(unclosed_, [&](Handle handle) {
      if (watch_.is_stalled(domain_of(handle))) return false;
      handles.push_back(handle);
      return true;
    });
    has_unclosed_.store(!unclosed_.empty(), std::memory_order_relaxed);
  }
  for (const Handle handle : handles) {
    const StallWatch::Call under_way(watch_, domain_of(handle));
    storage_.close(handle);
  }
}

// --- files -----------------------------------------------------------------------------------------------------------

Result<size_t> WatchedStorage::pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) {
  return watched(handle, [&] { return storage_.pread(handle, buffer, offset); });
}

void WatchedStorage::read_ahead(Handle file, uint64_t offset, uint64_t length) {
  attempt(file, [&] { storage_.read_ahead(file, offset, length); });
}

Status WatchedStorage::pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) {
  return watched(handle, [&] { return storage_.pwrite(handle, data, offset); });
}

Status WatchedStorage::fsync(Handle handle) {
  return watched(handle, [&] { return storage_.fsync(handle); });
}

Status WatchedStorage::check_running(Handle file) {
  return watched(file, [&] { return storage_.check_running(file); });
}

Status WatchedStorage::fdatasync(Handle handle) {
  return watched(handle, [&] { return storage_.fdatasync(handle); });
}

Status WatchedStorage::sync_filesystem(Handle handle) {
  return watched(handle, [&] { return storage_.sync_filesystem(handle); });
}

void WatchedStorage::drop_cache(Handle file) {
  attempt(file, [&] { storage_.drop_cache(file); });
}

Status WatchedStorage::ftruncate(Handle handle, uint64_t size) {
  return watched(handle, [&] { return storage_.ftruncate(handle, size); });
}

Status WatchedStorage::fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) {
  return watched(handle, [&] { return storage_.fallocate(handle, mode, offset, length); });
}

Result<uint64_t> WatchedStorage::seek_data(Handle handle, uint64_t offset) {
  return watched(handle, [&] { return storage_.seek_data(handle, offset); });
}

// Answered from memory, as the handle holds the inode there; so it is asked even while the domain is stalled.
Result<struct stat> WatchedStorage::fstat(Handle handle) {
  const StallWatch::Call under_way(watch_, domain_of(handle));
  return storage_.fstat(handle);
}

Result<struct statvfs> WatchedStorage::fstatvfs(Handle handle) {
  return watched(handle, [&] { return storage_.fstatvfs(handle); });
}

Result<uint64_t> WatchedStorage::filesystem_of(Handle handle) {
  return watched(handle, [&] { return storage_.filesystem_of(handle); });
}

Result<std::string> WatchedStorage::identity(Handle handle) {
  return watched(handle, [&] { return storage_.identity(handle); });
}

void WatchedStorage::start_writeback(Handle file) {
  attempt(file, [&] { storage_.start_writeback(file); });
}

bool WatchedStorage::overwrites_in_place(Handle handle) {
  bool does = false;
  attempt(handle, [&] { does = storage_.overwrites_in_place(handle); });
  return does;
}

bool WatchedStorage::syncs_own_names(Handle handle) {
  bool does = false;
  attempt(handle, [&] { does = storage_.syncs_own_names(handle); });
  return does;
}

bool WatchedStorage::logs_names_in_order(Handle handle) {
  bool does = false;
  attempt(handle, [&] { does = storage_.logs_names_in_order(handle); });
  return does;
}

Status WatchedStorage::clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) {
  return watched(to, [&] { return storage_.clone_range(from, from_offset, length, to, to_offset); });
}

Result<uint64_t> WatchedStorage::copy_range(Handle from, uint64_t from_offset, uint64_t length, Handle to,
                                            uint64_t to_offset) {
  return watched(to, [&] { return storage_.copy_range(from, from_offset, length, to, to_offset); });
}

Result<bool> WatchedStorage::has_shared_blocks(Handle file) {
  return watched(file, [&] { return storage_.has_shared_blocks(file); });
}

Status WatchedStorage::lock(Handle handle, bool exclusive) {
  return watched(handle, [&] { return storage_.lock(handle, exclusive); });
}

// --- names -----------------------------------------------------------------------------------------------------------

Result<struct stat> WatchedStorage::stat_at(Handle directory, const std::string& name) {
  return watched(directory, [&] { return storage_.stat_at(directory, name); });
}

Status WatchedStorage::make_directory(Handle directory, const std::string& name, mode_t mode) {
  return watched(directory, [&] { return storage_.make_directory(directory, name, mode); });
}

Status WatchedStorage::unlink(Handle directory, const std::string& name) {
  return watched(directory, [&] { return storage_.unlink(directory, name); });
}

Status WatchedStorage::remove_directory(Handle directory, const std::string& name) {
  return watched(directory, [&] { return storage_.remove_directory(directory, name); });
}

Status WatchedStorage::rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                              unsigned flags) {
  return watched(from, [&] { return storage_.rename(from, from_name, to, to_name, flags); });
}

Status WatchedStorage::link(Handle handle, Handle directory, const std::string& name) {
  return watched(directory, [&] { return storage_.link(handle, directory, name); });
}

Result<Storage::Place> WatchedStorage::place_of(Handle handle) {
  return watched(handle, [&] { return storage_.place_of(handle); });
}

Status WatchedStorage::symlink(const std::string& target, Handle directory, const std::string& name) {
  return watched(directory, [&] { return storage_.symlink(target, directory, name); });
}

Result<std::string> WatchedStorage::read_link(Handle handle) {
  return watched(handle, [&] { return storage_.read_link(handle); });
}

Status WatchedStorage::make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) {
  return watched(directory, [&] { return storage_.make_node(directory, name, mode, device); });
}

Status WatchedStorage::read_directory(Handle directory, uint64_t position, size_t bytes,
                                      std::vector<DirectoryEntry>& entries) {
  return watched(directory, [&] { return storage_.read_directory(directory, position, bytes, entries); });
}

Status WatchedStorage::list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) {
  const StallDomain domain = domain_of(directory);
  if (watch_.is_stalled(domain)) return watch_.check(domain);
  StallWatch::Call under_way(watch_, domain);
  Status status = storage_.list(directory, [&](const DirectoryEntry& entry) {
    under_way.pause();  // what the visitor does takes its own time
    const bool goes_on = visit(entry);
    under_way.resume();
    return goes_on;
  });
  if (blames_the_drive(status)) watch_.note_error(domain, status);
  return status;
}

// --- attributes ------------------------------------------------------------------------------------------------------

Status WatchedStorage::chmod(Handle handle, mode_t mode) {
  return watched(handle, [&] { return storage_.chmod(handle, mode); });
}

Status WatchedStorage::chown(Handle handle, uid_t uid, gid_t gid) {
  return watched(handle, [&] { return storage_.chown(handle, uid, gid); });
}

Status WatchedStorage::set_times(Handle handle, const struct timespec times[2]) {
  return watched(handle, [&] { return storage_.set_times(handle, times); });
}

void WatchedStorage::note_access(Handle handle) {
  attempt(handle, [&] { storage_.note_access(handle); });
}

Result<size_t> WatchedStorage::get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) {
  return watched(handle, [&] { return storage_.get_xattr(handle, name, value); });
}

Status WatchedStorage::set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) {
  return watched(handle, [&] { return storage_.set_xattr(handle, name, value, flags); });
}

Result<size_t> WatchedStorage::list_xattr(Handle handle, std::span<std::byte> names) {
  return watched(handle, [&] { return storage_.list_xattr(handle, names); });
}

Status WatchedStorage::remove_xattr(Handle handle, const std::string& name) {
  return watched(handle, [&] { return storage_.remove_xattr(handle, name); });
}

}  // namespace fpfs
