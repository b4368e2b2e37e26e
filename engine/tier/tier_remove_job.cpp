// The steps by which the copy of what is not there any more is removed:
//
//   1. gone      nothing has the path, and that is durable: a power cut does not bring the name back
//   2. manifest  read, for whose it is; removed: from here on there is no copy
//   3. content   removed
//
// A crash behind the second leaves a content without a manifest. The next scan finds it, and the mark of its upload
// tells whose it is. While the path is looked at no other job writes there: what comes to be there meanwhile is copied
// behind this.
#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {

// A file that was moved has its copy there, of which it gets another one where it is; then this is looked at again.
bool TierCopier::Impl::is_from(const std::string& path) const {
  const auto has = [&path](const auto& file) { return file.second.from == path; };
  return queue_.is_from(path) || std::any_of(copying_.begin(), copying_.end(), has) ||
         std::any_of(failed_.begin(), failed_.end(), has);
}

// Nothing has the path for good, and no file its copy there; else the job has ended.
bool TierCopier::Impl::may_remove(const std::shared_ptr<Job>& job) {
  const std::string& path = job->file.path;
  const Result<bool> vacant = is_vacant_for_good(path);
  if (!vacant.is_ok()) {
    end_with(job, vacant.status(), false);
    return false;
  }
  bool waits = false;
  if (vacant.value()) {
    const MutexLock lock(mutex_);
    waits = is_from(path);
    if (!waits) notes_.erase(place_of(path));
  }
  const bool may = vacant.value() && !waits;
  if (!may) end_job(job, waits ? Ending::kWaits : Ending::kMoved);
  return may;
}

void TierCopier::Impl::begin_removal(const std::shared_ptr<Job>& job) {
  const std::string& path = job->file.path;
  if (is_reserved(path)) return end_job(job, Ending::kIsCopied);
  if (!may_remove(job)) return;
  read_manifest(job, manifest_key(path), [self = shared_from_this(), job](const Result<StoredManifest>& stored) {
    self->manifest_to_remove(job, stored);
  });
}

void TierCopier::Impl::manifest_to_remove(const std::shared_ptr<Job>& job, const Result<StoredManifest>& stored) {
  const std::string& path = job->file.path;
  const std::string key = manifest_key(path);
  const auto removed = [self = shared_from_this(), job](bool was_there) {
    if (was_there) {
      const MutexLock lock(self->mutex_);
      ++self->counted_.copies_removed;
    }
    self->end_job(job, Ending::kRemoved);
  };
  if (stored.status().code() == StatusCode::kNotFound) {
    if (path.ends_with('/')) return removed(false);
    return remove_content(job, "", removed);
  }
  if (!stored.is_ok()) {
    log(LogLevel::kWarning, "tier: {} stays, as nobody can tell whose it is: {}", key, stored.status().message());
    return end_job(job, Ending::kIsCopied);
  }
  const TierManifest& manifest = stored.value().manifest;
  // Of a file that was restored, and removed before its manifest became this array's.
  const bool was_ours = job->file.was_here &&
                        std::ranges::find(options_.restored, to_string(manifest.array_id)) != options_.restored.end();
  // What says that it was removed is for the array that had made it.
  if ((manifest.array_id != store_.array().id() && !was_ours) || manifest.is_removed()) {
    job->note.manifest_tag = manifest.is_removed() ? stored.value().tag : 0;
    note_foreign(key, stored.value().tag);
    return end_job(job, Ending::kIsCopied);
  }
  ask_remove(job, key, [self = shared_from_this(), job, removed, tag = manifest.content_tag] {
    if (tag.empty()) return removed(true);
    self->remove_content(job, tag, [removed](bool) { removed(true); });
  });
}

void TierCopier::Impl::remove_content(const std::shared_ptr<Job>& job, const std::string& tag,
                                      std::function<void(bool)> done) {
  const std::string path = job->file.path;
  ask_head(job, path,
           [self = shared_from_this(), job, path, tag, done = std::move(done)](const Result<ObjectInfo>& found) {
             if (found.status().code() == StatusCode::kNotFound) return done(false);
             if (!found.is_ok()) return self->end_with(job, found.status(), true);
             const ObjectInfo& object = found.value();
             const auto mark = object.metadata.find(kMark);
             const bool is_marked =
                 mark != object.metadata.end() && mark->second.starts_with(to_string(self->store_.array().id()) + ".");
             if (!is_marked && (tag.empty() || object.tag != tag)) {
               self->note_foreign(path, TierNote::tag_of(object.tag));
               return done(false);
             }
             self->ask_remove(job, path, [done] { done(true); });
           });
}

void TierCopier::Impl::note_foreign(const std::string& key, uint64_t tag) {
  const MutexLock lock(mutex_);
  if (foreign_.size() < options_.waiting_max) foreign_.emplace(TierNote::tag_of(key), tag);
}

}  // namespace fpfs
