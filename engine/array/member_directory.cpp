#include "engine/array/member_directory.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "engine/array/superblock_copies.h"
#include "engine/base/proc_fields.h"
#include "engine/index/mount_record.h"
#include "engine/io/drive_failure.h"

namespace fpfs {
namespace {

// A lock file holds a process id; anything longer is not ours.
constexpr size_t kLockSizeMax = 32;
constexpr const char* kEndHolder =
    "unmount it there, or, where it was detached already (umount -l), end what has files open in it: they keep it "
    "alive";

std::string read_of_process(const std::string& process, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", process, name));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Who holds it, where that is a program that is known.
struct Program {
  std::string words;  // " (fsck.fastpersistfs -p /nvme0/fp)", of a mount with where that is; or nothing
  const char* what_to_do = kEndHolder;
};

// In another namespace of processes the number is somebody else's: only programs that are known count.
Program program_of(const std::string& process) {
  constexpr size_t kBeginning = 100, kEnd = 200;              // the mount point comes last
  const std::string comm = read_of_process(process, "comm");  // at most 15 bytes of its name
  const bool is_mount = comm.starts_with("fastpersistfs");
  if (!is_mount && comm.find(".fastpersis") == std::string::npos && comm.find("fpfs") == std::string::npos) return {};
  std::string words = read_of_process(process, "cmdline");
  if (words.empty()) return {};
  words.pop_back();  // the end of the last one
  std::replace(words.begin(), words.end(), '\0', ' ');
  if (words.size() > kBeginning + kEnd)
    words = words.substr(0, kBeginning) + " ... " + words.substr(words.size() - kEnd);
  return {fmt::format(" ({})", words), is_mount ? kEndHolder : "wait for its end"};
}

// Whoever writes is in one short call to a drive after the other. It is the drive that it waits for when it has been in
// the same one for a while.
HolderState settled_state(const std::string& process) {
  constexpr std::chrono::milliseconds kSameCallMin{1000}, kLook{50};
  const auto look = [&process](std::optional<uint64_t>* waits) {
    const std::string status = read_of_process(process, "status");
    *waits = proc_status_number(status, "voluntary_ctxt_switches");
    return holder_state(read_of_process(process, "stat"), status);
  };
  std::optional<uint64_t> first, now;
  HolderState state = look(&first);
  for (auto looked = kLook; state == HolderState::kAtDrive && looked <= kSameCallMin; looked += kLook) {
    std::this_thread::sleep_for(kLook);
    state = look(&now);
    if (state == HolderState::kAtDrive && now != first) return HolderState::kRuns;
  }
  return state;
}

// Who it is, and what to do. `holder`: its number, or nothing.
std::string describe_holder(const std::string& holder) {
  if (holder.empty()) return fmt::format("another process; {}", kEndHolder);
  const HolderState state = settled_state(holder);
  if (state == HolderState::kHasEnded)
    return fmt::format(
        "process {}; that has ended, but for a call to a drive that does not answer (or to the filesystem of a store "
        "of copies), and lets go when that answers or is taken out (dmesg)",
        holder);
  const Program program = program_of(holder);
  return fmt::format("process {}{}{}; {}", holder, program.words,
                     state == HolderState::kAtDrive
                         ? ", which is in a call to a drive; while that lasts, look at the drive (dmesg)"
                         : "",
                     program.what_to_do);
}

// Digits, or nothing.
std::string read_holder(Storage& storage, Handle lock) {
  std::array<std::byte, kLockSizeMax> buffer;
  const Result<size_t> size = storage.pread(lock, buffer, 0);
  std::string digits;
  for (size_t i = 0; size.is_ok() && i < *size; ++i) {
    const char c = static_cast<char>(buffer[i]);
    if (c < '0' || c > '9') break;
    digits += c;
  }
  return digits;
}

Status write_holder(Storage& storage, Handle lock) {
  const std::string text = fmt::format("{}\n", storage.process_id());
  FPFS_RETURN_IF_ERROR(storage.ftruncate(lock, 0));
  return storage.pwrite(lock, std::as_bytes(std::span(text)), 0);
}

Result<bool> is_empty(Storage& storage, Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(directory, name, O_RDONLY | O_DIRECTORY));
  const ScopedHandle scoped(storage, handle);
  bool empty = true;
  FPFS_RETURN_IF_ERROR(storage.list(handle, [&](const DirectoryEntry&) { return empty = false; }));
  return empty;
}

}  // namespace

HolderState holder_state(std::string_view stat, std::string_view status) {
  constexpr unsigned kStateField = 3, kFlagsField = 9;
  constexpr uint64_t kExiting = 0x4;                    // PF_EXITING
  constexpr uint64_t kKilled = uint64_t{1} << (9 - 1);  // SIGKILL, not taken yet
  const std::string_view state = proc_stat_field(stat, kStateField);
  // Its first thread has; others of it are left.
  if (state == "Z") return HolderState::kHasEnded;
  if (state != "D") return HolderState::kRuns;
  const uint64_t flags = proc_stat_number(stat, kFlagsField).value_or(0);
  const uint64_t pending =
      proc_status_number(status, "SigPnd", 16).value_or(0) | proc_status_number(status, "ShdPnd", 16).value_or(0);
  return (flags & kExiting) != 0 || (pending & kKilled) != 0 ? HolderState::kHasEnded : HolderState::kAtDrive;
}

bool is_object_directory_name(const std::string& name) {
  return name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// objects/ as format leaves it: nothing but empty directories 00 .. ff.
Result<bool> holds_no_object(Storage& storage, Handle directory) {
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(directory, kObjectsName, O_RDONLY | O_DIRECTORY));
  const ScopedHandle objects(storage, handle);
  bool hollow = true;
  std::vector<std::string> names;
  FPFS_RETURN_IF_ERROR(storage.list(handle, [&](const DirectoryEntry& entry) {
    names.push_back(entry.name);
    return hollow = is_object_directory_name(entry.name);
  }));
  for (size_t i = 0; hollow && i < names.size(); ++i) {
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.stat_at(handle, names[i]));
    if (!S_ISDIR(attributes.st_mode)) return false;
    FPFS_ASSIGN_OR_RETURN(hollow, is_empty(storage, handle, names[i]));
  }
  return hollow;
}

