#include "engine/array/array_health.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"

namespace fpfs {

namespace {
// Losses that are kept by file; whatever number of files a drive takes with it.
constexpr size_t kLossesMax = 1024;
constexpr size_t kUnsavedMax = 16384;
constexpr size_t kUnsyncedMax = 16;
constexpr size_t kNamedMax = 5;
}  // namespace

void NamedFiles::add(uint64_t key, const std::string& path) {
  if (keys_.size() >= kLossesMax || !keys_.insert(key).second) return;
  if (first_.size() < kNamedMax) first_.push_back(path);
}

std::string NamedFiles::text(size_t skipped) const {
  const size_t named = std::min(skipped, first_.size());
  const size_t more = keys_.size() - first_.size();
  std::string text = fmt::format("{}", fmt::join(first_.begin() + static_cast<ptrdiff_t>(named), first_.end(), ", "));
  if (more > 0)
    text += fmt::format("{}{}{}", text.empty() ? "" : " and ", keys_.size() == kLossesMax ? "at least " : "",
                        format_count(more, text.empty() ? "file" : "other file"));
  return text;
}

void ArrayHealth::note_file_failure(uint64_t key, const std::string& path, const Status& failure) {
  MutexLock lock(mutex_);
  had_failure_.store(true);
  failed_files_.add(key, path);
  if (!failure.is_ok() && (unsaved_.size() < kUnsavedMax || unsaved_.contains(key))) unsaved_[key] = failure;
  has_unsaved_.store(!unsaved_.empty());
}

Status ArrayHealth::last_save(uint64_t key) const {
  if (!has_unsaved_.load()) return Status::ok();
  MutexLock lock(mutex_);
  const auto found = unsaved_.find(key);
  return found == unsaved_.end() ? Status::ok() : found->second;
}

void ArrayHealth::forget_file_failure(uint64_t key) {
  if (!has_unsaved_.load()) return;
  MutexLock lock(mutex_);
  unsaved_.erase(key);
  has_unsaved_.store(!unsaved_.empty());
}

std::string ArrayHealth::failed_files() const {
  MutexLock lock(mutex_);
  return failed_files_.text();
}

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

void ArrayHealth::note_loss(uint64_t key, const std::string& path, const Status& failure) {
  const Status loss = failure.with_context(path);
  MutexLock lock(mutex_);
  had_failure_.store(true);
  lost_.add(key, path);
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

Status ArrayHealth::all_losses() const {
  MutexLock lock(mutex_);
  if (lost_.count() <= 1) return first_loss_;
  return Status::error(first_loss_.code(),
                       fmt::format("{}; and so is what was closed in {}", first_loss_.message(), lost_.text(1)));
}

Status ArrayHealth::with_failed_files(const Status& failure) const {
  MutexLock lock(mutex_);
  if (failure.is_ok() || failed_files_.count() <= std::max<size_t>(lost_.count(), 1)) return failure;
  return Status::error(failure.code(),
                       fmt::format("{}; all saves that failed: {}", failure.message(), failed_files_.text()));
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
