// TierCopier's private part. tier_copier.cpp has what waits and what begins, tier_told.cpp what it is told,
// tier_copy_job.cpp the steps of one copy, tier_describe_job.cpp those of one without a new content,
// tier_remove_job.cpp those of its removal, tier_blocked.cpp what waits for another file's copy to be moved,
// tier_attributes.cpp how the array is asked, tier_scan.cpp the way through the tree. Where the store is shared:
// tier_share_job.cpp compares, tier_conflict_job.cpp keeps both of two versions, tier_show_job.cpp shows others' ones,
// tier_withdraw_job.cpp says and follows removals, tier_look.cpp has a directory looked into.
//
// One lock, for bookkeeping only. What blocks runs on the environment's executor, what computes on its workers; content
// is read by the engine and sent by the store. Whatever is under way holds this by a shared_ptr; what it needs of the
// array is let go of before the copier counts it as ended.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/tier/tier_copier.h"
#include "engine/tier/tier_lost.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_memory.h"
#include "engine/tier/tier_note.h"
#include "engine/tier/tier_pace.h"
#include "engine/tier/tier_queue.h"
#include "engine/tier/tier_strays.h"
#include "engine/tier/tier_upload.h"

namespace fpfs {

class TierCopier::Impl final : private TierTimer, public std::enable_shared_from_this<Impl> {
 public:
  Impl(Environment& environment, Store& store, ObjectStore& objects, const TierCopyOptions& options,
       uint64_t part_size);

  void open();
  void committed(uint64_t inode, uint64_t sequence, bool is_moved);
  void changed(const Store::NameEvent& event);
  void scan();
  void wait_for(const std::string& path, Done done);
  void wait_for_commit(uint64_t inode, uint64_t sequence, Done done);
  void wait_for_all(const Done& done);
  TierCopyStatus status() const;
  bool shows_others() const;
  bool look(const std::string& path, uint64_t since_ns, std::function<void()> done);
  uint64_t progress() const;
  bool is_copying(uint64_t inode) const;
  void set_rate(uint64_t bytes_per_second) { pace_.set_rate(bytes_per_second); }
  void hold(bool holds, std::chrono::seconds most);
  void content_is_away();
  void stop(std::function<void()> done);
  // Stops and waits.
  void end();
  // The power is off: whatever is under way has gone without an end.
  void abandon();

