#include "engine/io/posix_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/units.h"

namespace fpfs {
namespace {

// Runs a system call until it is not interrupted.
template <typename Call>
auto retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// "/proc/self/fd/N" without an allocation.
class ProcPath {
 public:
  explicit ProcPath(Handle handle) {
    constexpr std::string_view kPrefix = "/proc/self/fd/";
    char* end = kPrefix.copy(text_.data(), kPrefix.size()) + text_.data();
    *std::to_chars(end, text_.data() + text_.size() - 1, handle).ptr = '\0';
  }
  const char* c_str() const { return text_.data(); }

 private:
  std::array<char, 32> text_{};
};

// The magic number of the filesystem that it is on (statfs(2)); 0 when that cannot be told.
unsigned long filesystem_kind(Handle handle) {
  struct statfs space;
  return retry([&] { return ::fstatfs(handle, &space); }) < 0 ? 0 : static_cast<unsigned long>(space.f_type);
}

std::string path_of(Handle handle) {
  std::array<char, PATH_MAX> path;
  const ssize_t length = ::readlink(ProcPath(handle).c_str(), path.data(), path.size());
  if (length <= 0) return fmt::format("handle {}", handle);
  return std::string(path.data(), static_cast<size_t>(length));
}

bool is_everyday(int error) {
  return error == ENOENT || error == EEXIST || error == ENODATA || error == ERANGE;
}

Status failure(const char* operation, Handle handle) {
  const int error = errno;
  if (is_everyday(error)) return Status::from_errno(error, operation);
  return Status::from_errno(error, fmt::format("{} {}", operation, path_of(handle)));
}

Status failure(const char* operation, Handle handle, uint64_t offset, uint64_t length) {
  const int error = errno;
  return Status::from_errno(error, fmt::format("{} {}", operation, path_of(handle)))
      .at(Status::kNoMember, offset, length);
}

Status failure(const char* operation, Handle directory, const std::string& name) {
  const int error = errno;
  if (is_everyday(error)) return Status::from_errno(error, operation + (" " + name));
  return Status::from_errno(error, fmt::format("{} {}/{}", operation, path_of(directory), name));
}

// One component that stays where it is: what keeps a handle's user inside the handle's directory.
Status check_name(const char* operation, const std::string& name) {
  if (!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
      name.find('\0') == std::string::npos)
    return Status::ok();
  return Status::error(StatusCode::kInvalidArgument,
                       fmt::format("{}: '{}' is not the name of an entry in a directory", operation, name));
}

// Opens without moving access times: what the engine reads for itself is no access by a user. Only the owner and root
// may ask for that.
template <typename Open>
int open_quietly(int flags, Open open) {
  const int fd = retry([&] { return open(flags | O_NOATIME | O_CLOEXEC); });
  return fd < 0 && errno == EPERM ? retry([&] { return open(flags | O_CLOEXEC); }) : fd;
}

// openat2(2), as no C library of the supported systems offers it. RESOLVE_NO_XDEV is what openat() cannot do: an entry
// that something is mounted over is refused (EXDEV) rather than entered.
int open_beneath(Handle directory, const std::string& name, int flags, mode_t mode) {
  const bool makes_file = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  const bool may_wait = (flags & (O_PATH | O_DIRECTORY)) == 0;  // a FIFO would, for somebody at its other end
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC | (may_wait ? O_NONBLOCK : 0));
  how.mode = makes_file ? mode & 07777 : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return static_cast<int>(retry([&] { return ::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how); }));
}

Status done(int result, const char* operation, Handle handle) {
  return result < 0 ? failure(operation, handle) : Status::ok();
}

Status done(int result, const char* operation, Handle directory, const std::string& name) {
  return result < 0 ? failure(operation, directory, name) : Status::ok();
}

}  // namespace

// --- handles ---------------------------------------------------------------------------------------------------------

Result<Handle> PosixStorage::open_directory(const std::string& path) {
  const int fd = retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return Status::from_errno(errno, "open directory " + path);
  return fd;
}

Result<Handle> PosixStorage::open_at(Handle directory, const std::string& name, int flags, mode_t mode) {
  if (name != ".") FPFS_RETURN_IF_ERROR(check_name("open", name));
  const auto open = [&](int all_flags) { return open_beneath(directory, name, all_flags, mode); };
  const int fd = (flags & O_PATH) != 0 ? open(flags) : open_quietly(flags, open);
  if (fd >= 0) return fd;
  if (errno == ENOSYS)
    return Status::from_errno(ENOSYS,
                              "openat2(2) is refused here; use Linux 5.15 or newer, and where a container's "
                              "seccomp profile refuses it, one that allows it");
  const char* what = errno == EXDEV ? "something is mounted over what is to be opened:" : "open";
  return failure(what, directory, name);
}

