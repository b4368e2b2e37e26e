#include "engine/tier/leased_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/tier/tier_fence.h"

namespace fpfs {

void LeasedStore::own(std::vector<std::string> fences) {
  const MutexLock lock(mutex_);
  fences_ = std::move(fences);
}

bool LeasedStore::is_lost() const {
  const MutexLock lock(mutex_);
  return is_lost_;
}

void LeasedStore::when_known(const Then& then) {
  bool is_known = false;
  {
    const MutexLock lock(mutex_);
    const auto now = Clock::now();
    is_known = seen_at_.has_value() && now - *seen_at_ < lease_;
    if (!is_known) {
      waiting_.push_back(then);
      if (std::exchange(is_asked_, true)) return;
      asked_at_ = now;
    }
  }
  if (is_known) return then(Status::ok());
  read_fence(*store_, array_id_, [this](const Result<TierFence>& stored) { was_read(stored); });
}

void LeasedStore::was_read(const Result<TierFence>& stored) {
  std::vector<Then> waiting;
  Status status = stored.status();
  {
    const MutexLock lock(mutex_);
    is_asked_ = false;
    waiting.swap(waiting_);
    if (status.is_ok()) {
      is_lost_ = std::ranges::find(fences_, stored->token) == fences_.end();
      seen_at_ = is_lost_ ? std::nullopt : std::optional(asked_at_);
      if (is_lost_)
        status = Status::error(StatusCode::kWrongStore,
                               fmt::format("tier: {}: what this array has copied there has become another array's, or "
                                           "a newer state's of this one; it changes nothing there any more",
                                           store_->describe()));
    }
  }
  for (const Then& then : waiting) then(status);
}

void LeasedStore::put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
                      Done<StoredObject> done) {
  when_known([this, key, content, metadata, done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->put(key, content, metadata, done) : done(status);
  });
}

void LeasedStore::begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) {
  when_known([this, key, metadata, done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->begin_upload(key, metadata, done) : done(status);
  });
}

void LeasedStore::put_part(const Upload& upload, uint32_t number, uint64_t offset, std::span<const std::byte> content,
                           Done<StoredPart> done) {
  when_known([this, upload, number, offset, content, done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->put_part(upload, number, offset, content, done) : done(status);
  });
}

void LeasedStore::finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) {
  when_known([this, upload, parts = std::move(parts), done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->finish_upload(upload, parts, done) : done(status);
  });
}

void LeasedStore::abort_upload(const Upload& upload, DoneStatus done) {
  when_known([this, upload, done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->abort_upload(upload, done) : done(status);
  });
}

void LeasedStore::copy(const std::string& from, const std::string& tag, const std::string& to,
                       const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) {
  when_known([this, from, tag, to, metadata, done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->copy(from, tag, to, metadata, done) : done(status);
  });
}

void LeasedStore::remove(const std::string& key, DoneStatus done) {
  when_known([this, key, done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->remove(key, done) : done(status);
  });
}

void LeasedStore::remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) {
  when_known([this, keys = std::move(keys), done = std::move(done)](const Status& status) {
    status.is_ok() ? store_->remove_many(keys, done) : done(status);
  });
}

}  // namespace fpfs
