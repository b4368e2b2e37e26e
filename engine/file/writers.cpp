// Who writes a file, and what their closes mean: writer.h has the rules.
//
// All of it is decided where a close takes its turn among the controls, with no write in progress: what was taken by
// then is what the close can end. A write that waits behind another commit is not, and stays unfinished.
#include <algorithm>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

void File::attach(Writer& writer) {
  MutexLock lock(mutex_);
  writers_.add(writer);
}

bool File::detach(Writer& writer) {
  std::shared_ptr<PreviousContent> previous;  // let go of behind the lock
  MutexLock lock(mutex_);
  const bool ends = writers_.finish({&writer, {}, false}, true);
  writers_.remove(writer);
  if (writers_.is_empty() && !ends) previous.swap(previous_);
  return ends && error_.is_ok();
}

void File::cut_off(Writer& writer) {
  {
    MutexLock lock(mutex_);
    if (error_.is_ok() && writers_.is_unfinished(true)) writers_.cut_off();
  }
  (void)detach(writer);
  bool only_slack = false;
  {
    MutexLock lock(mutex_);
    only_slack =
        error_.is_ok() && !content_.is_edited() && writers_.is_empty() && !writers_.is_unfinished(false) && has_slack();
  }
  // Committed by fsync, and no close will give back what space is left: nothing keeps the file for the end of the array
  // to see.
  if (only_slack)
    commit_in_background(shared_from_this(), ControlRequest::Kind::kClose, false,
                         ControlRequest::Unfinished::kLeftAlone);
}

bool File::is_replacing() const {
  MutexLock lock(mutex_);
  return replaces_committed();
}

bool File::has_only_emptied(const Origin& origin) const {
  MutexLock lock(mutex_);
  return writers_.has_only_emptied(origin);
}

// --- with Durable::kFsync ------------------------------------------------------------------------------------------

void File::commit_in_background(const std::shared_ptr<File>& file, ControlRequest::Kind kind, bool lazy,
                                ControlRequest::Unfinished unfinished) {
  struct Background {
    ControlRequest request;
    std::shared_ptr<File> file;
  };
  auto* job = new Background{{}, file};
  job->request.kind = kind;
  job->request.lazy = lazy;
  job->request.unfinished = unfinished;
  job->request.owner = job;
  job->request.complete = [](ControlRequest& request, const Status&) {
    delete static_cast<Background*>(request.owner);  // a failure is a loss, noted where it happened
  };
  file->control(job->request);
}

void File::closed_by_writer(const Origin& closer) {
  if (!context_.closes_lazily.load()) context_.closes_lazily.store(true);  // before anything is committed so
  constexpr auto kLeftAlone = ControlRequest::Unfinished::kLeftAlone;
  if (closer.writer != nullptr) {
    MutexLock lock(mutex_);
    if (!writers_.finish(closer, false) && writers_.is_unfinished(false)) return;
  }
  promise();
  commit_in_background(shared_from_this(), ControlRequest::Kind::kClose, true, kLeftAlone);
  bool only_slack = false;
  {
    MutexLock lock(mutex_);
    only_slack = !content_.is_edited() && (has_slack() || (commit_ != nullptr && placement_.objects() != nullptr));
    if (!only_slack && (!content_.is_edited() || background_commit_)) return;
    background_commit_ |= !only_slack;
  }
  // Committed by fsync before: nothing keeps the file open.
  if (only_slack) return commit_in_background(shared_from_this(), ControlRequest::Kind::kClose, false, kLeftAlone);
  context_.environment.executor().post_after(
      std::chrono::milliseconds(context_.options.background_commit_ms), [weak = weak_from_this()] {
        const std::shared_ptr<File> file = weak.lock();
        if (file == nullptr) return;
        {
          MutexLock lock(file->mutex_);
          file->background_commit_ = false;
        }
        commit_in_background(file, ControlRequest::Kind::kClose, false, kLeftAlone);
      });
}