Result<Handle> PosixStorage::reopen(Handle handle, int flags) {
  // O_NOFOLLOW would stop at the magic link itself. It is not needed: what the magic link leads to is not followed
  // further, a symbolic link ends in ELOOP (or, with O_PATH, in a handle of the link). A directory is its own ".",
  // which costs half as much.
  const int fd = open_quietly(flags & ~O_NOFOLLOW, [&](int all_flags) {
    return (flags & O_DIRECTORY) != 0 ? ::openat(handle, ".", all_flags) : ::open(ProcPath(handle).c_str(), all_flags);
  });
  if (fd < 0) return failure("open again", handle);
  return fd;
}

Result<Handle> PosixStorage::duplicate(Handle handle) {
  const int fd = ::fcntl(handle, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return failure("duplicate", handle);
  return fd;
}

void PosixStorage::close(Handle handle) {
  // Linux frees the descriptor whatever close returns, so it is never called twice. What a failing close could report
  // about data was reported by the sync that every commit ends with.
  const int result = ::close(handle);
  FPFS_CHECK(result == 0 || errno != EBADF, "a handle is closed exactly once");
}

// The descriptor becomes one that leads to nothing, in one step.
Status PosixStorage::retire(Handle handle) {
  const int nothing = retry([&] { return ::open("/dev/null", O_PATH | O_CLOEXEC); });
  if (nothing < 0) return Status::from_errno(errno, "open /dev/null");
  const Status replaced = done(retry([&] { return ::dup3(nothing, handle, O_CLOEXEC); }), "dup3", handle);
  ::close(nothing);
  return replaced;
}

std::string PosixStorage::describe(Handle handle) {
  return path_of(handle);
}

// --- files -----------------------------------------------------------------------------------------------------------

Result<size_t> PosixStorage::pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) {
  size_t done_bytes = 0;
  while (done_bytes < buffer.size()) {
    const ssize_t count = retry([&] {
      return ::pread(handle, buffer.data() + done_bytes, buffer.size() - done_bytes,
                     static_cast<off_t>(offset + done_bytes));
    });
    if (count == 0) break;
    if (count < 0) {
      // After a short read that left an odd position, O_DIRECT refuses to go on: only the end of the file is odd.
      if (errno == EINVAL && done_bytes % kIoAlignment != 0) break;
      return failure("read", handle, offset + done_bytes, buffer.size() - done_bytes);
    }
    done_bytes += static_cast<size_t>(count);
  }
  return done_bytes;
}

void PosixStorage::read_ahead(Handle file, uint64_t offset, uint64_t length) {
  static_cast<void>(::posix_fadvise(file, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_WILLNEED));
}

Status PosixStorage::pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) {
  size_t done_bytes = 0;
  while (done_bytes < data.size()) {
    const ssize_t count = retry([&] {
      return ::pwrite(handle, data.data() + done_bytes, data.size() - done_bytes,
                      static_cast<off_t>(offset + done_bytes));
    });
    if (count == 0) errno = EIO;  // a device that takes nothing and names no error
    if (count <= 0) return failure("write", handle, offset + done_bytes, data.size() - done_bytes);
    done_bytes += static_cast<size_t>(count);
  }
  return Status::ok();
}

Status PosixStorage::fsync(Handle handle) {
  return done(retry([&] { return ::fsync(handle); }), "fsync", handle);
}

Status PosixStorage::fdatasync(Handle handle) {
  return done(retry([&] { return ::fdatasync(handle); }), "fdatasync", handle);
}

Status PosixStorage::check_running(Handle file) {
  // Of no bytes: the filesystem looks whether it is down before it looks how many there are (xfs_file_read_iter(),
  // ext4_file_read_iter(); Linux 6.18).
  std::byte byte;
  const ssize_t count = retry([&] { return ::pread(file, &byte, 0, 0); });
  if (count >= 0) return Status::ok();
  return failure("read", file).with_context("the filesystem went down during a sync");
}

Status PosixStorage::sync_filesystem(Handle handle) {
  return done(retry([&] { return ::syncfs(handle); }), "syncfs", handle);
}

