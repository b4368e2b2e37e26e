// Array: the member directories of one array, formatted or opened together, with a handle on everything that the layers
// above reach into. No file content passes through here.
//
// A member directory (mode 0700) holds:
//   superblock        4096 bytes (engine/index/superblock.h)
//   superblocks       copies of the superblocks of all directories (superblock_copies.h)
//   mount             up to when the directory took part (mount_records.h)
//   lock              advisory lock of the process that has the array open; its content is that process's pid
//   objects/00 .. ff  the objects; an object's directory is the low byte of its file id
//   tree/             on the metadata member only: the namespace
//   state             on the metadata member only, present from the first write access until a clean close: "dirty"
//   scrub             on the metadata member only: where a scrub is (engine/store/scrub_state.h)
//   tier              on the metadata member only: where the array copies to (engine/tier/tier_binding.h)
//   lost+found/       made by fsck -y
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/array/mount_records.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/index/superblock.h"
#include "engine/io/environment.h"
#include "engine/io/handle_cache.h"
#include "engine/layout/stripe.h"

namespace fpfs {

struct FormatOptions {
  uint32_t chunk_size = kMiB;
  std::string metadata_directory;  // empty: member 0 holds tree/
  std::string label;
  bool force = false;  // also format directories that hold something: every file of a former array in them is removed
  bool may_lie_in_array = false;  // a directory of an array is around it: for what is removed again at once
};

struct ArrayOptions {
  bool read_only = false;
  bool degraded = false;          // with read_only: open with members missing, or older than the others
  bool renew_records = false;     // for repair: members whose mount record is lost count as current
  bool buffered_members = false;  // accept members without O_DIRECT (development)
  bool lock = true;               // false: fsck -n beside a mount
  bool is_check = false;          // fsck says itself what is wrong with members: nothing of it is logged
  // Objects, and directories of objects, that are kept open on each member; more only while they are in use.
  size_t handles_kept = 256;
  std::string metadata_directory;  // overrides the superblock's hint
};

struct Member {
  std::string path;  // as the user gave it; for messages
  bool present = false;
  Uuid id{};
  // The array's, until it goes.
  Handle directory = kNoHandle;
  Handle objects = kNoHandle;  // objects/
  Handle lock = kNoHandle;     // the open `lock` file
  uint64_t device = 0;         // Storage::filesystem_of(): members that share one share its space
  bool direct = true;          // O_DIRECT works here
  bool outdated = false;       // with `degraded`: an old copy, or one that may be
};

class ArrayOpener;

// So many members can be added to an array that is open.
constexpr uint16_t kAddedMax = 8;

class Array {
 public:
  // Splits "dir:dir:dir". kInvalidArgument for empty parts or more than kMemberCountMax of them.
  static Result<std::vector<std::string>> split_directories(const std::string& directories);

  // Formats. Everything is checked on all directories before anything is changed; a directory that is missing is made.
  // Refuses (kExists) directories that hold anything, unless force; (kInvalidArgument) the same directory twice, one
  // inside another. Durable on return: superblocks are written last and synced, with their directories.
  static Status format(Environment& environment, const std::vector<std::string>& directories,
                       const FormatOptions& options);

  // True when every directory is absent or empty (what `fastpersistfs --init` formats).
  static Result<bool> is_blank(Environment& environment, const std::vector<std::string>& directories);

  // Opens in any order of paths. Each refusal is one sentence naming the directory, what was found and what to do:
  // no superblock, damaged superblock, other version, another array's member, the same member twice, a member missing,
  // wrong count, a member older than the others, held by another process (its pid), no O_DIRECT.
  static Result<std::unique_ptr<Array>> open(Environment& environment, const std::vector<std::string>& directories,
                                             const ArrayOptions& options);
  ~Array();  // closes handles and drops the locks; no durable effect
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  // Of the first member present, when the array was opened.
  const Superblock& superblock() const { return superblock_; }
  const Uuid& id() const { return superblock_.array_id; }
  // Where what is written from now on goes. It may change at any moment: whoever needs it twice alike keeps it.
  StripeMap stripes() const;
  // The same among the first `count` members, for who knows no others; nothing when none of them takes part.
  std::optional<StripeMap> stripes_among(uint16_t count) const;
  // Of the indices; some may be of members that were removed.
  uint16_t member_count() const { return member_count_.load(std::memory_order_acquire); }
  // Up to which members can be added while the array is open: what is kept of each member has room for so many.
  uint16_t member_capacity() const { return capacity_; }
  MemberRange members() const { return range_to(MemberIndex(member_count())); }
  // Nothing new goes to it, and what it holds is to be moved away.
  bool is_leaving(MemberIndex member) const;
  bool is_any_leaving() const;
  // It holds nothing of this array any more. Stays so.
  bool is_removed(MemberIndex member) const;
  // It can be used.
  bool is_present(MemberIndex member) const { return members_[member].present && !is_removed(member); }
  const Member& member(MemberIndex index) const { return members_[index]; }  // by member index, whatever the path order
  // "member 1 (/nvme1/fp)", "member 1 (missing)"; for messages.
  std::string name_of(MemberIndex index) const;
  bool read_only() const { return read_only_; }
  // With `degraded`: some directory is an old copy, or may be.
  bool has_outdated() const { return has_outdated_; }
  Handle tree() const { return tree_; }  // tree/, a readable directory handle
  // Where a node below tree/ is now: "run7/step100.pt", empty for tree/ itself; none when it is not below it.
  std::optional<std::string> path_below_tree(Handle node) const;
  // The same as seen in the mount, for messages: "/run7/step100.pt"; what is not below tree/ by its path on the member.
  std::string path_in_mount(Handle node) const;
  Handle metadata_directory() const { return metadata_directory_; }
  const std::string& metadata_path() const { return metadata_path_; }

