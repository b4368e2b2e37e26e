// Removals between arrays that share a store: what is said there of another one's that was removed here, and what goes
// here as another one has removed it.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "engine/tier/tier_copier_impl.h"
#include "engine/tier/tier_silence.h"

namespace fpfs {

// Another array's was removed here: that is said in its place, and the content goes.
void TierCopier::Impl::bury(const std::shared_ptr<Job>& job, const StoredManifest& stored) {
  const std::string path = job->file.path;
  if (!may_remove(job)) return;
  if (!may_replace(path, 0)) return end_job(job, Ending::kBlocked);
  if (path.ends_with('/') && is_emptied(path)) return try_again_soon(job);
  TierManifest removed;
  removed.array_id = store_.array().id();
  removed.path = std::string(without_slash(path));
  removed.mode = stored.manifest.mode & S_IFMT;
  if (!S_ISDIR(removed.mode)) removed.mode = S_IFREG;
  removed.replaced = job->replaced;
  removed.removed_of = array_key(stored.manifest.array_id);
  job->encoded = encode_manifest(removed);
  ask<StoredObject>(
      job,
      [this, job](Asked<StoredObject> done) {
        const ObjectMetadata metadata = {{kMark, to_string(store_.array().id())}};
        objects_.put(manifest_key(job->file.path), job->encoded, metadata, std::move(done));
      },
      [self = shared_from_this(), job, tag = stored.manifest.content_tag](const Result<StoredObject>& put) {
        if (!put.is_ok()) return self->end_with(job, put.status(), true);
        const auto removed_all = [self, job](bool) {
          {
            const MutexLock lock(self->mutex_);
            ++self->counted_.copies_removed;
          }
          self->end_job(job, Ending::kRemoved);
        };
        if (tag.empty()) return removed_all(true);
        self->remove_content(job, tag, removed_all);
      });
}

// What was in the directory is said to be removed before: others keep a directory that they have something in.
bool TierCopier::Impl::is_emptied(const std::string& path) const {
  const MutexLock lock(mutex_);
  return queue_.has_below(path) || std::ranges::any_of(copying_, [&path](const auto& copying) {
           return copying.first.size() > path.size() && copying.first.starts_with(path);
         });
}

// False: it was changed in between, and is kept.
Result<bool> TierCopier::Impl::withdraw_file(const Found& found, const Local& local, const std::string& path) {
  const std::string aside = conflict_path(path, found.node.attributes.st_mtim.tv_sec, environment_.random_u64());
  const std::string name = aside.substr(aside.rfind('/') + 1);
  const Silence silence(*this, {path, aside});
  FPFS_RETURN_IF_ERROR(goes(*local.file, local.sequence, aside));
  const Status moved = store_.rename(found.directory.get(), found.name, found.directory.get(), name, RENAME_NOREPLACE);
  if (!moved.is_ok()) {
    static_cast<void>(stays(found.node.handle.get()));
    return moved;
  }
  if (local.file->content_since() != local.content_since) {
    FPFS_RETURN_IF_ERROR(stays(found.node.handle.get()));
    FPFS_RETURN_IF_ERROR(
        store_.rename(found.directory.get(), name, found.directory.get(), found.name, RENAME_NOREPLACE));
    return false;
  }
  FPFS_RETURN_IF_ERROR(store_.unlink(found.directory.get(), name));
  return true;
}

// Another array has removed it. `removed_of`: whose it was, when that is said in the store; 0: nothing is there.
void TierCopier::Impl::withdraw(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                uint64_t removed_of) {
  const std::string path = job->file.path;
  if (found.is_file()) {
    const Result<bool> went = withdraw_file(found, local, path);
    if (!went.is_ok()) return end_with(job, went.status(), false);
    if (!went.value()) return try_again_soon(job);
  } else {
    const Silence silence(*this, {std::string(without_slash(path))});
    const Status removed = found.is_directory() ? store_.remove_directory(found.directory.get(), found.name)
                                                : store_.unlink(found.directory.get(), found.name);
    // It has names in it that the others have not seen; or such that are gone there, too, which who looks into it finds.
    if (found.is_directory() && removed.errno_value() == ENOTEMPTY) {
      if (job->file.has_looked_below || !look_below(path)) return begin(job);
      return end_job(job, Ending::kLooksBelow);
    }
    if (!removed.is_ok()) return end_with(job, removed, false);
  }
  {
    const MutexLock lock(mutex_);
    notes_.erase(place_of(path));
    if (found.is_file() && strays_.settle(found.node.attributes.st_ino, "")) unblock();
  }
  shown_.tell(found.directory.get(), found.name);
  if (removed_of != own_key()) return end_job(job, Ending::kRemoved);
  const Result<bool> vacant = is_vacant_for_good(path);
  if (!vacant.is_ok()) return end_with(job, vacant.status(), false);
  if (!vacant.value()) return end_job(job, Ending::kMoved);
  ask_remove(job, manifest_key(path), [self = shared_from_this(), job] { self->end_job(job, Ending::kRemoved); });
}

}  // namespace fpfs