// Pages of a write that failed are clean in the kernel's eyes, so they go as well.
void PosixStorage::drop_cache(Handle file) {
  static_cast<void>(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
}

Status PosixStorage::ftruncate(Handle handle, uint64_t size) {
  if (retry([&] { return ::ftruncate(handle, static_cast<off_t>(size)); }) < 0)
    return failure("truncate", handle, size, 0);
  return Status::ok();
}

Status PosixStorage::fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) {
  const auto call = [&] { return ::fallocate(handle, mode, static_cast<off_t>(offset), static_cast<off_t>(length)); };
  if (retry(call) < 0) return failure("fallocate", handle, offset, length);
  return Status::ok();
}

Result<uint64_t> PosixStorage::seek_data(Handle handle, uint64_t offset) {
  const off_t position = ::lseek(handle, static_cast<off_t>(offset), SEEK_DATA);
  if (position >= 0) return static_cast<uint64_t>(position);
  if (errno == ENXIO) return Status::error(StatusCode::kNotFound, "no data at or after this offset").at(-1, offset, 0);
  return failure("seek data in", handle, offset, 0);
}

Result<struct stat> PosixStorage::fstat(Handle handle) {
  struct stat attributes;
  if (::fstat(handle, &attributes) < 0) return failure("stat", handle);
  return attributes;
}

Result<struct statvfs> PosixStorage::fstatvfs(Handle handle) {
  struct statvfs space;
  if (retry([&] { return ::fstatvfs(handle, &space); }) < 0) return failure("statvfs", handle);
  return space;
}

Result<uint64_t> PosixStorage::filesystem_of(Handle handle) {
  struct statfs space;
  if (retry([&] { return ::fstatfs(handle, &space); }) < 0) return failure("statfs", handle);
  if (space.f_type != BTRFS_SUPER_MAGIC) return Storage::filesystem_of(handle);
  struct btrfs_ioctl_fs_info_args info {};
  if (::ioctl(handle, BTRFS_IOC_FS_INFO, &info) < 0) return failure("BTRFS_IOC_FS_INFO of", handle);
  uint64_t number;
  static_assert(sizeof number <= sizeof info.fsid);
  std::memcpy(&number, info.fsid, sizeof number);
  return number;
}

Result<std::string> PosixStorage::identity(Handle handle) {
  struct {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
  } known{};
  known.head.handle_bytes = sizeof known.bytes;
  int mount_id = 0;
  if (::name_to_handle_at(handle, "", &known.head, &mount_id, AT_EMPTY_PATH) < 0) return failure("identify", handle);
  std::string identity(sizeof known.head.handle_type, '\0');
  std::memcpy(identity.data(), &known.head.handle_type, sizeof known.head.handle_type);
  return identity.append(reinterpret_cast<const char*>(known.head.f_handle), known.head.handle_bytes);
}

void PosixStorage::start_writeback(Handle file) {
  static_cast<void>(::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
}

bool PosixStorage::overwrites_in_place(Handle handle) {
  const unsigned long kind = filesystem_kind(handle);
  return kind == EXT4_SUPER_MAGIC || kind == XFS_SUPER_MAGIC;
}

bool PosixStorage::syncs_own_names(Handle handle) {
  const unsigned long kind = filesystem_kind(handle);
  return kind == EXT4_SUPER_MAGIC || kind == XFS_SUPER_MAGIC || kind == BTRFS_SUPER_MAGIC;
}

bool PosixStorage::logs_names_in_order(Handle handle) {
  return filesystem_kind(handle) == XFS_SUPER_MAGIC;
}

Status PosixStorage::clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) {
  struct file_clone_range range {};
  range.src_fd = from;
  range.src_offset = from_offset;
  range.src_length = length;
  range.dest_offset = to_offset;
  if (retry([&] { return ::ioctl(to, FICLONERANGE, &range); }) < 0)
    return failure("share blocks with", to, to_offset, length);
  return Status::ok();
}

Result<uint64_t> PosixStorage::copy_range(Handle from, uint64_t from_offset, uint64_t length, Handle to,
                                          uint64_t to_offset) {
  auto source = static_cast<off64_t>(from_offset), target = static_cast<off64_t>(to_offset);
  const ssize_t copied = retry([&] { return ::copy_file_range(from, &source, to, &target, length, 0); });
  if (copied < 0) return failure("copy into", to, to_offset, length);
  return static_cast<uint64_t>(copied);
}