namespace {

// Of the files that a format writes before the superblock; nothing of value is lost with them.
std::optional<size_t> size_max_of(const std::string& name) {
  if (name == kLockName) return kLockSizeMax;
  if (name == kSuperblockNewName) return kSuperblockSize;
  if (name == kSuperblocksName || name == kSuperblocksNewName) return kSuperblocksSizeMax;
  if (name == kMountName || name == kMountNewName) return kMountRecordSize;
  return std::nullopt;
}

// Whether a file of a name that is not ours alone has content that is.
bool is_our_content(Storage& storage, Handle directory, const std::string& name) {
  if (name == kSuperblocksName) return !read_superblock_copies(storage, directory).empty();
  if (name != kMountName) return true;
  const Result<std::vector<std::byte>> bytes = read_small_file(storage, directory, name, kMountRecordSize);
  return bytes.is_ok() && decode_mount_record(*bytes).is_ok();
}

// Whether an entry with one of our names is as an interrupted format leaves it.
Result<bool> is_worthless(Storage& storage, Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.stat_at(directory, name));
  if (const std::optional<size_t> size_max = size_max_of(name))
    return S_ISREG(attributes.st_mode) && attributes.st_size <= static_cast<off_t>(*size_max) &&
           is_our_content(storage, directory, name);
  if (!S_ISDIR(attributes.st_mode)) return false;
  return name == kObjectsName ? holds_no_object(storage, directory) : is_empty(storage, directory, name);
}

bool is_our_name(const std::string& name) {
  return size_max_of(name).has_value() || name == kObjectsName || name == kTreeName || name == kStateName;
}

}  // namespace

Status refuse(StatusCode code, const std::string& path, const std::string& what) {
  return Status::error(code, fmt::format("{}: {}", path, what));
}

Status refuse_failed(const std::string& path, const Status& failure, const char* without_it) {
  if (failure.errno_value() == ENOTDIR)
    return refuse(failure.code(), path, "Not a directory; name directories, one on each drive");
  if (failure.code() == StatusCode::kPermission)
    return refuse(failure.code(), path, "Permission denied; run this as root, or as the user whose directory it is");
  if (is_drive_failure(failure))
    return refuse(
        failure.code(), path,
        fmt::format("{}; its drive fails or is gone (dmesg says more): bring it back, or leave this directory "
                    "out of the list{}",
                    failure.message(), without_it));
  return failure.with_context(path);
}

