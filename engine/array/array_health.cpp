#include "engine/array/array_health.h"

#include "engine/base/log.h"

namespace fpfs {

namespace {
// Losses that are kept by file; whatever number of files a drive takes with it.
constexpr size_t kLossesMax = 1024;
constexpr size_t kUnsyncedMax = 16;
}  // namespace

void ArrayHealth::fail(const Status& status) {
  MutexLock lock(mutex_);
  if (!failure_.is_ok()) return;
  failure_ = Status::error(StatusCode::kReadOnly, "the array turned read-only: " + status.message());
  failed_.store(true);
  had_failure_.store(true);
  log(LogLevel::kError, "{}; unmount, look at the drive, run fsck.fastpersistfs", failure_.message());
}

Status ArrayHealth::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return Status::ok();
  MutexLock lock(mutex_);
  return failure_;
}

void ArrayHealth::note_loss(uint64_t key, const Status& loss) {
  MutexLock lock(mutex_);
  had_failure_.store(true);
  if (first_loss_.is_ok()) first_loss_ = loss;
  if (losses_.size() < kLossesMax) losses_[key] = loss;
  has_losses_.store(true);
}

Status ArrayHealth::take_loss(uint64_t key) {
  if (!has_losses_.load()) return Status::ok();
  MutexLock lock(mutex_);
  const auto found = losses_.find(key);
  if (found == losses_.end()) return Status::ok();
  const Status loss = found->second;
  losses_.erase(found);
  has_losses_.store(!losses_.empty());
  return loss;
}

Status ArrayHealth::take_any_loss() {
  MutexLock lock(mutex_);
  const Status loss = losses_.empty() ? Status::ok() : losses_.begin()->second;
  losses_.clear();
  has_losses_.store(false);
  return loss;
}

Status ArrayHealth::first_loss() const {
  MutexLock lock(mutex_);
  return first_loss_;
}

void ArrayHealth::note_unsynced(uint64_t key, const std::function<std::string()>& path) {
  MutexLock lock(mutex_);
  if (unsynced_.size() < kUnsyncedMax) unsynced_.try_emplace(key, path());
  has_unsynced_.store(true);
}

void ArrayHealth::note_synced(uint64_t key) {
  if (!has_unsynced_.load()) return;
  MutexLock lock(mutex_);
  unsynced_.erase(key);
}

std::string ArrayHealth::take_unsynced() {
  MutexLock lock(mutex_);
  std::string paths;
  for (const auto& [key, path] : unsynced_) paths += (paths.empty() ? "" : ", ") + path;
  if (unsynced_.size() == kUnsyncedMax) paths += " and others";
  unsynced_.clear();
  return paths;
}

}  // namespace fpfs
