// What waits because the store has another file's only copy where it would be stored or removed (tier_strays.h). It
// goes on when that file has a copy where it is. When that waits, too, and so on until the first one, as when two files
// have changed names: the content of one comes back to the members, and it needs its copy no more.
#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {

// Of a directory nothing is lost with its copy.
bool TierCopier::Impl::may_replace(const std::string& path, uint64_t inode) const {
  const MutexLock lock(mutex_);
  return path.ends_with('/') || strays_.may_replace(path, inode);
}

void TierCopier::Impl::block(TierWaiting file) {
  if (strays_.may_replace(file.path, file.inode)) return add_again(std::move(file));
  if (strays_.owner_of(file.path, file.inode) == 0) scan_is_due_ = true;  // finds who needs it, if anybody
  if (std::optional<TierWaiting> newer = queue_.take(file)) file = merge(file, *std::move(newer));
  file.comes_back = waits_for_itself(file);
  if (file.comes_back) return add_again(std::move(file));
  TierWaiting& blocked = blocked_[file.path];
  file.was_here |= blocked.was_here;
  blocked = std::move(file);
}

bool TierCopier::Impl::waits_for_itself(const TierWaiting& file) const {
  uint64_t owner = strays_.owner_of(file.path, file.inode);
  for (size_t steps = 0; owner != 0 && owner != file.inode && steps < blocked_.size(); ++steps) {
    const auto next = std::find_if(blocked_.begin(), blocked_.end(),
                                   [owner](const auto& waiting) { return waiting.second.inode == owner; });
    owner = next != blocked_.end() ? strays_.owner_of(next->second.path, owner) : 0;
  }
  return file.inode != 0 && owner == file.inode;
}

void TierCopier::Impl::unblock() {
  for (auto& [path, file] : std::exchange(blocked_, {})) add_again(std::move(file));
}

void TierCopier::Impl::bring_back(const std::shared_ptr<Job>& job) {
  job->opened->recall(nullptr, [self = shared_from_this(), job](const Status& status) {
    if (!status.is_ok()) return self->end_with(job, status, false);
    job->file.comes_back = false;
    job->file.from.clear();
    if (const Status noted = job->opened->set_note(ChunkSource::kPathAttribute, {}, true); !noted.is_ok())
      return self->end_with(job, noted, false);
    log(LogLevel::kInfo, "tier: {} is on the drives again, as its copy is where another file belongs", job->file.path);
    self->end_job(job, Ending::kBroughtBack);
  });
}

}  // namespace fpfs