void split_path(const std::string& path, std::string* parent, std::string* name) {
  const size_t end = path.find_last_not_of('/');
  const std::string trimmed = end == std::string::npos ? "/" : path.substr(0, end + 1);
  const size_t slash = trimmed.rfind('/');
  *name = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
  *parent = slash == std::string::npos ? "." : slash == 0 ? "/" : trimmed.substr(0, slash);
}

bool is_link_to_nowhere(Storage& storage, const std::string& path) {
  std::string place, name;
  split_path(path, &place, &name);
  const Result<Handle> opened = storage.open_directory(place);
  if (!opened.is_ok()) return false;
  const ScopedHandle above(storage, *opened);
  const Result<struct stat> found = storage.stat_at(above.get(), name);
  return found.is_ok() && S_ISLNK(found->st_mode);
}

Result<Identity> identity_of(Storage& storage, Handle handle) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(handle));
  return Identity{attributes.st_dev, attributes.st_ino};
}

void for_each_above(Storage& storage, const std::string& path, Identity identity,
                    const std::function<bool(Handle directory, const Identity& identity)>& visit) {
  constexpr int kDepthMax = 256;
  std::string up = path;
  for (int depth = 0; depth < kDepthMax; ++depth) {
    up += "/..";
    const Result<Handle> handle = storage.open_directory(up);
    // A directory that we may pass through but not read can be none that we were given.
    if (!handle.is_ok() && handle.status().code() == StatusCode::kPermission) continue;
    if (!handle.is_ok()) break;
    const ScopedHandle directory(storage, *handle);
    const Result<Identity> parent = identity_of(storage, *handle);
    if (!parent.is_ok() || *parent == identity) break;  // the root is its own parent
    if (!visit(*handle, *parent)) break;
    identity = *parent;
  }
}

std::vector<Identity> ancestors_of(Storage& storage, const std::string& path, Identity identity) {
  std::vector<Identity> ancestors;
  for_each_above(storage, path, identity, [&ancestors](Handle, const Identity& above) {
    ancestors.push_back(above);
    return true;
  });
  return ancestors;
}

const char* put_back(std::string_view part) {
  return part == kObjectsName
             ? "Put it back if somebody moved it, or the drive's own fsck did, into its lost+found; if "
               "it is lost, fsck.fastpersistfs -y makes it anew, empty, and sets aside the files that "
               "had something there, and without this directory ro and degraded read what the others "
               "hold"
             : "Put it back if somebody moved it, or the drive's own fsck did, into its lost+found; "
               "it has the names of all files, which nobody can find without";
}

std::string object_directory_name(unsigned index) {
  return fmt::format("{:02x}", index);
}

Result<std::vector<std::byte>> read_superblock_file(Storage& storage, Handle directory) {
  return read_small_file(storage, directory, kSuperblockName, kSuperblockSize);
}

Result<std::vector<std::byte>> read_small_file(Storage& storage, Handle directory, const std::string& name,
                                               size_t size_max) {
  // Looked at before it is opened: opening a FIFO would wait for ever.
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.stat_at(directory, name));
  if (!S_ISREG(attributes.st_mode))
    return Status::error(StatusCode::kCorruption, fmt::format("the entry '{}' is not a regular file", name));
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(directory, name, O_RDONLY));
  const ScopedHandle file(storage, handle);
  std::vector<std::byte> bytes(size_max + 1);
  FPFS_ASSIGN_OR_RETURN(const size_t size, storage.pread(handle, bytes, 0));
  bytes.resize(size);
  return bytes;
}

Status replace_file(Storage& storage, Handle directory, const std::string& name, const std::string& new_name,
                    std::span<const std::byte> bytes) {
  const Result<struct stat> before = storage.stat_at(directory, name);
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(directory, new_name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  ScopedHandle file(storage, handle);
  // Root's mount does not take it from the user whose array it is.
  const Result<struct stat> made = storage.fstat(handle);
  if (before.is_ok() && made.is_ok() && (before->st_uid != made->st_uid || before->st_gid != made->st_gid))
    static_cast<void>(storage.chown(handle, before->st_uid, before->st_gid));
  FPFS_RETURN_IF_ERROR(storage.pwrite(handle, bytes, 0));
  FPFS_RETURN_IF_ERROR(storage.fsync(handle));
  file.reset();
  FPFS_RETURN_IF_ERROR(storage.rename(directory, new_name, directory, name, 0));
  return storage.fsync(directory);
}

namespace {

// A member that was taken out, with nothing left on it.
bool says_it_was_removed(Storage& storage, Handle directory) {
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, directory);
  if (!bytes.is_ok()) return false;
  const Result<Superblock> superblock = decode_superblock(*bytes, false);
  return superblock.is_ok() && was_removed(*superblock);
}

}  // namespace