// --- trickles ------------------------------------------------------------------------------------------------------

bool File::commit_trickle() {
  {
    MutexLock lock(mutex_);
    if (!content_.is_edited() || !error_.is_ok() || writers_.has_unowned() || writers_.is_unfinished(true)) {
      // A stream may be committed by an fsync, and go on as a trickle.
      return !writers_.is_empty() && writers_.has_uncommitted() && error_.is_ok();
    }
    const struct timespec now = context_.environment.now();
    const auto has_passed = [&now](const struct timespec& since, unsigned limit_ms) {
      // Beyond it the clock was set back since, and nobody knows how long ago that was.
      constexpr int64_t kTickMax_ms = 100;
      const int64_t passed_ms = (now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1'000'000;
      return limit_ms != 0 && (passed_ms >= int64_t{limit_ms} || passed_ms < -kTickMax_ms);
    };
    const StoreOptions& options = context_.options;
    if (!has_passed(content_.edited_since(), options.commit_interval_ms) &&
        !has_passed(content_.changed_at(), options.commit_idle_ms))
      return true;
  }
  commit_in_background(shared_from_this(), ControlRequest::Kind::kCommit, false,
                       ControlRequest::Unfinished::kTricklesCommitted);
  return true;
}

// --- a saver that was killed ---------------------------------------------------------------------------------------

void File::revert_replacement(ControlRequest& request, Deferred& deferred) {
  Status outcome;
  if (writers_.is_by_others_than(request.origin)) {
    outcome = Status::error(StatusCode::kIoError, "one of several processes that were replacing it was killed");
    fail(outcome);
    discard_dirty(deferred);
  } else {
    outcome = revert(deferred);
    if (outcome.is_ok()) {
      log(LogLevel::kWarning, "{}: the process that was replacing it was killed; it keeps its content of before",
          path());
      // What was written before the replacement began; no other close may come.
      if (has_slack())
        context_.tasks.post([self = shared_from_this()] {
          commit_in_background(self, ControlRequest::Kind::kClose, false, ControlRequest::Unfinished::kLeftAlone);
        });
    } else {
      fail(outcome);
    }
  }
  request.was_reverted = true;
  complete_with(deferred, request, outcome);
  drop_if_clean();
}

// Back to what the sidecar says. What is on its way to the drives goes to objects that nobody names any more.
Status File::revert(Deferred& deferred) {
  // What a member that hangs still has of these may come to a slot that is free from here on.
  if (!healing_.writes().empty())
    return Status::error(StatusCode::kIoError, "a member hangs that has a healed chunk on its way");
  healing_.begin_anew();
  drop_chunks(ChunkIndex(0), kChunksEnd, deferred);
  deferred.previous = std::move(previous_);
  reserved_.remove(content_.file_id(), ChunkIndex(0), kChunksEnd);
  content_.clear(placement_.start_generation());
  std::vector<DoomedObjects> doomed;  // of every generation that it began since then
  std::shared_ptr<ObjectSet> recorded;
  for (const std::shared_ptr<ObjectSet>& objects : placement_.retired().objects) {
    if (objects->is_recorded())
      recorded = objects;
    else
      doomed.push_back(DoomedObjects::of(objects, true));
  }
  placement_.clear();
  content_.drop_edit();
  stream_end_ = kNoStream;
  writers_.covered(writers_.last_change());
  if (!doomed.empty()) context_.reclaimer->reclaim(std::move(doomed), {});
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, context_.storage().fstat(sidecar_->get()));
  content_.set_mtime(attributes.st_mtim);
  FPFS_RETURN_IF_ERROR(load_image(attributes));
  if (recorded != nullptr && placement_.objects() != nullptr &&
      recorded->generation() == placement_.objects()->generation())
    placement_.reinstate(std::move(recorded));
  return Status::ok();
}

}  // namespace fpfs