  // The array was not closed cleanly the last time it was open for writing.
  bool was_dirty() const { return was_dirty_; }
  // Whether bytes behind the last whole record of a sidecar with these attributes may be what a crash left of a commit:
  // only when it was changed since the array was marked dirty. After a clean end nothing is, and nothing is in a file
  // that nobody has written since: there such bytes are damage. Which is noted at the sidecar (kCutAttribute), where the
  // array can be written: a new mode, or another name, changes the time, too, and then a crash may come.
  static constexpr const char* kCutAttribute = "user.fastpersistfs.cut";
  bool may_be_torn(Storage& storage, Handle sidecar, const struct stat& attributes) const;
  // To be called before anything is changed, recovery and repairs included: from here on a copy of a member that was
  // made before is older (mount_records.h). Brings an array of an earlier version up to this one's. Once per open;
  // further calls do nothing. Durable on return.
  Status begin_changes();
  // Behind that: from here on no program opens the array that does not know of `feature` (an incompatible one). Durable
  // on return.
  Status announce(uint64_t feature);
  Status mark_dirty();  // durable on return
  // To be called before a record is appended to a sidecar: what a crash leaves of that is known by the sidecar's change
  // time. Should the clock have gone back behind the moment when the array was marked dirty, it is marked again,
  // durably.
  Status keep_dirty_since();
  // What is copied from here on is newer than what was copied before. Durable on return.
  Status mark_clean();

  // Makes directories members, in this order, while the array is in use. `prepare` is called for each, when everything
  // of it is there but nobody uses it yet; its failure, as any up to then, leaves the array as it was. A crash leaves
  // either the members that there were or all of these, too. Refuses as format() does, and (kBusy) more of them than
  // member_capacity() has room for. Durable on return. At one thread at a time, as all changes of the members.
  // `replaced`: a member whose place in the stripe the first of them takes; it is leaving, in the same moment.
  struct Changed {
    Status status;
    bool is_unknown = false;  // whether that is so now: nothing may be changed any more
  };
  Changed add_members(const std::vector<std::string>& directories, const std::function<Status(MemberIndex)>& prepare,
                      std::optional<MemberIndex> replaced = {});

  // The member that `directory` is, by what it is and not by its name. kInvalidArgument: none, or one that was removed.
  Result<MemberIndex> find_member(const std::string& directory) const;
  // Why the member cannot leave: it has the names, or it is the last one and nothing takes its place (kInvalidArgument);
  // it is leaving (kExists).
  Status may_leave(MemberIndex member, bool is_replaced = false) const;
  // It is leaving from now on, as far as may_leave() says, or (false) not any more. Durable on return.
  Changed set_leaving(MemberIndex member, bool is_leaving);
  // kNoSpace: so many bytes of a member do not fit into a directory that is to take its place (or is to be made).
  Status check_room_in(const std::string& directory, MemberIndex of, uint64_t bytes) const;
  // A member that is leaving is none any more. kBusy: it holds objects. `forget` is called when it is so, before its
  // handles are closed; then its directory can be formatted, or added again. Durable on return.
  Changed take_out(MemberIndex member, const std::function<void()>& forget);

  // To be asked after a sync on a member, or in the tree, before it is believed: see Storage::check_running().
  Status check_running(MemberIndex member) const;
  Status check_tree_running() const;

  // What is kept open of one member besides what Member says.
  HandleCache& handles(MemberIndex member) const { return kept_[member]->handles; }
  // objects/xx of one member for a file id, pinned.
  Result<HandleCache::Pin> object_directory(MemberIndex member, FileId file) const;
  // A name is in that directory which may not be durable. Its number, for sync_new_name(); never 0.
  uint64_t note_new_name(MemberIndex member, FileId file) const;
  // Durable on return, by a sync of the directory that began when it was there.
  Status sync_new_name(MemberIndex member, FileId file, uint64_t number) const;
  // "<16 hex digits of the file id>.<8 hex digits of the generation>".
  static std::string object_name(FileId file, Generation generation);
  // Which of the 256 directories of a member's `objects` it is in, and its path there: "f0/123456789abcdef0.00000000".
  static unsigned object_directory_index(FileId file) { return file.value() & 0xff; }
  static std::string object_path(FileId file, Generation generation);
  // The reverse; false when `name` is no object name.
  static bool parse_object_name(const std::string& name, FileId* file, Generation* generation);
  // Flags for opening objects: O_DIRECT where the member has it.
  int object_flags(MemberIndex member) const;

