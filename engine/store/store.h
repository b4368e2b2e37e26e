// Store: an open array. The façade that the FUSE front, the tools and C++ programs use.
//
// Names are reached through nodes: handles (Storage::open_at) on entries of tree/. A regular file's node is
// its sidecar; Store gives such a node its logical size, and opens it as a File. Everything else (directories, symbolic
// links, special files) is what it looks like.
//
// Thread safety: all methods from any thread. Calls here touch the namespace only and may block for the tree's
// filesystem, never for bulk data; File's requests do not block at all.
//
// Durability: names are durable once their directory was synced, or, for regular files, once a commit of the file that
// was made under that name completed (File, ControlRequest::Kind::kCommit). unlink and rename return at once; what they
// free on the members is freed in the background, and only after the name change itself is durable, so that a power cut
// never brings back a name without its data.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/mutex.h"
#include "engine/file/chunk_source.h"
#include "engine/file/file.h"
#include "engine/file/options.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/environment.h"
#include "engine/io/handle_shares.h"
#include "engine/io/node_handle.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

// What happened on the way to mounting that an operator should know.
struct RecoveryReport {
  bool was_dirty = false;
  uint64_t orphans_removed = 0;   // objects that no sidecar names
  uint64_t commits_put_back = 0;  // small files that were durable in the commit log only
  uint64_t torn_tails = 0;
  uint64_t bytes_freed = 0;
};

struct MemberStatus {
  std::string path;
  std::string id;
  bool present = false;
  bool outdated = false;                       // see Member
  bool stalled = false;                        // does not answer; see StoreOptions::io_timeout_ms
  bool leaving = false, removed = false;       // see Array; of one that was removed nothing else is known
  uint64_t space_total = 0, space_free = 0;    // bytes of its filesystem
  uint64_t space_spare = 0;                    // bytes of freed objects kept for the next file
  uint64_t bytes_read = 0, bytes_written = 0;  // since open
  uint64_t read_errors = 0, write_errors = 0, sync_errors = 0, checksum_errors = 0;
};

struct StoreStatus {
  std::vector<MemberStatus> members;
  BufferPool::Counters buffers;
  uint32_t buffer_size = 0;
  uint64_t open_files = 0, dirty_files = 0, commits = 0, pending_frees = 0;
  uint64_t chunks_shared = 0, bytes_shared = 0;  // with previous files (StoreOptions::dedup), since open
  uint64_t chunks_encoded = 0;                   // stored smaller, since open
  uint64_t bytes_before_encoding = 0, bytes_encoded = 0;
  // Calls on names and indexes that failed because of their drive, and reads of indexes that are damaged.
  uint64_t metadata_errors = 0;
  bool metadata_stalled = false;
  // Chunks that their members did not give, since open: read from a copy (set_chunk_source()), of these written back,
  // and not helped by a copy.
  uint64_t chunks_from_copy = 0, chunks_healed = 0, chunks_without_copy = 0;
  uint64_t chunks_fetched = 0;  // that were on no member (File::send_away())
  bool read_only = false;
  std::string read_only_reason;  // when the array turned read-only by itself
};

class Store {
 public:
  // Opens the array, recovers after an unclean shutdown (frees orphans), starts queues. The environment outlives it.
  static Result<std::unique_ptr<Store>> open(Environment& environment, const std::vector<std::string>& directories,
                                             const StoreOptions& options);
  // Commits every file, frees what is pending, marks the array clean. The first failure is returned, also of a commit
  // before this whose writers had been told that all was well (ArrayHealth::note_loss): nothing that failed is tried
  // again. The array stays marked dirty then, and when a file failed whose writers were told. So it does when somebody
  // is in the middle of writing a file (engine/file/writer.h): that is not committed but left as after a crash, with
  // a line in the log; kBusy. While a CommittedVersion is held the array stays marked dirty too: the next mount frees
  // what it held back; kBusy. No other call may run or follow but left_clean(). A Store destroyed without close()
  // leaves the array as a crash would.
  Status close();
  // The same without waiting: `done` is called once, on an executor thread; the Store is destroyed after that.
  void close_async(std::function<void(const Status&)> done);
  bool left_clean() const { return left_clean_; }
  // Since open. None, and not left clean after a close() that is ok: what no file needs could not be freed.
  bool had_failed_saves() const;
  // "/a.pt, /b.pt and 3 other files": those that failed since open, and what is not committed now. Empty: none. Waits for
  // no drive.
  std::string not_saved() const;
  // Since open: content whose close or fsync had returned 0 is lost, or may be.
  bool had_losses() const;
  ~Store();

