// FileSystem: what all operations share: the store, the kernel's nodes, open handles, requests under way, and what was
// agreed with the kernel. One per mount.
//
// Thread safety: all methods from any thread. Setters named "before serving" run before the first request.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/mutex.h"
#include "engine/io/environment.h"
#include "engine/store/rebalance.h"
#include "engine/store/scrub.h"
#include "engine/store/store.h"
#include "engine/tier/array_tier.h"
#include "fs/nodes/call_pool.h"
#include "fs/nodes/calls.h"
#include "fs/nodes/caught_requests.h"
#include "fs/nodes/copy_waits.h"
#include "fs/nodes/inode_table.h"
#include "fs/nodes/node_pruner.h"
#include "fs/nodes/open_handles.h"
#include "fs/nodes/page_cache.h"
#include "fs/nodes/tickets.h"
#include "fs/protocol/fuse_library.h"
#include "fs/protocol/operation_times.h"

namespace fpfs {

class FileSystem {
 public:
  struct Settings {
    Durable durable = Durable::kClose;  // of nodes that do not say otherwise
    std::chrono::milliseconds tier_timeout{60'000};
    bool killed_keeps_old = true;  // killed_saver=keep_old
    bool sync_writes = false;      // mount option sync
    // Reading moves access times, by the rules of the filesystem under tree/ (mount options noatime, nodiratime, ro).
    bool file_access_times = true;
    bool directory_access_times = true;
    size_t nodes_max = SIZE_MAX;  // that the kernel may remember, roughly
    // Names and attributes may come from other nodes (TierOptions::share): the kernel keeps them for so long.
    std::optional<std::chrono::milliseconds> shared_for;
    uint32_t read_bytes_max = kRequestBytesMax;  // of one READ: kRequestBytesMax .. kReadBytesMax, whole pages
    // For status:
    unsigned threads = 0, workers = 0;
    std::string mount_point;
    std::string source;
    std::string profile;
    bool allow_other = false;
    std::string metrics;  // where they are served; empty: nowhere
    TierOptions tier;
  };
  // The store, the tier and the environment outlive it. `root` are the root's attributes.
  FileSystem(Environment& environment, Store& store, ArrayTier& tier, Settings settings, const struct stat& root);
  ~FileSystem();

  // The root's attributes as they were last told: what is shown while the drive of the names does not give them.
  struct stat root_as_told() const FPFS_EXCLUDES(root_mutex_) {
    const MutexLock lock(root_mutex_);
    return root_as_told_;
  }
  void note_root(const struct stat& attributes) FPFS_EXCLUDES(root_mutex_) {
    const MutexLock lock(root_mutex_);
    root_as_told_ = attributes;
  }
  Store& store() { return store_; }
  Storage& storage() { return store_.storage(); }
  InodeTable& inodes() { return inodes_; }
  OpenHandles& handles() { return handles_; }
  PageCache& page_cache() { return page_cache_; }
  CaughtRequests& caught_requests() { return caught_requests_; }
  Scrub& scrub() { return scrub_; }
  Rebalance& rebalance() { return rebalance_; }
  ArrayTier& tier() { return tier_; }
  // Closes and syncs that are answered when their commit is copied, too.
  CopyWaits& copy_waits() { return copy_waits_; }
  // Calls that are begun by one request and asked about by others.
  Tickets& tickets() { return tickets_; }
  // Of every request: the transport counts, reports read.
  OperationTimes& operation_times() { return operation_times_; }
  uint64_t random_u64() { return environment_.random_u64(); }
  const Settings& settings() const { return settings_; }
  // When the node's content is durable. What cannot be read counts as kClose.
  Durable durable_of(Inode& inode);
  double uptime_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

  CallPool<ReadCall>& read_calls() { return read_calls_; }
  CallPool<WriteCall>& write_calls() { return write_calls_; }
  CallPool<ControlCall>& control_calls() { return control_calls_; }

