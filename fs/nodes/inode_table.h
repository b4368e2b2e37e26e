// InodeTable: the kernel's node numbers and what they stand for.
//
// A node number is the address of an Inode (the root: FUSE_ROOT_ID), so a request reaches its Inode without a lookup.
// An Inode holds a handle on its entry of tree/ from the first lookup until the kernel has forgotten all of
// them. Inodes are keyed by st_ino, so all hard links of a file share one. An st_ino cannot be used again for another
// file while the handle is open, even after unlink, which is why the key is safe.
//
// tree/ is one filesystem: an entry on another device (something mounted inside tree/) is refused with EXDEV.
//
// Thread safety: all methods from any thread. An Inode stays valid while a request of the kernel that names it has not
// ended (fs/nodes/caught_requests.h); after its reply it must not be touched.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/io/scoped_handle.h"
#include "engine/store/store.h"
#include "fs/nodes/late_closes.h"
#include "fs/nodes/removal_turns.h"

namespace fpfs {

// That a node has not got some attribute: saves the check wherever it matters.
class AbsenceHint {
 public:
  // For absent(): what is looked at from now on.
  unsigned changes() const { return changes_.load(); }
  bool is_absent() const { return absent_.load() == changes_.load(); }
  // It was looked at after changes() gave this.
  void note_absent(unsigned changes) { absent_.store(changes); }
  void note_set() { changes_.fetch_add(1); }

 private:
  std::atomic<unsigned> changes_{0};
  std::atomic<unsigned> absent_{UINT_MAX};  // at which of these counts it was seen without
};

struct Inode {
  NodeHandle own;             // of its entry; the root has none
  Handle handle = kNoHandle;  // its own, or, the root's, borrowed: O_PATH or readable
  uint64_t number = 0;        // st_ino
  uint64_t generation = 0;    // makes (address, generation) unique over the life of the mount
  uint64_t lookups = 0;       // guarded by the table
  bool is_directory = false;
  bool readable = false;                    // the handle
  HandleShares::Lease handles;              // what it holds is counted as; guarded by the table
  std::unique_ptr<Store::Removed> removed;  // while it has no name; guarded by the table
  std::atomic<unsigned> opens{0};           // handles of open files
  // Handles that may write. While there are some, attributes are cached for a short time only.
  std::atomic<unsigned> writers{0};
  // Failed writers' handles that were closed since the file was opened last: what the kernel knows of its size may be
  // that of content which was given up.
  std::atomic<unsigned> size_doubts{0};
  // The kernel may have pages of it in its cache, and the commit (File::clean_commit()) that they are of; 0: unknown.
  std::atomic<bool> has_pages{false};
  std::atomic<unsigned> drops{0};  // under way, by PageCache::drop_read_beside()
  std::atomic<uint64_t> cached_commit{0};
  struct CacheState {
    unsigned handles = 0;          // whose open was answered
    unsigned writers_through = 0;  // of them, those that may write through the kernel's cache
    unsigned readers_past = 0;     // and those that may be mapped and go past it
    bool dropping = false;         // the kernel is dropping its pages: opens wait
  };
  CacheState cache;  // guarded by PageCache, which says what it is for
  // False once the file was seen without them; set again by whoever may have set them (chmod, setxattr). Saves the
  // check at every write.
  std::atomic<bool> may_have_set_id{true};
  std::atomic<bool> may_have_capability{true};
  AbsenceHint any_xattr;    // extended attributes
  AbsenceHint default_acl;  // of a directory, for new entries
  AbsenceHint settings;     // Store::is_setting(); of a directory all, of a file kDurableAttribute
  // The kernel keeps its attributes, and nothing has changed them since: a listing need not hand them out again. Only a
  // hint: when it is wrong, the kernel asks.
  std::atomic<bool> attributes_known{false};
  void set_attributes_known(bool yes) {
    if (attributes_known.load(std::memory_order_relaxed) == yes) return;
    attributes_known.store(yes, std::memory_order_relaxed);
    if (!yes && listings != nullptr) listings->fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic<uint64_t>* listings = nullptr;  // the table's count; see listings_outdated()
  // Of a directory: InodeTable::listings_outdated() when a listing was begun at whose end the kernel knew all
  // attributes.
  std::atomic<uint64_t> listed_at{kNeverListed};
  static constexpr uint64_t kNeverListed = UINT64_MAX;
  // Of a directory of a store that is shared: when somebody last looked what others have there (steady clock, ms).
  std::atomic<int64_t> looked_at{INT64_MIN};
  // When a read last moved the access time (seconds); 0 when the next one may move it again (relatime).
  std::atomic<int64_t> access_noted{0};
};

class InodeTable {
 public:
  static constexpr uint64_t kRootNode = 1;  // FUSE_ROOT_ID