  const Array& array() const { return *array_; }
  const StoreOptions& options() const { return options_; }
  const RecoveryReport& recovery() const { return recovery_; }
  Handle root() const { return array_->tree(); }
  Storage& storage() const { return environment_.storage(); }
  bool read_only() const;
  // Makes directories members (Array::add_members()) while the store is in use. Files that are opened from then on use
  // them, too; what is stored stays where it is. kReadOnly afterwards: it is not known whether they are members. Not
  // together with close().
  Status add_members(const std::vector<std::string>& directories);
  // The member that `directory` is leaves the array while the store is in use: nothing new goes to it from now on. What
  // it holds is moved by others (engine/store/rebalance.h), then take_out_members() is called. kNoSpace: the others have
  // no room for it, and nothing was changed. Of one that is leaving: ok.
  Status remove_member(const std::string& directory);
  // The same, and `added` becomes a member and takes its place in the stripe: chunks that were on the one belong to the
  // other. Of one that is leaving kInvalidArgument: remove_member() goes on with it.
  Status replace_member(const std::string& directory, const std::string& added);
  // The member that is leaving takes part again, with what is left on it. Nobody may be moving anything away from it.
  Status take_back_member(const std::string& directory);
  // Members that are leaving and hold nothing any more are none from now on. True: there are others, with objects of
  // files that are in use or hold chunks there, or with what nobody moves (what_keeps_members()).
  Result<bool> take_out_members();
  // What is on members that are leaving, or may come there, and is no chunk of a file that has a name and can be moved.
  struct KeepsMember {
    std::string path;  // in the mount ("/run7/x.pt"), or of the directory or file itself, outside of the mount
    std::string why;   // and what to do
    bool is_unnamed =
        false;  // an object that no open file and nothing in lost+found has: some file of the tree, or none
  };
  std::vector<KeepsMember> what_keeps_members();
  // The handles that users may make the store hold (StoreOptions::shared_handles): whoever opens files and looks up
  // nodes for several users counts them there.
  // Of an open file: one of its index, which for who has made the file is that of the node, too, and one of the
  // directory of a new name, where the tree's filesystem needs it (Storage::logs_names_in_order()).
  size_t handles_of_file() const;
  HandleShares& shares() { return shares_; }
  // BufferPool::populate_some().
  bool populate_buffers();

  // --- nodes -------------------------------------------------------------------------------------------------------
  struct Node {
    NodeHandle handle;          // O_PATH or readable
    struct stat attributes {};  // logical: size and blocks of a regular file are its content's
    bool is_new = false;        // made by this call: it cannot have file capabilities
    bool readable = false;      // the handle
  };
  Result<Node> lookup(Handle directory, const std::string& name);
  // Looks up several entries of a listing; nothing for those that cannot be. The drive is asked for all sidecars before
  // the first is waited for.
  std::vector<std::optional<Node>> lookup_all(Handle directory, std::span<const DirectoryEntry> entries);
  // Logical attributes of a node.
  Result<struct stat> attributes(Handle node);
  // The content of a file without a name: as long as this exists, its nodes can be opened.
  class Removed {
   public:
    // Not with a lock of the store held.
    ~Removed();
    Removed(const Removed&) = delete;
    Removed& operator=(const Removed&) = delete;
    // What it makes the process hold is counted as more of `of_user`. Who may have no more of a handle of the directory
    // has none: all names are synced before the content is freed.
    void count_in(HandleShares::Lease of_user);
    // Whether there is content to free, or somebody has it open.
    bool has_content() const;

   private:
    friend class Store;
    Removed(Store& store, uint64_t inode, ScopedHandle directory, std::vector<DoomedObjects> objects);
    void adopt(const std::shared_ptr<File>& file);

    Store& store_;
    const uint64_t inode_;
    ScopedHandle directory_;  // that had the last name; none when there are no objects, or once a File has it
    std::vector<DoomedObjects> objects_;
    HandleShares::Lease directory_lease_;
    std::shared_ptr<File> file_;  // once somebody has opened it; it frees what it has
  };
  // Called with what was just removed, before unlink or rename return. A node that others can still open (the kernel
  // gives out descriptors made with O_PATH) keeps it, and destroys it before the node's last handle is closed. Without
  // a keeper the content goes when nobody has it open. Set before serving.
  using Keeper = std::function<void(uint64_t inode, std::unique_ptr<Removed> removed)>;
  void keep_removed(Keeper keeper) { keeper_ = std::move(keeper); }

