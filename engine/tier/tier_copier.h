// TierCopier: copies committed files to a store outside this machine, and keeps the copies up to date.
//
// What is copied. Every regular file of the array, as its last durable commit made it: the plain content under the
// file's path, then a manifest (tier_manifest.h). Never a state that was not committed, never two commits in one copy.
// Commits that follow each other faster than they can be copied are left out, but for the newest. Of whatever else has
// a name (but for the root) there is a manifest. A path with the component kTierReserved is not copied, which is said
// once in the log. A file with several names is copied under each.
//
// Content may lie in the store only (chunks that are away, docs/format.md): a file that is moved needs its copy until
// there is another one where it is. Whoever would replace or remove it waits for that.
//
// Changes of names and attributes. When only attributes change, the manifest is stored anew. A file that is moved has
// its copy made of the old one by the store, and then the old one removed; no content passes. A name that is removed
// takes its copy along with TierDelete::kFollow: the manifest first, and only when the directories on the way to it
// were synced, so that no power cut brings the name back. Nothing is removed that a manifest, or the mark of an upload,
// does not show to be this array's.
//
// How it knows what to do. committed() and changed() only speed things up. What counts is the array itself: each
// sidecar has a note of what was copied (tier_note.h), and a scan finds the files whose note is not of their last
// commit, attributes and path, or names objects that the store does not have. Of other nodes, and of files with several
// names, it has the manifests compared, once. And it finds what the store has, and the array has not. open() begins
// with one. So nothing is logged anywhere else, a crash at any moment loses no more than work, and what was left out,
// for want of memory or because a file was moved meanwhile, is found by the next scan. A scan costs the store two calls
// for each directory, of the array and with kFollow also of what only the store has.
//
// Limits. Content passes through memory of a fixed size (TierCopyOptions::memory), so many parts and files at a time
// (connections), at a rate. Besides, each file that is being copied has its index, and 16 bytes for each of its chunks,
// in memory; waiting_max bounds what is known of files that wait. A version that is being copied is held, and takes
// space on the drives; while the store is not reachable none is held.
//
// Sharing. Where several arrays copy to one store (TierCopyOptions::shares), each shows what the others have copied, one
// directory at a time, when somebody looks into it (look()); and replaces or removes only what it has seen. What two
// have changed without knowing of each other is kept twice (tier_share_job.cpp).
//
// Failures. A store that is not reachable, full, or refuses this user or this clock: everything waits, and one file
// tries again and again, after a pause that grows. What concerns one file only: that file waits for failed_pause. Both
// are counted, and said in the log when they begin and when they end. Nothing local waits for a copy, but who asks to.
//
// Thread safety: all methods from any thread. committed() and changed() with any lock but the copier's held.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/store/store.h"
#include "engine/tier/object_store.h"
#include "engine/tier/restored_tree.h"