 private:
  using Self = std::shared_ptr<Impl>;
  // Of objects' metadata: whose they are. A manifest's is the array id, a content's that, '.' and which upload.
  static constexpr const char* kMark = "fastpersistfs";
  struct Shown;
  // One path whose copy is brought up to date.
  struct Job {
    TierWaiting file;
    std::string begun_at;  // its path then
    std::shared_ptr<File> opened;
    TierManifest manifest;  // what is to be stored
    std::vector<std::byte> encoded;
    TierNote note;
    bool has_other_names = false;
    bool sends_content = false;
    std::string from;            // where the copy is that this one is made of
    bool was_somewhere = false;  // it had a copy at a path that nobody knows
    bool was_others = false;     // it had another array's at another path
    uint64_t from_tag = 0;       // TierNote::content_tag of that; 0: not known
    bool from_verified = false;
    bool removes_content = false;  // of a file that was here before
    bool is_unchanged = false;     // the store has the manifest already
    std::string left;              // where the copy was before, once this one is complete
    bool has_path = false;         // ChunkSource::kPathAttribute
    bool is_noted = false;         // the note says that what lies at `from` is of this commit
    bool has_away = false;         // some of its content lies in the store only
    bool is_cut = false;           // of some chunk only a part is shown
    // Where the store is shared.
    bool is_compared = false;               // with what it has there
    uint64_t lost = 0;                      // what lost_ has of it
    bool is_theirs = false;                 // the file is as another array has copied it
    std::map<uint64_t, uint64_t> replaced;  // TierManifest::replaced of what is to be stored
    std::shared_ptr<Shown> shown;           // what is to be shown
  };
  // How a job goes on.
  enum class Plan : uint8_t {
    kCopy,      // content and manifest
    kLook,      // the note says that it is copied: whether the store has it
    kDescribe,  // the manifest only, by the one that the store has
    kRemove,    // what the store has there
    kEnd,       // by Job's ending
  };
  enum class Ending : uint8_t {
    kCopied,
    kIsCopied,     // it was already
    kRemoved,      // the copy of what is not there any more
    kWaits,        // it stays until the file that it belongs to has another one, which brings the path back
    kGone,         // no such file any more, or nothing of it is durable yet: its next commit is told
    kMoved,        // it has the path that `file` has now
    kLost,         // it is somewhere else: a scan finds it
    kStoreFails,   // every other file would fail, too
    kRefused,      // the store takes others
    kBroughtBack,  // and is to be copied
    kBlocked,      // what the store has there is another file's only copy (tier_strays.h)
    kFails,        // it cannot be read
    kLooksBelow,   // and comes back behind that
    kCancelled,
  };
  struct Waiter {
    uint64_t sequence = 0;
    Done done;
  };
  struct Everything {
    uint64_t scan = 0;  // that must have ended
    Done done;
  };
  // A directory that a scan is in, of the array or of the store.
  struct Level {
    std::string path;     // with a '/' at its end; empty: the root
    ScopedHandle handle;  // none: the array does not have it
    std::vector<DirectoryEntry> entries;
    size_t next = 0;
    std::set<std::string> stored_only;  // directories that only the store has
    // What the store has there, once it was asked: hashes of keys and of tags, in order.
    bool is_listed = false;
    std::vector<std::pair<uint64_t, uint64_t>> stored;
  };
  struct Found {
    Store::Node node;
    std::string name;
    ScopedHandle directory;
    bool has_node() const { return node.handle.is_open(); }
    bool is_directory() const { return has_node() && S_ISDIR(node.attributes.st_mode); }
    bool is_file() const { return has_node() && S_ISREG(node.attributes.st_mode); }
  };
  struct StoredManifest {
    TierManifest manifest;
    uint64_t tag = 0;  // TierNote::tag_of()
  };
  // What the array has at a path.
  struct Local {
    std::optional<TierNote> note;  // that speaks for the path
    std::shared_ptr<File> file;    // of a file
    uint64_t sequence = 0;         // of its last commit, as it was before
    uint64_t content_since = 0;    // File::content_since()
    bool is_unchanged = false;     // since the note
  };
  // A version of another array that is on its way to be shown.
  struct Shown {
    StoredManifest stored;
    std::string as;         // its path here
    bool replaces = false;  // what has that path
    bool keeps = false;     // that is kept beside it, under `aside`
    std::string aside;      // another name for that
    bool is_alone = false;  // no other job writes at `as`
    Local over;             // that, as it was seen
    ScopedHandle directory;
    std::string name, aside_name;
    Store::Created created;  // of a file
  };
  // Somebody looks into a directory.
  struct LookWaiter {
    uint64_t since_ns = 0;
    std::function<void()> done;
  };
  struct Look {
    std::vector<LookWaiter> waiters;
    uint64_t number = 0, begun_ns = 0;
    bool is_listed = false;
    std::map<std::string, uint64_t> stored;  // paths, with the tags of their manifests; 0: of a directory
    std::set<std::string> pending;           // paths that jobs bring up to date
    std::string itself;                      // and behind them that of the directory, if that is to be; else empty
    bool is_for_itself = false;              // a job waits for what is in it
  };
  template <typename T>
  using Asked = std::function<void(Result<T>)>;
  using Calls = std::vector<std::function<void()>>;  // to be made without the lock

