// Storage: every system call that the engine makes on a member directory or on the namespace tree, as an interface.
//
// PosixStorage passes each call to the kernel. SimStorage (tests) keeps a small filesystem in memory that tells synced
// state from unsynced state and can cut the power, so the protocols above are proved without a drive.
//
// Handles are small non-negative integers (PosixStorage: file descriptors, close-on-exec). A handle is closed exactly
// once. Paths are one component relative to a directory handle, "." and ".." excepted, never followed through a
// symbolic link and never across a mount (EXDEV), so nothing under a member can lead the daemon outside it.
//
// Durability, as a local filesystem with a journal gives it, and no more:
// - fdatasync of a file makes its content, size and allocation durable, fsync also its attributes and its own names;
// - a name made, removed or replaced in a directory is durable after fsync of that directory;
// - rename is atomic: after a power cut the old or the new state of both names.
//
// Thread safety: all methods may be called from any thread. They block. Bulk data goes through IoQueue instead.
// Errors: Status::from_errno of the failed call; no call is retried except for EINTR.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/io/stall_domain.h"

namespace fpfs {

using Handle = int;
constexpr Handle kNoHandle = -1;

struct DirectoryEntry {
  std::string name;  // never "." or ".."
  uint64_t inode = 0;
  unsigned char type = 0;  // DT_REG, DT_DIR, ... or DT_UNKNOWN
  uint64_t next = 0;       // read_directory(): the position behind it
};

class Storage {
 public:
  virtual ~Storage() = default;

  // --- handles ---------------------------------------------------------------------------------------------------
  // Opens the directory at an absolute or relative path of the host (the only call that takes a whole path).
  virtual Result<Handle> open_directory(const std::string& path) = 0;
  // openat(2). `flags` are the kernel's (O_RDWR, O_CREAT, O_EXCL, O_DIRECT, O_PATH, O_DIRECTORY, ...); O_NOFOLLOW and
  // O_CLOEXEC are added. Never waits, not even for what turns out to be a FIFO.
  virtual Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode = 0) = 0;
  // Reading through a handle leaves the access time alone (O_NOATIME is added where the caller may use it).
  // A second handle with other flags on what `handle` (maybe an O_PATH handle) refers to.
  virtual Result<Handle> reopen(Handle handle, int flags) = 0;
  // Another handle of the same open file, as dup(2): with its flags, and what one is told by a sync the other is not.
  // A tenth of the cost of reopen().
  virtual Result<Handle> duplicate(Handle handle) = 0;
  virtual void close(Handle handle) = 0;
  // For a handle that other threads may be about to use: what it was opened on is let go of, its lock with it, and is
  // reached by it no more. Its number stays taken until close(). A failure: nothing has changed.
  virtual Status retire(Handle handle) = 0;
  // Says what the handle, and every handle opened through it from now on, belongs to (stall_domain.h), for a storage
  // that watches its calls.
  virtual void assign_domain(Handle handle, StallDomain domain) {
    static_cast<void>(handle);
    static_cast<void>(domain);
  }
  // Where a handle leads at this moment, for messages only.
  virtual std::string describe(Handle handle) { return "handle " + std::to_string(handle); }