namespace fpfs {

class TierLost;

// What happens to the copies of names that are removed.
enum class TierDelete : uint8_t { kFollow, kKeep };

struct TierCopyOptions {
  std::string store_id;           // what notes call the store; empty: as it describes itself
  uint64_t memory = 64 * kMiB;    // for content; at least four chunks
  unsigned connections = 8;       // parts that are read or sent at a time, and files
  uint64_t rate = 0;              // bytes per second, 0: any
  uint64_t part_size = 8 * kMiB;  // larger files go in parts of this size, very large ones in larger parts
  std::chrono::milliseconds pause_first{1000}, pause_max{60'000};  // while the store is not reachable
  std::chrono::milliseconds failed_pause{300'000};                 // of a file that failed for another reason
  std::chrono::milliseconds scan_interval{600'000};                // from scan to scan; 0: the first one only
  size_t waiting_max = 65536;                                      // files; what is beyond is left to a scan
  TierDelete tier_delete = TierDelete::kFollow;
  std::vector<std::string> restored;             // arrays whose copies are this one's, as to_string(Uuid)
  bool shares = false;                           // with other arrays, of the same chunk size
  std::shared_ptr<TierLost> lost = nullptr;      // of a store that is shared; none: nothing was lost before
  RestoredTree::Named named = nullptr;           // told of names that are shown because others have made them
  std::chrono::milliseconds look_timeout{2000};  // nobody waits for longer until he sees them
};

struct TierCopyStatus {
  // Not copied yet, as far as known; the ones being copied included, and names whose copy is to be looked at.
  uint64_t files_waiting = 0, bytes_waiting = 0;
  uint64_t files_copying = 0;
  uint64_t files_failed = 0;                    // of those that wait: for failed_pause
  uint64_t files_refused = 0;                   // paths that cannot be copied, of the last scan
  int64_t oldest_waiting_s = 0;                 // seconds since 1970; 0: nothing waits
  uint64_t files_copied = 0, bytes_copied = 0;  // since open
  uint64_t manifests_stored = 0;                // without a content that was sent: of moves, attributes, directories
  uint64_t copies_removed = 0;                  //
  uint64_t files_shared = 0;                    // of others, that are shown here; again for each version
  uint64_t conflicts = 0;                       // two versions that did not know of each other
  double bytes_per_second = 0;                  // of the last seconds
  uint64_t errors = 0;
  std::string last_error;
  int64_t last_error_s = 0;
  bool is_store_away = false;  // everything waits
  bool is_scanning = false;
  bool is_scan_due = false;  // soon: something was left to it
};

class TierCopier {
 public:
  using Done = std::function<void(const Status&)>;

  // Store and ObjectStore outlive it. kInvalidArgument: the memory is too small for the array's chunks, or the store's
  // parts. Nothing begins before open().
  static Result<std::unique_ptr<TierCopier>> create(Environment& environment, Store& store, ObjectStore& objects,
                                                    const TierCopyOptions& options);
  // Stops, and waits for what is in progress; in a simulation it is to be stopped before, or the power is off.
  ~TierCopier();
  TierCopier(const TierCopier&) = delete;
  TierCopier& operator=(const TierCopier&) = delete;

  // Begins, with a scan.
  void open();
  // For Store::on_commit().
  void committed(uint64_t inode, uint64_t sequence, bool is_moved);
  // For Store::on_names().
  void changed(const Store::NameEvent& event);
  // Looks through the whole tree for what is not copied, soon.
  void scan();
  // Calls back when the last durable commit of the file at this path (below the root, without '/' at its beginning) is
  // copied, or a later one: at once when it is already. Fails when there is no such file, when its copy fails for a
  // reason of its own, and with kCancelled at the end. While the store is not reachable it waits.
  void wait_for(const std::string& path, Done done);
  // The same of this commit of a file that is open: success also when it has no name any more, as then no copy is
  // wanted. While it is being moved it waits, too.
  void wait_for_commit(uint64_t inode, uint64_t sequence, Done done);
  // Calls back when a scan that began after this call has ended and nothing waits any more; with a failure when files
  // are left that cannot be copied, or kRefused: paths that the store cannot have.
  void wait_for_all(const Done& done);
  // Has a directory show what others had copied there at `since_ns` (of the environment's clock), or later, and calls
  // back when it does; also when that cannot be known, or takes too long. False: there is nothing to wait for, as the
  // store is away, or not shared; nobody is called then. `path`: below the root, with a '/' at its end; empty: the root.
  bool look(const std::string& path, uint64_t since_ns, std::function<void()> done);
  // Whether looks show what is there. False: the store is away, or the last one took too long, and nobody waits.
  bool shows_others() const;
  TierCopyStatus status() const;
  // Grows whenever something has reached the store.
  uint64_t progress() const;
  // Whether the file is being copied at this moment.
  bool is_copying(uint64_t inode) const;
  // From now on content of the array may lie in this store only. Then no copy is replaced or removed that a file needs
  // which was moved (tier_strays.h). Before open(), when it was so in a mount before.
  void content_is_away();
  // From now on, instead of TierCopyOptions::rate.
  void set_rate(uint64_t bytes_per_second);
  // While `holds`, for `most` at most, nothing begins that nobody waits for: the store and the processors are others'.
  static constexpr std::chrono::seconds kHoldMax{30};
  void hold(bool holds, std::chrono::seconds most = kHoldMax);

  // Nothing begins any more. `done` when nothing is in progress: soon when the object store was closed before, else
  // when it has answered. Versions that were held are let go of by then.
  void stop(std::function<void()> done);

 private:
  class Impl;
  explicit TierCopier(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl> impl_;
};

}  // namespace fpfs