  // --- tier_copier.cpp
  void after(std::chrono::milliseconds delay, std::function<void()> task) override;
  bool is_stopping() const override;
  std::chrono::milliseconds pause(unsigned attempt) override;
  uint64_t now_ns() const;
  int64_t now_s() const { return static_cast<int64_t>(now_ns() / 1'000'000'000); }
  void post(std::function<void(Impl&)> task);
  void begin_task();
  bool add(TierWaiting file) FPFS_REQUIRES(mutex_);
  void add_again(TierWaiting file) FPFS_REQUIRES(mutex_);
  void pump();
  unsigned jobs_max() const FPFS_REQUIRES(mutex_);
  void end_job(const std::shared_ptr<Job>& job, Ending ending, const Status& status = Status::ok());
  void settle(TierWaiting file, Ending ending, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void clear_way(TierWaiting file) FPFS_REQUIRES(mutex_);
  void note_failure(const Status& status) FPFS_REQUIRES(mutex_);
  void take_in(TierWaiting file, Ending ending, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void store_failed(const Status& status) FPFS_REQUIRES(mutex_);
  void schedule_try(Calls& calls) FPFS_REQUIRES(mutex_);
  void file_failed(TierWaiting file, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void try_failed_again(const std::string& path);
  bool may_begin(const TierWaiting& file) const FPFS_REQUIRES(mutex_);
  bool waits_for_directory(const std::string& path) const FPFS_REQUIRES(mutex_);
  void block(TierWaiting file) FPFS_REQUIRES(mutex_);
  bool waits_for_itself(const TierWaiting& file) const FPFS_REQUIRES(mutex_);
  void unblock() FPFS_REQUIRES(mutex_);
  void tell_waiters(uint64_t inode, uint64_t sequence, const Status& status, Calls& calls) FPFS_REQUIRES(mutex_);
  void look_whether_idle(Calls& calls) FPFS_REQUIRES(mutex_);
  void task_ended();
  TierTools tools();

  // --- tier_told.cpp
  void note_moves();
  void note_move(const TierWaiting& file);
  // From which commit on all up to `sequence` have one content, by what was told and may not be noted yet; `sequence`: of
  // no other that is known.
  uint64_t same_since(const TierWaiting& file, FileId file_id, uint64_t sequence) const;
  void keep_copies(const Store::NameEvent& event);
  void watch_use(uint64_t inode, const std::string& path);
  void free_strays(uint64_t inode, const std::string& path);
  void await_commit(uint64_t inode, uint64_t sequence, const Done& done);
  // False: it is too late.
  bool add_waiter(TierWaiting file, Done done);

  // --- tier_attributes.cpp
  static std::string_view without_slash(std::string_view path);
  Result<Found> find(const std::string& path) const;
  static bool is_at(const Result<Found>& found, uint64_t inode);
  // Whether the path leads to nothing, or to a directory where it is not that of one (and the other way round).
  static bool is_vacant(const Result<Found>& found, const std::string& path);
  Status sync_way_to(const std::string& path);
  Result<bool> is_vacant_for_good(const std::string& path);
  Status describe(Handle node, TierManifest& manifest);
  // ChunkSource::kPathAttribute; empty: none.
  std::string copied_at(Handle node) const;
  uint64_t place_of(const std::string& path) const { return TierNote::place_of(noted_store_, path); }
  static bool is_of_commit(const TierNote& note, const SidecarSummary& record);
  std::optional<TierNote> note_of(Handle node, const std::string& path) const;
  std::optional<TierNote> kept_note(const std::string& path) const;
  void keep_note(const TierNote& note);
  Status note_on(Handle node, const TierNote& note);
  void note_node(const Job& job);

  // --- tier_copy_job.cpp
  void begin(const std::shared_ptr<Job>& job);
  Plan prepare(Job& job, TierUpload::Source& source, Ending& ending, Status& failure);
  Plan prepare_file(Job& job, const Found& found, TierUpload::Source& source, Ending& ending, Status& failure);
  Plan plan_of(Job& job, const std::optional<TierNote>& note, uint64_t same_since) const;
  bool may_replace(const std::string& path, uint64_t inode) const;
  void bring_back(const std::shared_ptr<Job>& job);
  // Of a file that is not there.
  Ending find_again(Job& job, const Result<Found>& found);
  void begin_anew(const std::shared_ptr<Job>& job);
  void look_whether_stored(const std::shared_ptr<Job>& job, bool is_manifest);
  void content_sent(const std::shared_ptr<Job>& job, TierUpload::Outcome outcome);
  void store_manifest(const std::shared_ptr<Job>& job);
  void write_note(const std::shared_ptr<Job>& job);
  void end_with(const std::shared_ptr<Job>& job, const Status& status, bool is_of_store);
  // Calls the store, and again when it does not answer. `done` is given success, and failures that concern this object;
  // with any other the job ends.
  template <typename T>
  void ask(const std::shared_ptr<Job>& job, std::function<void(Asked<T>)> call, Asked<T> done, unsigned attempt = 0);
  // On a worker. kCorruption and kUnsupported: it cannot be read.
  void read_manifest(const std::shared_ptr<Job>& job, const std::string& key, Asked<StoredManifest> done);
  void get_manifest(const std::shared_ptr<Job>& job, const std::string& key, size_t bytes, Asked<StoredManifest> done);
  void ask_head(const std::shared_ptr<Job>& job, const std::string& key, Asked<ObjectInfo> done);
  void ask_remove(const std::shared_ptr<Job>& job, const std::string& key, std::function<void()> done);

  // --- tier_describe_job.cpp
  void begin_description(const std::shared_ptr<Job>& job);
  static bool is_of_same(const Job& job, const TierManifest& stored);
  static bool has_same_content(const Job& job, const TierManifest& stored);
  void describe_file(const std::shared_ptr<Job>& job, StoredManifest stored);
  void take_over(const std::shared_ptr<Job>& job, StoredManifest stored, const StoredObject& content);
  void edit_theirs(const std::shared_ptr<Job>& job, StoredManifest stored);
  void describe_node(const std::shared_ptr<Job>& job, const Result<StoredManifest>& stored);
  void replace_file(const std::shared_ptr<Job>& job);

  // --- tier_remove_job.cpp
  bool may_remove(const std::shared_ptr<Job>& job);
  void begin_removal(const std::shared_ptr<Job>& job);
  void manifest_to_remove(const std::shared_ptr<Job>& job, const Result<StoredManifest>& stored);
  // Of this array, `tag` or another one; then `done`, which is told whether there was one.
  void remove_content(const std::shared_ptr<Job>& job, const std::string& tag, std::function<void(bool)> done);
  void note_foreign(const std::string& key, uint64_t tag);
  bool is_from(const std::string& path) const FPFS_REQUIRES(mutex_);

  // --- tier_share_job.cpp
  void compare(const std::shared_ptr<Job>& job);
  void compared(const std::shared_ptr<Job>& job, const Result<StoredManifest>& stored);
  void compare_with_theirs(const std::shared_ptr<Job>& job, const Found& found, const StoredManifest& stored);
  void try_again_soon(const std::shared_ptr<Job>& job);
  void note_moved(const std::shared_ptr<Job>& job, const Local& local);
  void find_theirs(const std::shared_ptr<Job>& job, const StoredManifest& stored);
  Local local_of(const Found& found, const std::string& path);
  bool is_known(const std::string& path, const std::optional<TierNote>& note, uint64_t tag) const;
  uint64_t lost_at(const std::string& path) const;
  void note_moved_directory(const Store::NameEvent& event) FPFS_REQUIRES(mutex_);
  // The manifest, or what it took the place of, has taken the place of this one of that array.
  static bool has_replaced(const TierManifest& manifest, uint64_t array, uint64_t tag);
  bool is_edit_of_known(const std::string& path, const std::optional<TierNote>& note,
                        const TierManifest& manifest) const;
  // TierManifest::replaced of what takes the place of this.
  std::map<uint64_t, uint64_t> replaced_by_next(const StoredManifest& stored) const;
  // attributes_hash(); of a directory without its time, which changes with each name in it, on every node by itself.
  uint64_t attributes_of(const TierManifest& manifest) const;
  uint64_t own_key() const { return array_key(store_.array().id()); }
  // What is done to these names meanwhile is none of the array's own doing.
  class Silence;
  bool is_silent(const Store::NameEvent& event) const FPFS_REQUIRES(mutex_);
  void note_lost(const TierNote& note);

  // --- tier_conflict_job.cpp
  // Where a version goes that cannot keep its name.
  static std::string conflict_path(const std::string& path, int64_t mtime_s, uint64_t version);
  bool is_left_aside(const Found& found, const std::string& path);
  void remove_left(const std::shared_ptr<Job>& job, const Found& found);
  Status goes(File& file, uint64_t sequence, const std::string& aside);
  Status stays(Handle node);
  void settle_conflict(const std::shared_ptr<Job>& job, const Found& found, const StoredManifest& stored);
  void settle_kinds(const std::shared_ptr<Job>& job, const Found& found, const StoredManifest& stored);
  void make_way(const std::shared_ptr<Job>& job, const Found& found);
  std::optional<ObjectMetadata> mark_of_copy();
  void copy_aside(const std::shared_ptr<Job>& job);

  // --- tier_withdraw_job.cpp
  void bury(const std::shared_ptr<Job>& job, const StoredManifest& stored);
  bool is_emptied(const std::string& path) const;
  void withdraw(const std::shared_ptr<Job>& job, const Found& found, const Local& local, uint64_t removed_of);
  Result<bool> withdraw_file(const Found& found, const Local& local, const std::string& path);

  // --- tier_show_job.cpp
  bool adopt_if_same(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                     const StoredManifest& stored);
  static bool is_same_link(const TierManifest& ours, const TierManifest& theirs);
  static bool has_content_of(const Local& local, const TierManifest& theirs);
  bool adopt_edit(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                  const StoredManifest& stored);
  void adopt(const std::shared_ptr<Job>& job, const Found& found, const Local& local, const StoredManifest& stored,
             bool is_others);
  void adopt_directory(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                       const StoredManifest& stored);
  void show(const std::shared_ptr<Job>& job, std::shared_ptr<Shown> shown);
  Status begin_to_show(Job& job);
  void commit_shown(const std::shared_ptr<Job>& job);
  void show_name(const std::shared_ptr<Job>& job, const Status& committed);
  Status give_name(const std::shared_ptr<Job>& job);
  TierNote note_of_theirs(const StoredManifest& stored, const std::string& path, uint64_t attributes) const;

  // --- tier_look.cpp
  bool look_below(const std::string& path);
  uint64_t begin_look(const std::string& path) FPFS_REQUIRES(mutex_);
  void list_for(const std::string& path, uint64_t number, const std::string& position);
  void listed_for(const std::string& path, uint64_t number, const Result<ListPage>& page);
  void compare_listed(const std::string& path, uint64_t number);
  bool is_to_be_shown(const Found& directory, const std::string& path, uint64_t tag);
  void limit_look(const std::string& path, uint64_t number);
  void give_up_look(const std::string& path, uint64_t number);
  void add_looked_at(const std::string& path, bool has_looked_below = false) FPFS_REQUIRES(mutex_);
  void end_looks(const std::string& path, Calls& calls) FPFS_REQUIRES(mutex_);
  void note_seen(uint64_t place, uint64_t tag) FPFS_REQUIRES(mutex_);

  // --- tier_scan.cpp
  void begin_scan() FPFS_REQUIRES(mutex_);
  void scan_some();
  Status scan_step(bool& is_at_end);
  Status enter(const std::string& path, Handle directory, const std::string& name);
  void enter_stored(const std::string& path);
  void list_stored(bool manifests, const std::string& position);
  void stored_listed(bool manifests, const Result<ListPage>& page);
  bool follows() const { return options_.tier_delete == TierDelete::kFollow; }
  void note_stored(Level& level, const std::string& path, const std::string& key, const std::string& tag);
  void note_stored_directory(Level& level, const std::string& path);
  static const DirectoryEntry* entry_of(const Level& level, const std::string& name);
  bool has_content(const Level& level, const std::string& path) const;
  bool is_foreign(uint64_t key, uint64_t tag) const;
  bool is_stored(const Level& level, const TierNote& note, const std::string& path) const;
  Status look_at(Level& level, const DirectoryEntry& entry);
  void look_at_file(const std::string& path, const Level& level, const std::string& name);
  void look_at_node(const std::string& path, const Level& level, Handle node);
  void found_stale(TierWaiting file);
  void settle_names(bool is_complete);
  void refuse(const std::string& path, const std::string& why);
  void end_scan(const Status& ended);

  Environment& environment_;
  Store& store_;
  ObjectStore& objects_;
  const TierCopyOptions options_;
  const uint64_t part_size_;
  const std::string place_;        // ObjectStore::describe()
  const std::string noted_store_;  // as notes call it
  TierMemory memory_;
  TierPace pace_;
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_open_{false};

  mutable Mutex mutex_;
  CondVar ended_;
  TierQueue queue_ FPFS_GUARDED_BY(mutex_);
  // Commits that moved content only, as they were told of. The first one is being noted.
  std::deque<TierWaiting> moves_ FPFS_GUARDED_BY(mutex_);
  // By their place, of paths of which no sidecar has one: of what is no file, of files with several names, and of files
  // that take none (a daemon that is not root, and a file of somebody else). Without, the store is asked. At most
  // waiting_max.
  std::map<uint64_t, TierNote> notes_ FPFS_GUARDED_BY(mutex_);
  // Hashes of the keys and the tags of what is not this array's, at most waiting_max.
  std::set<std::pair<uint64_t, uint64_t>> foreign_ FPFS_GUARDED_BY(mutex_);
  std::map<std::string, TierWaiting> failed_ FPFS_GUARDED_BY(mutex_);   // by path; each tries again after failed_pause
  std::map<std::string, TierWaiting> blocked_ FPFS_GUARDED_BY(mutex_);  // by path
  TierStrays strays_ FPFS_GUARDED_BY(mutex_);
  std::map<std::string, TierWaiting> copying_ FPFS_GUARDED_BY(mutex_);  // by path: one at a time writes an object
  std::multimap<uint64_t, Waiter> waiters_ FPFS_GUARDED_BY(mutex_);     // by inode
  std::vector<Everything> everything_ FPFS_GUARDED_BY(mutex_);
  unsigned tasks_ FPFS_GUARDED_BY(mutex_) = 0;  // that are posted or run, besides jobs
  std::map<uint64_t, std::function<void()>> later_ FPFS_GUARDED_BY(mutex_);
  uint64_t next_later_ FPFS_GUARDED_BY(mutex_) = 0;
  std::function<void()> stopped_ FPFS_GUARDED_BY(mutex_);
  TierCopyStatus counted_ FPFS_GUARDED_BY(mutex_);      // the sums; the rest is looked up
  uint64_t held_until_ns_ FPFS_GUARDED_BY(mutex_) = 0;  // hold()
  unsigned away_attempts_ FPFS_GUARDED_BY(mutex_) = 0;  // 0: the store is reachable
  bool is_full_ FPFS_GUARDED_BY(mutex_) = false;        // it had no room for what failed last
  bool may_try_ FPFS_GUARDED_BY(mutex_) = false;        // one file, while it is away
  bool try_is_scheduled_ FPFS_GUARDED_BY(mutex_) = false;
  struct Anchor {
    uint64_t ns = 0, bytes = 0;
  };
  mutable Anchor rate_from_ FPFS_GUARDED_BY(mutex_), rate_next_ FPFS_GUARDED_BY(mutex_);

  // Where the store is shared.
  RestoredTree shown_;
  const std::shared_ptr<TierLost> lost_;
  static constexpr size_t kMovedDirectoriesMax = 64;
  std::deque<std::pair<std::string, std::string>> moved_directories_ FPFS_GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> seen_ FPFS_GUARDED_BY(mutex_);  // by place, the manifest that is taken into account
  std::multiset<std::pair<std::string, std::thread::id>> silent_ FPFS_GUARDED_BY(mutex_);
  std::map<std::string, Look> looks_ FPFS_GUARDED_BY(mutex_);
  uint64_t next_look_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t looks_wait_from_ns_ FPFS_GUARDED_BY(mutex_) = 0;  // until then nobody waits for them

  // Of scans. The levels are the running scan's own.
  bool is_scanning_ FPFS_GUARDED_BY(mutex_) = false;
  bool scan_wanted_ FPFS_GUARDED_BY(mutex_) = false;
  bool scan_waits_ FPFS_GUARDED_BY(mutex_) = false;   // for the queue to be shorter
  bool scan_is_due_ FPFS_GUARDED_BY(mutex_) = false;  // something was left to it
  bool scan_is_scheduled_ FPFS_GUARDED_BY(mutex_) = false;
  bool interval_runs_ FPFS_GUARDED_BY(mutex_) = false;  // behind which the next one begins
  uint64_t scans_begun_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ FPFS_GUARDED_BY(mutex_) = 0;               // by the running scan
  std::vector<std::string> refusals_ FPFS_GUARDED_BY(mutex_);  // a few of them, with why
  Status refusal_ FPFS_GUARDED_BY(mutex_);                     // of the last scan that has ended
  bool refused_logged_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<Level> levels_;
  std::map<uint64_t, std::string> orphans_;  // by place: paths of the store that nothing has in the array
  // Files whose copy is elsewhere, with its place.
  std::vector<std::pair<TierWaiting, uint64_t>> moved_;
  bool asks_store_ = true;  // for what it has; no more in this scan, once it did not answer
};

}  // namespace fpfs
