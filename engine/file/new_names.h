// NewNames: names of files whose commit failed, which may not be durable. Whoever saves to such a file again finds the
// name there, so its next commit syncs the directory as the failed one would have, or where its own sync does that
// (Storage::syncs_own_names()) the sidecar. Until then, or until the name is removed, a handle of that is kept.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

class Reclaimer;

class NewNames {
 public:
  static constexpr size_t kMax = 64;

  // Where a handle goes that is one too many, the oldest: it is synced.
  explicit NewNames(Reclaimer& reclaimer) : reclaimer_(reclaimer) {}

  // `key`: inode of the sidecar. (Of a name that is known, and was moved meanwhile, the directory that it came from is
  // synced with where it went.)
  void keep(uint64_t key, ScopedHandle synced);
  void forget(uint64_t key);
  // A handle of one's own of what is to be synced, or none.
  Result<ScopedHandle> reopen(Storage& storage, uint64_t key);
  void clear();

 private:
  Reclaimer& reclaimer_;
  Mutex mutex_;
  std::deque<std::pair<uint64_t, ScopedHandle>> names_ FPFS_GUARDED_BY(mutex_);  // the oldest first
  std::atomic<bool> has_names_{false};
};

}  // namespace fpfs