  struct Created {
    Node node;
    std::shared_ptr<File> file;
    std::unique_ptr<Removed> unnamed;  // of create_unnamed()
  };
  // Makes and opens a regular file; kExists when the name is there. Mode as given (the caller has applied the umask);
  // the owner is who the calling thread is to the filesystem. A failure leaves no name. `handles`: nobody's, or a user's
  // handles_of_file() (less than that: the directory's is not counted), for the file and its node until both are gone.
  Result<Created> create(Handle directory, const std::string& name, mode_t mode, HandleShares::Lease handles = {});
  // An unnamed regular file in the filesystem of `directory` (O_TMPFILE), to be linked later or vanish.
  Result<Created> create_unnamed(Handle directory, mode_t mode, HandleShares::Lease handles = {});
  Status make_directory(Handle directory, const std::string& name, mode_t mode);
  Status make_node(Handle directory, const std::string& name, mode_t mode, dev_t device);
  Status symlink(const std::string& target, Handle directory, const std::string& name);
  // Removes an empty entry that was just made, for a call that fails after all. Needs no handle; what cannot be removed
  // is logged.
  void take_back(Handle directory, const std::string& name, bool is_directory);
  Status link(Handle node, Handle directory, const std::string& name);
  // `node`: a handle of what has the name, as `attributes` (Storage::stat_at) say, readable when there is something to
  // read. Borrowed. Without, one is opened.
  Status unlink(Handle directory, const std::string& name) { return unlink(directory, name, kNoHandle, {}); }
  Status unlink(Handle directory, const std::string& name, Handle node, const struct stat& attributes);
  Status remove_directory(Handle directory, const std::string& name);
  Status rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name, unsigned flags);
  // The same, with promise P2 for savers that rename before they close: when a file with uncommitted content replaces
  // another (or is exchanged for it), it is committed first, so that a crash leaves the whole old or the whole new
  // content under the name. Calls back once, inside the call when there is nothing to wait for. The handles stay open
  // until then.
  void rename_async(Handle from, const std::string& from_name, Handle to, const std::string& to_name, unsigned flags,
                    std::function<void(const Status&)> done);
  // Makes the names in a directory durable.
  Status sync_directory(Handle directory);
  // Attributes. Times of an open file are kept so that a later commit does not move them.
  Status chmod(Handle node, mode_t mode);
  Status chown(Handle node, uid_t uid, gid_t gid);
  // What attributes() gives then.
  Result<struct stat> set_times(Handle node, const struct timespec times[2]);
  // Where a directory is, below the root ("run1/a/"); empty: it is the root. Nothing: it has no name any more.
  std::optional<std::string> path_of(Handle directory) const;
  // Settings: how a node is treated, instead of as the options say. Each is kept as an extended attribute of the node,
  // which users set, as durable as others; of a directory, it is for what is made in it (by inherit_settings()). A
  // value that nobody could have set here counts as none.
  static constexpr const char* kCompressAttribute = "user.fastpersistfs.compress";  // parse_compression()
  static constexpr const char* kDurableAttribute = "user.fastpersistfs.durable";    // parse_durable()
  static constexpr const char* kPinAttribute = "user.fastpersistfs.pin";            // "yes" or "no"
  static bool is_setting(std::string_view name);
  // Of chunks that go to their drive from now on.
  Result<std::optional<Compression>> compression(Handle node);
  // Content stays on the members, whatever else the store of copies has (engine/tier/tier_room.h).
  Result<bool> is_pinned(Handle node);
  // Whoever answers closes sees to it.
  Result<std::optional<Durable>> durable(Handle node);
  // `flags`: XATTR_CREATE, XATTR_REPLACE. kInvalidArgument: it has no such value.
  Status set_setting(Handle node, const std::string& name, const std::string& value, int flags);
  Status remove_setting(Handle node, const std::string& name);
  // setxattr(2), removexattr(2) of any other attribute.
  Status set_xattr(Handle node, const std::string& name, std::span<const std::byte> value, int flags);
  Status remove_xattr(Handle node, const std::string& name);
  // A file or directory that was just made is given what the directory says, if anything. False: that said nothing.
  Result<bool> inherit_settings(Handle directory, Handle node);
  // What new data can use, as df shows it. Waits a moment for what is being freed.
  Result<struct statvfs> space();
  // The drive that holds the names does not answer (engine/io/stall_watch.h).
  bool names_stalled() const;
  // Makes durable what the drive of the names has of all files: a sync of its filesystem. When that fails, so does the
  // array. Waits for the drive.
  Status sync_names();
  // Frees what waits for it, however long that takes; false when there was nothing. Before a full drive is reported.
  bool finish_frees();

  // --- files -------------------------------------------------------------------------------------------------------
  // Opens a regular file's content. All openers of one file (whatever its name) share one File. kCorruption when the
  // sidecar cannot be read: the message says where.
  Result<std::shared_ptr<File>> open_file(Handle node, bool for_writing);
  // Commits every file, but for those with unfinished changes (which `unfinished` decides about), and makes all names
  // durable. kClose: no writer will go on. Calls back once; also with what was lost before that nobody was told of yet.
  struct CommitOutcome {
    Status status;                        // the first failure
    std::vector<std::string> unfinished;  // the files that were left alone
  };
  void commit_all(ControlRequest::Kind kind, ControlRequest::Unfinished unfinished,
                  std::function<void(const CommitOutcome&)> done);

  // Called with every commit that is durable, before its requests are answered: the inode of a file, and the number of
  // the commit, which grows over the file's life (0: a new name is durable, and nothing was ever written to the file).
  // Those of one file come in their order. On the threads that commit (the executor's, or whose request it was),
  // without locks: it must not block, nor wait for this file; others may be told of commits at the same time. Set
  // before files are opened. File::hold_version() gives what this commit made durable, or a later one; nothing while
  // the number is 0. `is_moved`: the content is that of the commit before, elsewhere.
  using CommitListener = std::function<void(uint64_t inode, uint64_t sequence, bool is_moved)>;
  void on_commit(CommitListener listener);

  // Where chunks may still be that their members do not give any more: readers get what was proven to be the content
  // that was committed, and it is written back, to another place, by a commit of the file (engine/file/healing.h).
  // Null: nowhere. At any time. The source need not outlive the Store; whatever calls its `done` is to be closed before
  // the environment goes.
  void set_chunk_source(std::shared_ptr<ChunkSource> source);
  // Files may have ChunkSource::kOthersAttribute: from now on commits that change their content remove it. Before any
  // file is changed.
  void has_others();

  // What happened to a name, or to what has it. Paths are below the root, as commits have them, and hints: names
  // change.
  struct NameEvent {
    enum class Kind : uint8_t {
      kMade,        // a name, of anything but a new regular file, whose first commit is told
      kRemoved,     //
      kMoved,       // to `path`, where it may have replaced something; of an exchange both are told
      kAttributes,  // mode, owner, times or an extended attribute
    } kind = Kind::kMade;
    std::string path;
    std::string from;           // of kMoved: where it was; of kMade: another name of the file, or nothing
    bool is_directory = false;  // what has the name
    uint64_t inode = 0;         // of a regular file that has the name; 0: of something else, or nothing
    // The regular file that had the name at `path` before (kRemoved, kMoved); 0: there was none, or that is not known.
    // With its node, or that of a symbolic link or a device, where there is one: borrowed, for the call.
    uint64_t lost_inode = 0;
    Handle lost = kNoHandle;
    bool is_ahead = false;  // of kRemoved (not of a directory) and kMoved: it is about to happen, or to fail
  };
  // Called behind each change that Store's calls have made, before they return: on the caller's thread, without locks.
  // Ahead of it, too, when a name is about to lose what it has: so there is no moment at which others find the change,
  // and who listens has not heard of it.
  // It must not block. Several may be told at the same time, and of changes at the same time in any order. None of them
  // is durable yet. Nothing is told of a new regular file, of take_back(), and of what was changed past Store. Costs
  // two to five system calls for each change, and nothing until tell_names(true). Set before serving.
  using NameListener = std::function<void(const NameEvent&)>;
  void on_names(NameListener listener) { name_listener_ = std::move(listener); }
  // Whether it is told from now on. At any time; calls in progress may go either way.
  void tell_names(bool tells) { tells_names_.store(tells && name_listener_ != nullptr, std::memory_order_release); }

  // A file that somebody has open: where it is, below the root ("run1/a"), as far as can be told, and how long.
  // Nothing: nobody has it open, or it has no name. A hint, as names change. Also from inside a CommitListener.
  struct OpenFile {
    std::string path;
    uint64_t size = 0;
    FileId file_id;
  };
  std::optional<OpenFile> find_open(uint64_t inode) const;
  // Somebody has the file open, or, when it has no name any more, can still open it.
  bool is_in_use(uint64_t inode) const;
  // What the last record of a regular file says. It may not be durable yet; and when a commit comes in between, perhaps
  // neither the one before nor that one is found (kCorruption).
  Result<SidecarSummary> last_record(Handle node);
  // The attributes are those of a file whose index could not be read: they say one byte, which may be known better at
  // the next look, and is not to be kept. (They are those of a file that is one byte of a hole, too.)
  static bool is_size_unknown(const struct stat& attributes);

  StoreStatus status() const;
  // The counts of errors and of what was healed in status() begin anew.
  void clear_errors();
  // To all members since open, by saves: without what is fetched, healed or moved. Cheap, to be asked often.
  uint64_t bytes_saved() const;

  // Runs `start` with a request's completion bound to it and waits: the synchronous form of File's calls, for tools,
  // tests of the real thing and C++ programs. Never from an engine thread.
  Status commit_sync(File& file);
  Status truncate_sync(File& file, uint64_t size);
  Status punch_sync(File& file, FileOffset offset, uint64_t length);
  Status write_sync(File& file, FileOffset offset, std::span<const std::byte> data);
  Result<size_t> read_sync(File& file, FileOffset offset, std::span<std::byte> buffer, ReadCursor* cursor = nullptr);

 private:
  class Impl;
  Store(Environment& environment, const StoreOptions& options);
  Status add_members_locked(const std::vector<std::string>& directories, std::optional<MemberIndex> replaced);
  void finish_close(const Status& synced, const std::function<void(const Status&)>& done);
  Status fill_logical(Handle node, struct stat& attributes);
  Result<SidecarSummary> summarize_node(Handle node, const struct stat& sidecar, bool is_removed = false);
  Result<SidecarSummary> summarize_closed(Handle node, const struct stat& sidecar);
  // The same failure, for the log: which file's index it is.
  Status index_failure(const Status& failure, Handle node) const;
  Result<Node> open_node(Handle directory, const std::string& name);
  Result<Node> open_listed(Handle directory, const DirectoryEntry& entry);
  Result<Node> complete_node(Node node);
  Result<struct stat> logical(Handle node, const struct stat& sidecar);
  // `call` makes a name; a drive of the names without room (or inodes) is said in the log.
  template <typename Call>
  auto make_name(Handle directory, const std::string& name, Call call);
  // For a file whose name in `directory` is new: a handle to be synced with its next commit, or none where the file's own
  // sync does (Storage::logs_names_in_order()).
  Result<ScopedHandle> directory_to_sync(Handle directory);
  // Where it does, an exchange of names is the exception: XFS does not log the two files with it
  // (xfs_dir_exchange_children()). So it is made durable at once.
  bool syncs_exchanges() const;
  Status sync_opened_directory(Handle directory);
  Result<Created> adopt_created(ScopedHandle opened, NewName name, HandleShares::Lease handles);
  void tell_of_commit_log();
  class NameHolder;
  Status settle(const NameHolder& holder);
  struct RenameJob;
  void give_away(uint64_t inode, std::unique_ptr<Removed> removed);
  // For name_listener_, as tell_names() says.
  std::optional<std::string> path_below_root(Handle node) const;
  std::optional<std::string> path_below_root(Handle directory, const std::string& name) const;
  void tell_made(Handle directory, const std::string& name, bool is_directory, Handle linked = kNoHandle) const;
  struct Lost {
    uint64_t inode = 0;
    Handle node = kNoHandle;
  };
  // What will be told of a removal or a move, ahead of it and behind it; nothing: nobody listens.
  std::optional<NameEvent> removal_of(Handle directory, const std::string& name, bool is_directory,
                                      const Lost& lost) const;
  std::optional<NameEvent> move_of(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                                   const NameHolder& moved, const Lost& lost) const;
  void tell_ahead(std::optional<NameEvent>& event) const;
  void tell_behind(std::optional<NameEvent>& event) const;
  void tell_attributes(Handle node) const;
  Status change_setting(Handle node, std::string_view name, const std::function<Status()>& change);

  Environment& environment_;
  StoreOptions options_;
  RecoveryReport recovery_;
  HandleShares shares_;  // outlives the files
  std::unique_ptr<Array> array_;
  std::unique_ptr<Impl> impl_;
  Keeper keeper_;
  NameListener name_listener_;
  std::atomic<bool> tells_names_{false};
  bool left_clean_ = false;
};

}  // namespace fpfs
