#include "engine/file/commit_job.h"

namespace fpfs {

std::vector<MemberIndex> CommitJob::members_to_sync() const {
  std::vector<MemberIndex> members;
  if (objects == nullptr) return members;
  for (const MemberIndex m : objects->members()) {
    const bool gives_back = !trim.ends.empty() && (objects->allocated_end(m) > trim.ends[m] || !trim.gaps.empty());
    if (objects->is_touched(m) || gives_back) members.push_back(m);
  }
  return members;
}

Status CommitJob::sync_objects(MemberIndex member) const {
  if (!trim.ends.empty()) FPFS_RETURN_IF_ERROR(objects->trim(member, trim.ends[member]));
  for (const Placement::Gap& gap : trim.gaps)
    if (gap.member == member) FPFS_RETURN_IF_ERROR(objects->punch(member, gap.offset, gap.length));
  if (!objects->is_touched(member)) return Status::ok();
  objects->clear_touched(member);
  return objects->sync(member);
}

std::optional<Status> CommitJob::object_sync_ended(const Status& status) {
  MutexLock lock(mutex_);
  if (failure_.is_ok()) failure_ = status;
  if (pending.fetch_sub(1) > 1) return std::nullopt;
  return failure_;
}

}  // namespace fpfs