  // Free and total space for new data, as statvfs of the array: total and free are what the members' filesystems
  // together give to data striped evenly; members on one device are counted once. f_files and f_ffree are the tree's.
  // `changes`: where a drive's own figures are not the whole truth, by Member::device.
  struct SpaceChange {
    uint64_t withheld = 0;  // bytes that are not available although free
    uint64_t spare = 0;     // bytes that are free although taken
  };
  Result<struct statvfs> space(const std::map<uint64_t, SpaceChange>& changes = {}) const;

 private:
  Array(Environment& environment, const ArrayOptions& options) : environment_(environment), options_(options) {}
  // Has it closed with the array.
  Handle own(ScopedHandle handle);
  Status raise_stamp(uint64_t mount);
  Status begin_changes_locked();
  Status write_superblocks();
  Status write_state() FPFS_REQUIRES(dirty_mutex_);
  Changed commit_members(const std::vector<Superblock>& superblocks);
  std::vector<Superblock> superblocks_by_index() const;
  void set_membership(const Superblock& superblock);
  StripeMap stripes_of(uint16_t member_count, const std::vector<MemberIndex>* order) const;
  void close_member(MemberIndex member);
  // Steps of add_members().
  struct Growth;
  Status find_new_members(Growth& growth, std::optional<MemberIndex> replaced);
  Status prepare_new_members(Growth& growth, std::optional<MemberIndex> replaced);
  Status open_new_members(Growth& growth, const std::function<Status(MemberIndex)>& prepare);
  void undo(const Growth& growth);
  void bring_up_superblocks();
  static uint64_t handles_needed(const ArrayOptions& options, uint64_t members);
  // Steps of open().
  Status open_members(ArrayOpener& opener, const ArrayOptions& options);
  Status lock_directories(ArrayOpener& opener, const ArrayOptions& options);
  void note_outdated(bool tell);

  Environment& environment_;
  const ArrayOptions options_;
  std::vector<ScopedHandle> locks_;  // closed last: until then nobody else may begin
  std::vector<ScopedHandle> owned_;
  Superblock superblock_;
  std::atomic<uint16_t> member_count_{0};
  // What the superblocks say of it; null: nothing. Never changed and never gone: StripeMaps have it.
  struct Membership {
    std::vector<MemberIndex> order;
    std::bitset<kMemberCountMax> removed;
    bool is_any_leaving = false;
  };
  std::atomic<const Membership*> membership_{nullptr};
  mutable Mutex memberships_mutex_;
  std::vector<std::unique_ptr<const Membership>> memberships_ FPFS_GUARDED_BY(memberships_mutex_);
  // Their orders among the first members only.
  mutable std::map<std::pair<const Membership*, uint16_t>, std::vector<MemberIndex>> orders_among_
      FPFS_GUARDED_BY(memberships_mutex_);
  uint16_t capacity_ = 0;
  PerMember<Member> members_;  // so many as the capacity; up to the count they do not change
  // Held while the superblocks and the mount records are changed; what follows, up to the empty line, belongs to it. Not
  // needed before the array is anybody's.
  Mutex changes_mutex_;
  std::vector<ArrayDirectory> directories_;  // all that are present; borrows the handles of the others
  bool changes_begun_ = false;

  bool has_outdated_ = false;
  Handle tree_ = kNoHandle;
  Handle metadata_directory_ = kNoHandle;
  Handle metadata_lock_ = kNoHandle;
  std::string metadata_path_;
  bool read_only_ = false;
  bool was_dirty_ = false;
  mutable Mutex dirty_mutex_;
  std::optional<struct timespec> dirty_since_ FPFS_GUARDED_BY(dirty_mutex_);  // by the clock that stamps the sidecars
  struct ObjectDirectory : HandleCache::Slot {
    std::atomic<uint64_t> named{0};  // how many new names there were
    Mutex syncing;
    uint64_t synced FPFS_GUARDED_BY(syncing) = 0;  // and of these, before the last sync that succeeded began
  };
  struct Kept {
    explicit Kept(size_t handles_kept) : handles(handles_kept) {}
    HandleCache handles;
    std::array<ObjectDirectory, 256> directories;  // by the low byte of the file id
  };
  PerMember<std::unique_ptr<Kept>> kept_;
};

}  // namespace fpfs