  // `root`: borrowed, must outlive the table. With the table go the handles of what the kernel never forgot (an unmount
  // sends no forgets). `run_later`: of LateCloses; none: all is closed at once.
  using Late = LateCloses<Inode>;
  InodeTable(Storage& storage, Handle root, const struct stat& root_attributes, Late::RunLater run_later = nullptr);
  InodeTable(const InodeTable&) = delete;
  InodeTable& operator=(const InodeTable&) = delete;

  // The Inode of `node`, whose handle is counted in `handles` (for none: the handle counts itself, as that of a file just
  // made does), with one more lookup counted.
  Result<Inode*> remember(Store::Node node, HandleShares::Lease handles);
  // One more lookup of a node that the kernel knows.
  void remember(Inode& inode);
  Inode& get(uint64_t node) {
    return node == kRootNode ? root_ : *reinterpret_cast<Inode*>(static_cast<uintptr_t>(node));
  }
  uint64_t node(const Inode& inode) const {
    return &inode == &root_ ? kRootNode : static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&inode));
  }
  bool is_root(const Inode& inode) const { return &inode == &root_; }
  // Whether the kernel knows a node with this st_ino, and its attributes (Inode::attributes_known).
  bool attributes_known(uint64_t number) const;
  // How often there was a reason for listings to come here again although the kernel has kept them: it would ask for
  // attributes one by one that a listing hands out together.
  uint64_t listings_outdated() const { return listings_outdated_.load(std::memory_order_relaxed); }
  void outdate_listings() { listings_outdated_.fetch_add(1, std::memory_order_relaxed); }
  // The content of a file without a name: whoever has a descriptor of it, be it one made with O_PATH, can open it until
  // the kernel forgets the node (Store::Keeper). Null: it has a name again.
  void keep(uint64_t number, std::unique_ptr<Store::Removed> removed);
  // The node stays also when the kernel forgets it, until forget(node, 1).
  void hold(Inode& inode);
  // The node with these attributes, held likewise; null when the kernel knows none.
  Inode* find_and_hold(const struct stat& attributes);
  Inode* find_and_hold(uint64_t number);  // by st_ino; also the root
  // The kernel drops `count` lookups of a node.
  void forget(uint64_t node, uint64_t count);
  // From now on the handles of what it forgets are closed within forget().
  void close_at_once() { late_closes_.end(); }
  // For whoever removes a directory: the handles of removed files are closed in these turns.
  RemovalTurns& removal_turns() { return removal_turns_; }
  size_t size() const { return size_.load(std::memory_order_relaxed); }  // without the root

  // Up to `count` nodes that no file is open of, and that a kernel might forget: others each time.
  std::vector<uint64_t> pick_unused(size_t count);
  // The same for what is no directory, with the node of its directory and its name.
  struct Entry {
    uint64_t directory = 0;
    std::string name;
  };
  std::vector<Entry> pick_unused_entries(size_t count);

 private:
  bool has_room() const;
  void visit_unused(size_t count, const std::function<bool(Inode&)>& visit) FPFS_REQUIRES(mutex_);

  Storage& storage_;
  const dev_t device_;
  Inode root_;
  std::atomic<size_t> size_{0};
  std::atomic<uint64_t> listings_outdated_{0};
  RemovalTurns removal_turns_;
  Late late_closes_;
  mutable Mutex mutex_;
  size_t next_bucket_ FPFS_GUARDED_BY(mutex_) = 0;  // where pick_unused() goes on
  uint64_t next_generation_ FPFS_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::unique_ptr<Inode>> inodes_ FPFS_GUARDED_BY(mutex_);  // by st_ino
};

}  // namespace fpfs
