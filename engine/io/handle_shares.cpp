#include "engine/io/handle_shares.h"

#include <algorithm>

#include "engine/base/check.h"

namespace fpfs {

HandleShares::Lease HandleShares::lease_some(uid_t user, size_t wanted) {
  MutexLock lock(mutex_);
  const auto entry = held_.find(user);
  const size_t held = entry == held_.end() ? 0 : entry->second;
  // The most for which held + count <= kPerFree * (free - count).
  const size_t allowed = kPerFree * free_ > held ? (kPerFree * free_ - held) / (kPerFree + 1) : 0;
  const size_t count = std::min(wanted, allowed);
  if (count == 0) return {};
  free_ -= count;
  (entry == held_.end() ? held_[user] : entry->second) += count;
  return {*this, user, count};
}

bool HandleShares::Lease::grow() {
  if (!is_of_user()) return true;
  Lease more = shares_->lease(user_, 1);
  count_ += std::exchange(more.count_, 0);
  return more.shares_ != nullptr;
}

size_t HandleShares::free() const {
  MutexLock lock(mutex_);
  return free_;
}

void HandleShares::give_back(uid_t user, size_t count) {
  MutexLock lock(mutex_);
  const auto entry = held_.find(user);
  FPFS_CHECK(entry != held_.end() && entry->second >= count, "what is given back was leased");
  free_ += count;
  entry->second -= count;
  if (entry->second == 0) held_.erase(entry);
}

}  // namespace fpfs
