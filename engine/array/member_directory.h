// What format and open both need to know about one directory of the host: which directory it is, what lies in it, who
// holds it. Internal to engine/array. Nothing here changes a directory, except lock_member() where it says so.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/index/superblock.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/storage.h"

namespace fpfs {

// The names in a member directory.
constexpr const char* kSuperblockName = "superblock";
constexpr const char* kSuperblockNewName = "superblock.new";  // until it is renamed: a crash in between leaves it
constexpr const char* kSuperblocksName = "superblocks";
constexpr const char* kSuperblocksNewName = "superblocks.new";
constexpr const char* kMountName = "mount";
constexpr const char* kMountNewName = "mount.new";
constexpr const char* kLockName = "lock";
constexpr const char* kObjectsName = "objects";
constexpr const char* kTreeName = "tree";
constexpr const char* kStateName = "state";
constexpr const char* kCommitsName = "commits";
constexpr const char* kScrubName = "scrub";
constexpr const char* kScrubNewName = "scrub.new";
constexpr const char* kTierName = "tier";
constexpr const char* kTierNewName = "tier.new";
constexpr const char* kTierLostName = "tier-lost";
constexpr const char* kTierLostNewName = "tier-lost.new";
constexpr const char* kLostFoundName = "lost+found";
// Holds what a forced format is removing; its presence says that the removal has not finished.
constexpr const char* kFormerName = ".fastpersistfs-former";

// Tells whether two paths lead to one directory.
struct Identity {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const Identity&) const = default;
};

// Why a directory is not taken: "PATH: WHAT".
Status refuse(StatusCode code, const std::string& path, const std::string& what);
// The same of one where a call has failed, with what to do about that; ok where none has. `without_it`: what the list
// without this directory is good for, behind the advice to leave out one whose drive fails.
Status refuse_failed(const std::string& path, const Status& failure, const char* without_it = "");

Result<Identity> identity_of(Storage& storage, Handle handle);

// "/a/b/" is name "b" in "/a"; "b" is in ".".
void split_path(const std::string& path, std::string* parent, std::string* name);

inline constexpr const char* kLeadsNowhere =
    "it is a symbolic link that leads nowhere; is the drive behind it mounted?";
// Of a path that does not open.
bool is_link_to_nowhere(Storage& storage, const std::string& path);

// Calls visit for each directory that a directory lies in, nearest first, until it says no. Best effort: ends early where
// the way up is not known.
void for_each_above(Storage& storage, const std::string& path, Identity identity,
                    const std::function<bool(Handle directory, const Identity& identity)>& visit);
std::vector<Identity> ancestors_of(Storage& storage, const std::string& path, Identity identity);

// What to do about a member that has lost `objects` or `tree`, as a sentence.
const char* put_back(std::string_view part);

inline constexpr unsigned kObjectDirectories = 256;
// "objects/00" .. "objects/ff".
std::string object_directory_name(unsigned index);

// The bytes of `superblock`, at most kSuperblockSize + 1 of them (so that a longer file shows). kNotFound when there is
// none; kCorruption when it is not a regular file.
Result<std::vector<std::byte>> read_superblock_file(Storage& storage, Handle directory);
// The same for any small file of a member directory.
Result<std::vector<std::byte>> read_small_file(Storage& storage, Handle directory, const std::string& name,
                                               size_t size_max);

// Makes `name` hold these bytes, whole or not at all: written under `new_name` first. What is there keeps its owner, where
// the caller may see to it. Durable on return.
Status replace_file(Storage& storage, Handle directory, const std::string& name, const std::string& new_name,
                    std::span<const std::byte> bytes);

// What a process that holds a lock is at, by its /proc/PID/stat and /proc/PID/status; empty: nobody may see it. Pure.
enum class HolderState : uint8_t {
  kRuns,      // for all that is known
  kAtDrive,   // in a call to a drive (state D), which may end in a moment
  kHasEnded,  // but for such a call, which no signal ends: the lock is held until the drive answers
};
HolderState holder_state(std::string_view stat, std::string_view status);

// What lies in a directory that someone wants to format.
struct DirectoryFindings {
  // Nothing of value: empty, what an interrupted format left before it wrote the superblock, or what is left of a member
  // that was removed. A file system's own empty lost+found and a lock file count as nothing.
  bool blank = true;
  bool has_superblock = false;  // a file of that name, whatever its content
  bool has_former = false;      // a forced format was interrupted
  std::string first_entry;      // an entry that makes it not blank, for messages
  // An entry that has one of our names but, with no superblock beside it, may be someone else's.
  std::string foreign_entry;
};
Result<DirectoryFindings> examine_directory(Storage& storage, Handle directory);

// Why a filesystem is refused.
constexpr const char* kNeedsDirectIo =
    "its filesystem does not do O_DIRECT, which the array needs; use a directory on XFS, ext4 or btrfs";

// "00" to "ff".
bool is_object_directory_name(const std::string& name);

// Whether `objects` is there and holds nothing but its empty directories.
Result<bool> holds_no_object(Storage& storage, Handle directory);

// Whether O_DIRECT works in a directory that has `name`, a file of whole aligned blocks. By trying: what a filesystem
// says of itself is not reliable (FUSE, overlay, encryption).
Result<bool> has_direct_io(Storage& storage, Handle directory, const char* name);

// Opens `lock` in a member directory and locks it. kBusy names the process that holds it. Exclusive: writes our process
// id into it. Shared: writes it if the filesystem lets us. `create`: makes the file when it is missing; without it, a
// missing file gives no handle and no failure.
enum class LockMode : uint8_t { kShared, kExclusive };
Result<ScopedHandle> lock_member(Storage& storage, Handle directory, const std::string& path, LockMode mode,
                                 bool create);

// "member 2" or "metadata directory".
std::string describe_member(MemberIndex member_index);

}  // namespace fpfs
