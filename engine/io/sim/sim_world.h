// The filesystems of a simulated world: inodes, names, and the journal of names that are not durable yet.
//
// Names are metadata, and every filesystem that matters journals metadata: each operation (a rename with both its
// names) is atomic, and operations that touch a common directory become durable in order. A power cut keeps a prefix of
// the journal (JournalOrder::kWhole, as ext4 and XFS behave), or, weaker (kPerDirectory), drops operations of unrelated
// directories independently of each other; code that passes under both leans on no more than storage.h promises.
//
// Thread safety: none; SimStorage's mutex guards it. Copyable: a copy shares file pages until one side writes.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/io/sim/sim_content.h"
#include "engine/io/sim/sim_random.h"

namespace fpfs {

// Where in an array an inode lives: what fault plans and planted bugs aim at. Inherited from the directory it is made
// in.
enum class SimRole : uint8_t { kOther, kObjects, kTree };

struct SimAttributes {
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  struct timespec atime {
  }, mtime{}, ctime{};
  std::map<std::string, std::vector<std::byte>> xattrs;
};

struct SimInode {
  uint64_t number = 0;
  unsigned filesystem = 0;
  SimRole role = SimRole::kOther;
  dev_t special_device = 0;
  std::string link_target;
  SimAttributes attributes, durable_attributes;
  SimContent content;
  std::map<std::string, uint64_t> entries, durable_entries;
  uint64_t parent = 0;  // of a directory, as calls see it

  // What keeps the inode in the world.
  unsigned names = 0;          // visible entries that lead here
  unsigned durable_names = 0;  // durable entries that lead here
  unsigned pending = 0;        // mentions in the journal
  unsigned handles = 0;
  bool unnamed_may_be_linked = false;  // O_TMPFILE

  bool is_directory() const { return S_ISDIR(attributes.mode); }
  bool is_regular() const { return S_ISREG(attributes.mode); }
  bool is_symlink() const { return S_ISLNK(attributes.mode); }
};

// One directory entry before and after (inode numbers; 0: absent).
struct SimNameChange {
  uint64_t directory = 0;
  std::string name;
  uint64_t before = 0, after = 0;
};

// Atomic. `directories`: all that it touches, for ordering (a directory made or removed is touched itself).
struct SimNameOperation {
  std::vector<SimNameChange> changes;
  std::set<uint64_t> directories;
};

// A filesystem with at least this capacity is never full, and its use is not counted.
constexpr uint64_t kSimCapacityUnlimited = uint64_t{1} << 40;

struct SimFilesystem {
  enum class JournalOrder : uint8_t { kWhole, kPerDirectory };
  std::string mount_path;  // "/m0"
  uint64_t root = 0;
  uint64_t capacity_bytes = kSimCapacityUnlimited;
  JournalOrder order = JournalOrder::kWhole;
  bool has_direct_io = true;
  bool shares_blocks = true;
  bool syncs_own_names = false;  // fsync of a file makes durable what was done to its names
  std::vector<SimNameOperation> journal;
};

class SimWorld {
 public:
  // Makes "/" and an empty filesystem at each path.
  explicit SimWorld(const std::vector<std::string>& mount_paths);

  SimInode& inode(uint64_t number) { return inodes_.at(number); }
  const SimInode& inode(uint64_t number) const { return inodes_.at(number); }
  SimFilesystem& filesystem(unsigned index) { return filesystems_[index]; }
  const SimFilesystem& filesystem(unsigned index) const { return filesystems_[index]; }
  unsigned filesystem_count() const { return static_cast<unsigned>(filesystems_.size()); }
  // The inode at an absolute path of whole components; 0 when there is none.
  uint64_t find(const std::string& path) const;
  bool has(uint64_t number) const { return inodes_.contains(number); }
  uint64_t lookup(const SimInode& directory, const std::string& name) const;
  std::string path_of(uint64_t number) const;
  uint64_t used_bytes(unsigned filesystem) const;

  SimInode& create(unsigned filesystem, SimRole role, mode_t mode);
  // Does one operation as calls see it and notes it in the journal.
  void change_names(unsigned filesystem, std::vector<SimNameChange> changes, std::set<uint64_t> also_touched = {});
  // fsync of a directory: all that was done to names in it. Of anything else: what was done to its own names, where the
  // filesystem does that.
  void sync_names(uint64_t number);
  void sync_filesystem(unsigned index);
  // What was to be synced may be on the drive. Content that is not is lost (SimContent::sync_failed); names and
  // attributes, which are journaled, wait for the next sync.
  void sync_filesystem_failed(unsigned index, SimRandom& random);
  // Forgets an inode that nothing refers to any more.
  void collect(uint64_t number);
  void crash(SimRandom& random);
  void end_transfers(SimRandom& random);

  template <typename Visit>
  void for_each_inode(Visit visit) const {
    for (const auto& [number, inode] : inodes_) visit(inode);
  }

 private:
  void make_durable(const SimNameOperation& operation);
  void forget(const SimNameOperation& operation);
  void crash_journal(SimFilesystem& filesystem, SimRandom& random);
  void keep_reachable(uint64_t number, std::map<uint64_t, SimInode>& kept);

  std::vector<SimFilesystem> filesystems_;  // [0] is "/"
  std::map<uint64_t, SimInode> inodes_;
  uint64_t next_inode_ = 1;
};

}  // namespace fpfs