Result<DirectoryFindings> examine_directory(Storage& storage, Handle directory) {
  DirectoryFindings findings;
  std::vector<std::string> names;
  FPFS_RETURN_IF_ERROR(storage.list(directory, [&](const DirectoryEntry& entry) {
    names.push_back(entry.name);
    return true;
  }));
  for (const std::string& name : names) {
    bool worthless = false;
    if (name == kSuperblockName) {
      findings.has_superblock = true;
      worthless = says_it_was_removed(storage, directory);
    } else if (name == kFormerName) {
      findings.has_former = true;
    } else if (is_our_name(name) || name == kLostFoundName) {
      const Result<bool> looked = is_worthless(storage, directory, name);
      if (looked.status().code() == StatusCode::kNotFound) continue;  // a daemon that ends takes some with it
      FPFS_RETURN_IF_ERROR(looked.status());
      worthless = *looked;
      if (!worthless && is_our_name(name)) findings.foreign_entry = name;
    }
    if (!worthless && findings.first_entry.empty()) findings.first_entry = name;
    findings.blank = findings.blank && worthless;
  }
  if (findings.has_superblock || findings.has_former) findings.foreign_entry.clear();
  return findings;
}

Result<bool> has_direct_io(Storage& storage, Handle directory, const char* name) {
  alignas(kIoAlignment) std::array<std::byte, kIoAlignment> block;
  const Result<Handle> opened = storage.open_at(directory, name, O_RDONLY | O_DIRECT);
  Status status = opened.status();
  if (opened.is_ok()) {
    const ScopedHandle file(storage, *opened);
    status = storage.pread(*opened, block, 0).status();
  }
  if (status.is_ok()) return true;
  if (status.errno_value() == EINVAL || status.errno_value() == EOPNOTSUPP) return false;
  return status;
}

Result<ScopedHandle> lock_member(Storage& storage, Handle directory, const std::string& path, LockMode mode,
                                 bool create) {
  const int creation = create ? O_CREAT : 0;
  bool writable = true;
  Result<Handle> opened = storage.open_at(directory, kLockName, O_RDWR | O_NONBLOCK | creation, 0600);
  if (!opened.is_ok() && mode == LockMode::kShared) {
    writable = false;
    opened = storage.open_at(directory, kLockName, O_RDONLY | O_NONBLOCK);
    // Reading from media that nobody can write, where nothing was ever locked.
    if (opened.status().code() == StatusCode::kNotFound) return ScopedHandle();
  }
  if (!opened.is_ok() && !create && opened.status().code() == StatusCode::kNotFound) return ScopedHandle();
  if (opened.status().code() == StatusCode::kReadOnly)
    return Status::error(
        StatusCode::kReadOnly,
        fmt::format("{}: its drive is read-only: make it writable. To read what is there, mount the array with ro; to "
                    "check it, fsck.fastpersistfs -n",
                    path));
  if (!opened.is_ok()) return refuse_failed(path, opened.status());
  ScopedHandle lock(storage, *opened);
  const Status locked = storage.lock(lock.get(), mode == LockMode::kExclusive);
  if (locked.code() == StatusCode::kBusy) {
    return Status::error(StatusCode::kBusy, fmt::format("{}: the array is held by {}", path,
                                                        describe_holder(read_holder(storage, lock.get()))));
  }
  FPFS_RETURN_IF_ERROR(locked.with_context(path));
  if (writable) {
    const Status written = write_holder(storage, lock.get());
    // To readers the note is a courtesy.
    if (!written.is_ok() && mode == LockMode::kExclusive) return written.with_context(path);
  }
  return lock;
}

std::string describe_member(MemberIndex member_index) {
  return member_index == kMetadataOnlyMember ? "the metadata directory" : fmt::format("member {}", member_index);
}

}  // namespace fpfs
