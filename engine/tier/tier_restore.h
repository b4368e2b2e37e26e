// TierRestore: the tree of an array that is gone, made anew in this one from what it has copied to a store: names and
// attributes of all of it. Content follows when it is read.
//
// It lists the manifests, and has restored_tree.h make of each what it says; several at a time. What cannot be restored
// by itself (a damaged manifest, a name that cannot be) is counted, and said in the log. Everything else ends it: the
// store does not answer, the drive is full. It can be begun again at any time, and goes on where it was.
//
// Thread safety: all methods from any thread. `done` is called once, without locks, on a thread of the environment or
// the store; not when the store is never going to answer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/io/environment.h"
#include "engine/tier/object_store.h"
#include "engine/tier/restored_tree.h"

namespace fpfs {

struct TierRestoreOptions {
  std::string array_id;      // whose copies, as to_string(Uuid)
  std::string store_id;      // TierCopyOptions::store_id
  unsigned connections = 8;  // manifests at a time
  RestoredTree::Named named = nullptr;
};

struct TierRestoreStatus {
  uint64_t files = 0, bytes = 0;  // names of files that were made, and what their content has
  uint64_t others = 0;            // directories, links, devices
  uint64_t were_there = 0;        // names that stay as they are
  uint64_t failed = 0;
  std::string last_error;
};

class TierRestore : public std::enable_shared_from_this<TierRestore> {
 public:
  using Done = std::function<void(const Status&)>;

  // All of these outlive `done`, or the end of everything.
  static std::shared_ptr<TierRestore> create(Environment& environment, Store& store, ObjectStore& objects,
                                             const TierRestoreOptions& options);
  void start(Done done);
  // Nothing begins any more; `done` gets kCancelled when what is under way has ended.
  void stop();
  TierRestoreStatus status() const;

 private:
  TierRestore(Environment& environment, Store& store, ObjectStore& objects, const TierRestoreOptions& options);

  void list(const std::string& position);
  void listed(const Result<ListPage>& page);
  void pump();
  void get(const std::string& key, size_t bytes);
  void make(const std::string& key, std::span<const std::byte> bytes);
  struct Begun;
  void begin(RestoredTree::File file, uint64_t bytes);
  void record(std::unique_ptr<Begun> begun, const Status& written);
  void commit(std::unique_ptr<Begun> begun, bool is_lazy);
  void recorded(std::unique_ptr<Begun> begun, const Status& status);
  void sync_recorded(bool at_once);
  void committed(std::unique_ptr<Begun> begun, const Status& status);
  void made(const std::string& what, const Result<RestoredTree::Made>& made, bool is_file, uint64_t bytes);
  void end_one();
  void end();

  Environment& environment_;
  Store& store_;
  ObjectStore& objects_;
  const TierRestoreOptions options_;
  RestoredTree tree_;

  mutable Mutex mutex_;
  std::deque<std::string> keys_ FPFS_GUARDED_BY(mutex_);  // of manifests, to be looked at
  std::string position_ FPFS_GUARDED_BY(mutex_);          // of the next page
  bool is_listing_ FPFS_GUARDED_BY(mutex_) = false;
  bool is_listed_ FPFS_GUARDED_BY(mutex_) = false;  // to the end
  bool is_ending_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned asked_ FPFS_GUARDED_BY(mutex_) = 0;      // manifests that the store is asked for
  unsigned under_way_ FPFS_GUARDED_BY(mutex_) = 0;  // these, pages, and what is made of them
  // Small files whose records are to become durable together, by one sync for many.
  std::vector<std::unique_ptr<Begun>> recorded_ FPFS_GUARDED_BY(mutex_);
  uint64_t batch_ FPFS_GUARDED_BY(mutex_) = 0;  // which one these are
  bool is_sync_due_ FPFS_GUARDED_BY(mutex_) = false;
  bool is_syncing_ FPFS_GUARDED_BY(mutex_) = false;
  Status failure_ FPFS_GUARDED_BY(mutex_);
  Done done_ FPFS_GUARDED_BY(mutex_);
  TierRestoreStatus status_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