  // Agreed with the kernel at INIT.
  void set_direct_mmap(bool yes) { direct_mmap_.store(yes, std::memory_order_relaxed); }
  // Requests come through io_uring rather than by /dev/fuse.
  void set_over_io_uring(bool yes) { over_io_uring_.store(yes, std::memory_order_relaxed); }
  bool over_io_uring() const { return over_io_uring_.load(std::memory_order_relaxed); }
  // Files opened with direct I/O can still be mapped shared.
  bool direct_mmap() const { return direct_mmap_.load(std::memory_order_relaxed); }
  // Readers go through the kernel's page cache: it reads ahead in steps that are worth a request.
  void set_cached_reads(bool yes) { cached_reads_.store(yes, std::memory_order_relaxed); }
  bool cached_reads() const { return cached_reads_.load(std::memory_order_relaxed) || !direct_mmap(); }
  // Before serving: the session, for notifications.
  void set_session(fuse_session* session) { session_ = session; }
  // A file's content is about to be read: moves the access time. Cheap once it was moved.
  void note_access(Inode& inode) {
    inode.set_attributes_known(false);
    if (inode.access_noted.load(std::memory_order_relaxed) == 0) move_access_time(inode);
  }
  // The file changes: the next read moves the access time again.
  static void note_change(Inode& inode) {
    inode.set_attributes_known(false);
    if (inode.access_noted.load(std::memory_order_relaxed) != 0) inode.access_noted.store(0, std::memory_order_relaxed);
  }
  // Reads must reach the daemon, as the next one may move the access time: so it is a day after it was moved, too.
  bool access_is_due(Inode& inode) const;
  // The same of a directory, whose names are about to be listed.
  void note_listing(Inode& directory) {
    if (!settings_.directory_access_times) return;
    directory.access_noted.store(environment_.now().tv_sec);
    storage().note_access(directory.handle);
  }
  bool listing_is_due(const Inode& directory) const;
  // Names come and go only through this mount.
  bool is_alone() const { return !settings_.shared_for.has_value(); }
  // How long the kernel may keep what would be good for `seconds` if that were so.
  double kept_seconds(double seconds) const {
    return is_alone() ? seconds : std::min(seconds, std::chrono::duration<double>(*settings_.shared_for).count());
  }
  // Calls `then` when the directory shows what other nodes have copied there: at once, or on another thread. The
  // request that names the directory is not answered before.
  void when_shown(Inode& directory, const std::function<void()>& then);
  // The same of a directory that is removed, or moved with all that is below it: by what is seen of it now that would be
  // less than there is. Names of anything else are none of its business.
  struct ShownName {
    Inode& directory;
    std::string name;
    bool is_deep = false;  // also of the directories below it
  };
  void when_names_shown(const std::vector<ShownName>& names, std::function<void()> then);
  // File::recall(), which ends when the mount does.
  void fetch(const std::shared_ptr<File>& file, std::function<bool()> is_wanted,
             std::function<void(const Status&)> then);
  // The kernel got to know one more node: maybe it should forget others.
  void node_added() {
    if (pruner_.is_due() && !pruning_.exchange(true)) start_pruning(false);
  }
  // The kernel should forget every node that nobody uses. False: it is being asked to already.
  bool forget_unused() {
    if (pruning_.exchange(true)) return false;
    start_pruning(true);
    return true;
  }
  // The device number of the mount (st_dev of what it shows); 0 while it is not known.
  dev_t device() const { return device_.load(); }
  void set_device(dev_t device) { device_.store(device); }
  // Tells the kernel to ask for a node's attributes again, after a change that it did not ask for.
  void invalidate_attributes(const Inode& inode);

  // Makes the buffers' memory resident, in the background: else what clearing pages takes is part of the first loads and
  // saves.
  void populate_buffers();
  // A process was closing what it was replacing, and nobody can say whether it was killed. Said in the log once.
  void say_killed_is_unknown();
  // Runs blocking work (syncing a directory) off the workers; counted as a request under way.
  void run_in_background(std::function<void()> task);
  void run_later(std::chrono::milliseconds delay, std::function<void()> task);
  // Starts a control request on `file`, kept open meanwhile. `then` runs once, maybe inside the call.
  void control(std::shared_ptr<File> file, ControlRequest::Kind kind, std::function<void(const Status&)> then);
  // The same with all that a request can say; `then` sees what it came to. Its Writer outlives that.
  using ControlDone = std::function<void(const ControlRequest& request, const Status& status)>;
  void control(std::shared_ptr<File> file, const ControlRequest& request, ControlDone then);
  // Requests that are answered later and hold no object of a pool.
  RequestCounter& others_under_way() { return others_under_way_; }
  // Waits until every request under way was answered. Workers must have ended.
  void drain();

 private:
  void name_appeared(uint64_t directory, const std::string& name);
  void invalidate(uint64_t node, off_t offset);
  void move_access_time(Inode& inode);
  void start_pruning(bool all);

  mutable Mutex root_mutex_;
  struct stat root_as_told_ FPFS_GUARDED_BY(root_mutex_);
  Environment& environment_;
  Store& store_;
  ArrayTier& tier_;
  const Settings settings_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  OperationTimes operation_times_;
  InodeTable inodes_;
  OpenHandles handles_;
  PageCache page_cache_;
  CaughtRequests caught_requests_;
  NodePruner pruner_;
  std::atomic<bool> pruning_{false};
  Scrub scrub_;
  Rebalance rebalance_;
  CallPool<ReadCall> read_calls_;
  CallPool<WriteCall> write_calls_;
  CallPool<ControlCall> control_calls_;
  RequestCounter others_under_way_;
  CopyWaits copy_waits_;
  Tickets tickets_;
  std::atomic<bool> ending_{false};
  std::atomic<dev_t> device_{0};
  std::atomic<bool> killed_is_unknown_{false};
  std::atomic<bool> direct_mmap_{false};
  std::atomic<bool> cached_reads_{false};
  std::atomic<bool> over_io_uring_{false};
  fuse_session* session_ = nullptr;
};

}  // namespace fpfs