  // --- files -----------------------------------------------------------------------------------------------------
  // Whole transfers: short counts are continued inside; a read at end of file returns fewer bytes than asked for.
  virtual Result<size_t> pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) = 0;
  // The drive may read these bytes of a file ahead: somebody will ask for them. Best effort; does not wait for them.
  virtual void read_ahead(Handle file, uint64_t offset, uint64_t length) {
    static_cast<void>(file), static_cast<void>(offset), static_cast<void>(length);
  }
  virtual Status pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) = 0;
  virtual Status fsync(Handle handle) = 0;      // files and directories
  virtual Status fdatasync(Handle handle) = 0;  // files
  // Whether the filesystem of a regular file, open for reading, still runs. A sync counts only when this is true after
  // it: a filesystem that goes down meanwhile, because its drive failed or vanished, may find nothing left to write and
  // let the sync return 0 (XFS: xfs_log_force_inode; ext4: jbd2_complete_transaction; Linux 6.18). Both refuse every
  // read from before they give anything up.
  virtual Status check_running(Handle file) {
    static_cast<void>(file);
    return Status::ok();
  }
  // syncfs(2): everything on the filesystem that `handle` is on, names too.
  virtual Status sync_filesystem(Handle handle) { return fsync(handle); }
  // The drive may begin to write what is in memory of a file: a sync of it follows. Best effort; does not wait.
  virtual void start_writeback(Handle file) { static_cast<void>(file); }
  // What is in memory of a regular file and need not be written is forgotten, so that it is read from the drive. After
  // a sync that failed the two differ: what could not be written is kept in memory and no longer counts as dirty. Best
  // effort: what is in use stays.
  virtual void drop_cache(Handle file) { static_cast<void>(file); }
  virtual Status ftruncate(Handle handle, uint64_t size) = 0;
  // fallocate(2) with the kernel's mode bits.
  virtual Status fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) = 0;
  // lseek(2) with SEEK_DATA; kNotFound when there is no data at or after `offset`.
  virtual Result<uint64_t> seek_data(Handle handle, uint64_t offset) = 0;
  virtual Result<struct stat> fstat(Handle handle) = 0;
  virtual Result<struct statvfs> fstatvfs(Handle handle) = 0;
  // What the filesystem knows the inode of a handle by, an O_PATH handle too, as name_to_handle_at(2) tells it: the same
  // whatever names it has, and never another's, also when its number is used again. Any bytes, 128 at most. kUnsupported
  // and others: nobody can say.
  virtual Result<std::string> identity(Handle handle) {
    return Status::error(StatusCode::kUnsupported, "tell the identity of " + describe(handle));
  }
  // A number that handles on one filesystem share: they share its space. Subvolumes of one btrfs differ in st_dev only.
  virtual Result<uint64_t> filesystem_of(Handle handle) {
    const Result<struct stat> attributes = fstat(handle);
    if (!attributes.is_ok()) return attributes.status();
    return uint64_t{attributes->st_dev};
  }
  // What is true of the filesystem that a handle is on, as far as that is known; else false. Writing over written blocks
  // of a file leaves them where they are:
  virtual bool overwrites_in_place(Handle handle) = 0;
  // fsync() of a file makes durable, too, what was done to its own names. So it is where making, linking or renaming a
  // file is one transaction with a change of its inode, and transactions become durable in order: XFS (xfs_file_fsync()
  // forces the log up to the inode's newest) and ext4 (ext4_sync_file() waits for i_sync_tid). btrfs logs the names with
  // the inode, and ancestors that are new (btrfs_log_inode_parent(), btrfs_log_new_name()). An exchange of names need not
  // be covered: XFS logs the directories only, not the files. (Since Linux 6.18 their sync covers it all the same, as it
  // goes by the last transaction that the inode was part of, logged or not.) Read in Linux 6.18.
  virtual bool syncs_own_names(Handle handle) = 0;
  // All that was done to names before becomes durable with such a sync, in the order in which it was done, so that the
  // directory of a new, a linked or a renamed file needs none of its own: XFS. btrfs does not log a directory above that
  // was renamed; ext4 has no order without a journal, and shares its number with ext2.
  virtual bool logs_names_in_order(Handle handle) = 0;
  // ioctl_ficlonerange(2): from now on bytes [to_offset, to_offset + length) of `to` are those that `from` has there at
  // `from_offset`, in the same blocks of the drive, which the filesystem counts: whoever writes there gets blocks of
  // his own, and a block is free when nobody has it any more. `to` becomes as long as that needs. Two files, of one
  // filesystem; offsets and length in whole blocks of it. Durable like what was written to `to`, by a sync of it, given
  // that what is cloned is durable in `from`. When it fails, some of the range may be shared. kUnsupported and others
  // (EXDEV, EINVAL): these two cannot share, or no files of that filesystem.
  virtual Status clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) {
    static_cast<void>(from_offset), static_cast<void>(length), static_cast<void>(to), static_cast<void>(to_offset);
    return Status::error(StatusCode::kUnsupported, "share blocks of " + describe(from));
  }
  // copy_file_range(2): copies up to `length` bytes of a file into another one, within the filesystem (NFS 4.2, CephFS,
  // SMB: on the server) or the kernel, and returns how many: fewer where `from` ends or anywhere, 0 at its end. Durable
  // after a sync of `to`. kUnsupported, and errors that from_errno() knows no better (EXDEV, EINVAL): read and write.
  virtual Result<uint64_t> copy_range(Handle from, uint64_t from_offset, uint64_t length, Handle to,
                                      uint64_t to_offset) {
    static_cast<void>(from_offset), static_cast<void>(length), static_cast<void>(to), static_cast<void>(to_offset);
    return Status::error(StatusCode::kUnsupported, "copy " + describe(from));
  }
  // Whether some block of the file is one of another file, too. True also where that may be.
  virtual Result<bool> has_shared_blocks(Handle file) {
    static_cast<void>(file);
    return false;
  }
  // Takes an exclusive (or shared) advisory lock on an open file; kBusy when another holds it for more than a moment.
  virtual Status lock(Handle handle, bool exclusive) = 0;
  // Who holds the locks of this process: getpid(2). A simulation has one of its own, as the length of what is written
  // about it would otherwise change with the number that the kernel happens to give.
  virtual pid_t process_id() const { return ::getpid(); }

  // --- names -----------------------------------------------------------------------------------------------------
  virtual Result<struct stat> stat_at(Handle directory, const std::string& name) = 0;  // not followed
  virtual Status make_directory(Handle directory, const std::string& name, mode_t mode) = 0;
  virtual Status unlink(Handle directory, const std::string& name) = 0;
  virtual Status remove_directory(Handle directory, const std::string& name) = 0;
  // renameat2(2); flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT or 0.
  virtual Status rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                        unsigned flags) = 0;
  // A further hard link to what `handle` refers to.
  virtual Status link(Handle handle, Handle directory, const std::string& name) = 0;
  // Where the name is that a handle was opened by, as far as the kernel knows: the directory's inode number and the
  // name in it. kNotFound when it was removed.
  struct Place {
    uint64_t directory = 0;
    std::string name;
  };
  virtual Result<Place> place_of(Handle handle) {
    return Status::error(StatusCode::kUnsupported, "the place of " + describe(handle));
  }
  virtual Status symlink(const std::string& target, Handle directory, const std::string& name) = 0;
  virtual Result<std::string> read_link(Handle handle) = 0;  // an O_PATH handle of the link itself
  virtual Status make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) = 0;
  // Appends the entries of a directory from a position on, as many as fit `bytes` (at least kDirectoryBytesMin) of
  // struct linux_dirent64; none at its end. 0 is the beginning, any other position one that an entry had as `next`:
  // the filesystem's own, which stays what it is while names come and go. With "." and "..", and what else the
  // filesystem lists. Of a handle opened O_RDONLY | O_DIRECTORY, which one thread at a time reads.
  static constexpr size_t kDirectoryBytesMin = 1024;
  virtual Status read_directory(Handle directory, uint64_t position, size_t bytes,
                                std::vector<DirectoryEntry>& entries) {
    static_cast<void>(position), static_cast<void>(bytes), static_cast<void>(entries);
    return Status::error(StatusCode::kUnsupported, "read a part of " + describe(directory));
  }
  // Calls `visit` for every entry; stops early when it returns false. The directory may be an O_PATH handle.
  virtual Status list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) = 0;

  // --- attributes: `handle` may be an O_PATH handle, also of a symbolic link --------------------------------------
  virtual Status chmod(Handle handle, mode_t mode) = 0;
  virtual Status chown(Handle handle, uid_t uid, gid_t gid) = 0;                // (uid_t)-1, (gid_t)-1: unchanged
  virtual Status set_times(Handle handle, const struct timespec times[2]) = 0;  // UTIME_NOW and UTIME_OMIT count
  // Moves the access time of a file or directory as reading it would, by the rules of its filesystem's mount (relatime,
  // noatime, ...) and without moving its change time. Best effort: a read does not fail for its access time.
  virtual void note_access(Handle handle) { static_cast<void>(handle); }
  virtual Result<size_t> get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) = 0;
  virtual Status set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) = 0;
  virtual Result<size_t> list_xattr(Handle handle, std::span<std::byte> names) = 0;
  virtual Status remove_xattr(Handle handle, const std::string& name) = 0;
};

}  // namespace fpfs