Result<bool> PosixStorage::has_shared_blocks(Handle file) {
  struct statfs space;
  if (retry([&] { return ::fstatfs(file, &space); }) < 0) return failure("statfs", file);
  if (space.f_type == EXT4_SUPER_MAGIC) return false;
  constexpr unsigned kExtents = 64;
  alignas(struct fiemap) std::array<char, sizeof(struct fiemap) + kExtents * sizeof(struct fiemap_extent)> memory{};
  auto& map = *reinterpret_cast<struct fiemap*>(memory.data());
  for (uint64_t offset = 0;;) {
    map = {};
    map.fm_start = offset;
    map.fm_length = FIEMAP_MAX_OFFSET - offset;
    map.fm_extent_count = kExtents;
    if (retry([&] { return ::ioctl(file, FS_IOC_FIEMAP, &map); }) < 0) {
      if (errno == EOPNOTSUPP || errno == ENOTTY) return true;  // nobody knows
      return failure("look for blocks of", file);
    }
    const auto* const extents = reinterpret_cast<const struct fiemap_extent*>(memory.data() + sizeof(struct fiemap));
    for (unsigned i = 0; i < map.fm_mapped_extents; ++i) {
      if ((extents[i].fe_flags & FIEMAP_EXTENT_SHARED) != 0) return true;
      if ((extents[i].fe_flags & FIEMAP_EXTENT_LAST) != 0) return false;
      offset = extents[i].fe_logical + extents[i].fe_length;
    }
    if (map.fm_mapped_extents == 0) return false;
  }
}

Status PosixStorage::lock(Handle handle, bool exclusive) {
  const int operation = (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  // Who looks at /proc/PID/fd (lsof, fuser) holds the file for a moment, and with it the lock of a process that is
  // gone.
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kPause{10};
  for (int tries = 1;; ++tries) {
    if (retry([&] { return ::flock(handle, operation); }) == 0) return Status::ok();
    if (errno != EWOULDBLOCK) return failure("lock", handle);
    if (tries == kTries)
      return Status::error(StatusCode::kBusy, fmt::format("lock {}: held by another process", path_of(handle)));
    std::this_thread::sleep_for(kPause);
  }
}

// --- names -----------------------------------------------------------------------------------------------------------

Result<struct stat> PosixStorage::stat_at(Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(check_name("stat", name));
  struct stat attributes;
  if (::fstatat(directory, name.c_str(), &attributes, AT_SYMLINK_NOFOLLOW) < 0) return failure("stat", directory, name);
  return attributes;
}

Status PosixStorage::make_directory(Handle directory, const std::string& name, mode_t mode) {
  FPFS_RETURN_IF_ERROR(check_name("mkdir", name));
  return done(::mkdirat(directory, name.c_str(), mode), "mkdir", directory, name);
}

Status PosixStorage::unlink(Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(check_name("unlink", name));
  return done(::unlinkat(directory, name.c_str(), 0), "unlink", directory, name);
}

Status PosixStorage::remove_directory(Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(check_name("rmdir", name));
  return done(::unlinkat(directory, name.c_str(), AT_REMOVEDIR), "rmdir", directory, name);
}

Status PosixStorage::rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                            unsigned flags) {
  FPFS_RETURN_IF_ERROR(check_name("rename", from_name));
  FPFS_RETURN_IF_ERROR(check_name("rename", to_name));
  // The plain call where it does, since some filesystems know no renameat2 flags.
  const long result = flags == 0 ? ::renameat(from, from_name.c_str(), to, to_name.c_str())
                                 : ::syscall(SYS_renameat2, from, from_name.c_str(), to, to_name.c_str(), flags);
  if (result == 0) return Status::ok();
  const int error = errno;
  const std::string operation = fmt::format("rename to {} of", to_name);
  errno = error;
  return failure(operation.c_str(), from, from_name);
}

Status PosixStorage::link(Handle handle, Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(check_name("link", name));
  int result = ::linkat(AT_FDCWD, ProcPath(handle).c_str(), directory, name.c_str(), AT_SYMLINK_FOLLOW);
  // AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH on older kernels, hence only where the first way does not lead to the node.
  if (result < 0 && (errno == ELOOP || errno == ENOENT || errno == EXDEV))
    result = ::linkat(handle, "", directory, name.c_str(), AT_EMPTY_PATH);
  return done(result, "link", directory, name);
}

Result<Storage::Place> PosixStorage::place_of(Handle handle) {
  const std::string path = path_of(handle);
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || path.ends_with(" (deleted)"))
    return Status::error(StatusCode::kNotFound, path + " has no place");
  struct stat directory;
  if (::lstat(path.substr(0, std::max<size_t>(slash, 1)).c_str(), &directory) < 0) return failure("stat above", handle);
  return Place{directory.st_ino, path.substr(slash + 1)};
}

Status PosixStorage::symlink(const std::string& target, Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(check_name("symlink", name));
  return done(::symlinkat(target.c_str(), directory, name.c_str()), "symlink", directory, name);
}

