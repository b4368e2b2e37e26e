#include "engine/file/new_names.h"

#include <fcntl.h>

#include <algorithm>

#include "engine/file/reclaimer.h"

namespace fpfs {

void NewNames::keep(uint64_t key, ScopedHandle synced) {
  ScopedHandle surplus;
  {
    MutexLock lock(mutex_);
    const auto is_its = [key](const auto& name) { return name.first == key; };
    if (std::any_of(names_.begin(), names_.end(), is_its)) return;
    names_.emplace_back(key, std::move(synced));
    has_names_.store(true);
    if (names_.size() <= kMax) return;
    surplus = std::move(names_.front().second);
    names_.pop_front();
  }
  reclaimer_.reclaim({}, std::move(surplus));
}

void NewNames::forget(uint64_t key) {
  if (!has_names_.load()) return;
  MutexLock lock(mutex_);
  std::erase_if(names_, [key](const auto& name) { return name.first == key; });
  has_names_.store(!names_.empty());
}

Result<ScopedHandle> NewNames::reopen(Storage& storage, uint64_t key) {
  if (!has_names_.load()) return ScopedHandle();
  MutexLock lock(mutex_);
  for (const auto& [file, synced] : names_) {
    if (file != key) continue;
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.reopen(synced.get(), O_RDONLY));
    return ScopedHandle(storage, handle);
  }
  return ScopedHandle();
}

void NewNames::clear() {
  MutexLock lock(mutex_);
  names_.clear();
}

}  // namespace fpfs