Result<std::string> PosixStorage::read_link(Handle handle) {
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlinkat(handle, "", target.data(), target.size());
  if (length >= 0) return std::string(target.data(), static_cast<size_t>(length));
  // The kernel says ENOENT for an empty path on what is no link; readlink(2) of a name says EINVAL.
  if (errno == ENOENT) errno = EINVAL;
  return failure("readlink", handle);
}

Status PosixStorage::make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) {
  FPFS_RETURN_IF_ERROR(check_name("mknod", name));
  return done(::mknodat(directory, name.c_str(), mode, device), "mknod", directory, name);
}

Status PosixStorage::read_directory(Handle directory, uint64_t position, size_t bytes,
                                    std::vector<DirectoryEntry>& entries) {
  std::vector<char> buffer(std::max(bytes, kDirectoryBytesMin));
  if (::lseek(directory, static_cast<off_t>(position), SEEK_SET) < 0) return failure("seek in directory", directory);
  const auto length = retry([&] { return ::syscall(SYS_getdents64, directory, buffer.data(), buffer.size()); });
  if (length < 0) return failure("read directory", directory);
  for (const char* at = buffer.data(); at < buffer.data() + length;) {
    const auto& entry = *reinterpret_cast<const struct dirent64*>(at);
    entries.push_back({entry.d_name, entry.d_ino, entry.d_type, static_cast<uint64_t>(entry.d_off)});
    at += entry.d_reclen;
  }
  return Status::ok();
}

Status PosixStorage::list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) {
  // An open file description of its own: concurrent listings must not share a position.
  FileDescriptor own(
      open_quietly(O_RDONLY | O_DIRECTORY, [&](int all_flags) { return ::openat(directory, ".", all_flags); }));
  if (!own.is_open()) return failure("open directory", directory);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own.number()), ::closedir);
  if (stream == nullptr) return failure("open directory", directory);
  own.release();  // the stream's
  for (;;) {
    errno = 0;
    const struct dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) return errno == 0 ? Status::ok() : failure("read directory", directory);
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (!visit({std::string(name), entry->d_ino, entry->d_type})) return Status::ok();
  }
}

// --- attributes ------------------------------------------------------------------------------------------------------

Status PosixStorage::chmod(Handle handle, mode_t mode) {
  return done(::chmod(ProcPath(handle).c_str(), mode), "chmod", handle);
}

Status PosixStorage::chown(Handle handle, uid_t uid, gid_t gid) {
  return done(::fchownat(handle, "", uid, gid, AT_EMPTY_PATH), "chown", handle);
}

Status PosixStorage::set_times(Handle handle, const struct timespec times[2]) {
  return done(::utimensat(handle, "", times, AT_EMPTY_PATH), "set times of", handle);
}

// The kernel's own way of moving it: a read. Setting it would move the change time as well.
void PosixStorage::note_access(Handle handle) {
  const FileDescriptor file(retry([&] { return ::open(ProcPath(handle).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
  if (!file.is_open()) return;
  std::array<char, 1024> bytes;
  if (::pread(file.number(), bytes.data(), 1, 0) < 0 && errno == EISDIR)
    static_cast<void>(::syscall(SYS_getdents64, file.number(), bytes.data(), bytes.size()));
}

// By the handle where it is a readable one, which costs less than the way through /proc.
Result<size_t> PosixStorage::get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) {
  ssize_t size = ::fgetxattr(handle, name.c_str(), value.data(), value.size());
  if (size < 0 && errno == EBADF) size = ::getxattr(ProcPath(handle).c_str(), name.c_str(), value.data(), value.size());
  if (size < 0) return failure("getxattr", handle);
  return static_cast<size_t>(size);
}

Status PosixStorage::set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) {
  return done(::setxattr(ProcPath(handle).c_str(), name.c_str(), value.data(), value.size(), flags), "setxattr",
              handle);
}

Result<size_t> PosixStorage::list_xattr(Handle handle, std::span<std::byte> names) {
  char* const list = reinterpret_cast<char*>(names.data());
  ssize_t size = ::flistxattr(handle, list, names.size());
  if (size < 0 && errno == EBADF) size = ::listxattr(ProcPath(handle).c_str(), list, names.size());
  if (size < 0) return failure("listxattr", handle);
  return static_cast<size_t>(size);
}

Status PosixStorage::remove_xattr(Handle handle, const std::string& name) {
  return done(::removexattr(ProcPath(handle).c_str(), name.c_str()), "removexattr", handle);
}

}  // namespace fpfs
