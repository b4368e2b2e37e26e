// Commit: from "some chunks are dirty" to "the sidecar durably describes them". The order is the promise (P1, P2):
//
//   1. drain     every dirty chunk is written to a place that no earlier record names (kDraining)
//   2. objects   fdatasync of every object touched, members in parallel; new objects: fsync of their directory
//   3. record    appended to the sidecar, fsync
//   4. name      for a file just created or moved: fsync of its directory; 3 does that, too, on filesystems that log all
//                in order (Storage::logs_names_in_order()). There the first record of a small new file is not synced: it
//                is durable by an entry in the commit log (commit_log.h), and its name and attributes with it
//   5. answer    the requests complete
//   6. free      slots and objects that only the previous record named are punched and removed, in the background
//
// A crash before 3 is durable leaves the previous record; after it, the new one. Steps 1 to 4 never touch anything that
// the previous record names, and 6 starts only when the new one is durable. A failure anywhere fails the file for good:
// a sync that failed may have lost what it was to write, and is not tried again (P4). From the first change of the
// sidecar on, a failure leaves it unknown whether the record is there, whatever errno it has (a thin drive that is full
// fails syncs with ENOSPC): then the whole array turns read-only. Only a write that had no room, and whose torn tail
// was cut durably, leaves the log known.
//
// Content that fits the sidecar (kInlineSizeMax) skips 1 and 2: the record carries it.
#include <fcntl.h>
#include <linux/falloc.h>
#include <cerrno>

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

namespace {
constexpr uint64_t kBytesPerExtent = 64;
constexpr SidecarOffset kLogPunchedFrom(kSnapshotAlignment);  // the block with the header stays
}  // namespace

bool File::fits_sidecar() const {
  if (placement_.objects() != nullptr || content_.extents().count() > 0 || writes_in_flight_ > 0 ||
      cache_.dirty_count() > 1)
    return false;
  if (const CachedChunk* const chunk = cache_.oldest_dirty())
    return chunk->index == ChunkIndex(0) && chunk->length <= context_.options.inline_max;
  return true;  // empty, or there already
}

void File::start_commit(ControlList requests, Deferred& deferred) {
  settle_start();
  commit_ = std::make_shared<CommitJob>();
  commit_->began_ns = monotonic_ns();
  commit_->sync = !requests.front()->lazy;
  commit_->closing = background_commit_;  // a writer has closed: this may be the last commit
  bool names_too = false;
  for (const ControlRequest* request = requests.front(); request != nullptr; request = ControlList::next(*request)) {
    commit_->closing |= request->kind == ControlRequest::Kind::kClose;
    names_too |= request->kind == ControlRequest::Kind::kCommit;
  }
  commit_->requests = std::move(requests);
  commit_->after_unsynced = unsynced_;
  commit_->sidecar = sidecar_;
  commit_->log = log_;
  if (commit_->sync) {
    if (context_.commit_log != nullptr) commit_->names_since = context_.commit_log->now();
    commit_->is_of_closes = !names_too;
    commit_->new_name = names_.take_new();
    const bool is_somewhere = commit_->new_name.exists && !commit_->new_name.directory.is_open();
    // Of links nobody notes where they are.
    commit_->all_names = (names_too || is_somewhere) && !context_.files_sync_names;
    unsynced_ = false;
  } else {
    unsynced_ = true;
  }
  commit_->has_record = content_.is_edited();
  commit_->is_moved = content_.is_edited() && !content_.is_changed();
  commit_->covers = writers_.last_change();
  if (!commit_->has_record) {
    phase_ = Phase::kSyncing;
    if (commit_->closing && !context_.array.read_only() && has_slack()) {
      commit_->objects = placement_.objects();
      plan_trim();
      phase_ = Phase::kTrimming;
    }
    deferred.commit = commit_;
    return;
  }
  commit_->header = {context_.array.id(), file_id(), context_.stripes.chunk_size};
  const bool in_sidecar = fits_sidecar();
  if (!in_sidecar) flush_dirty(false, deferred);
  SidecarRecord& record = commit_->record;
  record.generation = content_.generation();
  record.size = content_.size();
  commit_->edit = content_.take_edit();
  record.truncate_from = commit_->edit.truncated_from;
  commit_->retired = placement_.take_retired();
  if (in_sidecar) {
    deferred.previous = std::move(previous_);
    build_inline_record();
    phase_ = Phase::kSyncing;
    deferred.commit = commit_;
    return;
  }
  phase_ = Phase::kDraining;
  advance_commit(deferred);
}

// Called after every completed flush: when the last one of a commit is done, the record is built and syncs start.
void File::advance_commit(Deferred& deferred) {
  if (phase_ != Phase::kDraining || writes_in_flight_ > 0) return;
  if (!error_.is_ok()) {
    end_commit(error_, deferred);
    return;
  }
  commit_->objects = placement_.objects();
  // What it was is freed behind this commit, and what is committed next is no new file.
  commit_->previous = std::move(previous_);
  commit_->chunks = content_.extents().count();
  build_record();
  if (commit_->closing && placement_.objects() != nullptr) plan_trim();
  phase_ = commit_->trim.ends.empty() ? Phase::kSyncing : Phase::kTrimming;
  deferred.commit = commit_;
  if (may_flush()) flush_dirty(true, deferred);
}

void File::build_record() {
  SidecarRecord& record = commit_->record;
  record.allocated = content_.extents().allocated_bytes();
  const uint64_t count = content_.extents().count();
  record.snapshot = log_.is_long(count * kBytesPerExtent) && commit_->copies.take(context_.indexes, count);
  if (record.snapshot) {
    record.truncate_from.reset();
    record.extents.reserve(count);
    content_.extents().for_each(ChunkIndex(0), [&record](ChunkIndex chunk, const Extent& extent) {
      record.extents.emplace_back(chunk, extent);
      return true;
    });
    return;
  }
  std::vector<ChunkIndex>& changes = commit_->edit.chunks;
  std::sort(changes.begin(), changes.end());
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  record.extents.reserve(changes.size());
  for (ChunkIndex chunk : changes) {
    const Extent extent = content_.extent(chunk);
    if (extent.exists() || !record.truncate_from || chunk < *record.truncate_from)
      record.extents.emplace_back(chunk, extent);
  }
}

void File::plan_trim() {
  commit_->trim = placement_.plan_trim(content_.extents(), content_.last_extent(), context_.stripes.chunk_size);
}

// Preallocated space is left over, and nothing under way will fill it.
bool File::has_slack() const {
  if (placement_.objects() == nullptr || writes_in_flight_ > 0) return false;
  return placement_.has_slack(content_.last_extent(), context_.stripes.chunk_size);
}

// --- on executor threads ---------------------------------------------------------------------------------------------

void File::post_object_syncs(const std::shared_ptr<CommitJob>& job) {
  const std::shared_ptr<File> self = shared_from_this();
  const std::vector<MemberIndex> members = job->members_to_sync();
  job->pending.store(static_cast<unsigned>(std::max<size_t>(members.size(), 1)));
  if (members.empty()) context_.tasks.post([self, job] { self->object_sync_done(*job, Status::ok()); });
  for (const MemberIndex m : members) {
    context_.tasks.post([self, m, job] {
      Status status = job->sync_objects(m);
      if (!status.is_ok()) {
        self->context_.counters[m].sync_errors.fetch_add(1, std::memory_order_relaxed);
        status = status.at(m.value(), 0, 0).with_context(self->context_.array.name_of(m));
      }
      self->object_sync_done(*job, status);
    });
  }
}

void File::object_sync_done(CommitJob& job, const Status& status) {
  std::optional<Status> all = job.object_sync_ended(status);
  if (!all.has_value()) return;
  Status failure = *all;
  if (failure.is_ok()) failure = context_.health.failure();
  if (failure.is_ok()) failure = context_.check_names();
  if (failure.is_ok()) {
    MutexLock lock(mutex_);
    failure = error_;  // given up meanwhile: what was reported as failed is not made durable
    job.appending = failure.is_ok();
  }
  finish_commit(job, failure.is_ok() ? append_record(job) : SidecarWriter::Outcome::unchanged(failure));
}

// Writing to the sidecar moved its times. What a record of a change gave it (`is_change`) is the file's modification time,
// too, if that was a moment ago and nobody was told of it, which spares a call; else it is set to the file's (once more
// if it was set by a user meanwhile). From then on that is it: who asked for the commit is answered next. Its new change
// time stands for the one before.
Status File::keep_times(Handle sidecar, const struct timespec& change_before, bool is_change) {
  if (is_change && is_mtime_open()) {
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, context_.storage().fstat(sidecar));
    MutexLock lock(mutex_);
    if (content_.move_mtime(attributes.st_mtim)) {
      context_.clock.note(attributes.st_mtim);
      content_.note_sidecar_change(change_before, attributes.st_ctim);
      return Status::ok();
    }
  }
  struct timespec set {};
  for (bool again : {true, false}) {
    {
      MutexLock lock(mutex_);
      if (!again && ChangeTime::is_same(set, content_.mtime())) break;
      set = content_.mtime();
      content_.tell_mtime();
    }
    const struct timespec times[2] = {{0, UTIME_OMIT}, set};
    FPFS_RETURN_IF_ERROR(context_.storage().set_times(sidecar, times));
  }
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, context_.storage().fstat(sidecar));
  MutexLock lock(mutex_);
  content_.note_sidecar_change(change_before, attributes.st_ctim);
  return Status::ok();
}

bool File::is_mtime_open() const {
  MutexLock lock(mutex_);
  return content_.is_mtime_open();
}

SidecarWriter::Outcome File::append_record(CommitJob& job) {
  SidecarWriter writer(context_.storage(), job.sidecar->get(), job.header, job.log);
  if (context_.commit_log != nullptr) {
    // What is appended comes behind a record that is durable where it is. And the sidecar has one who syncs it: of two who
    // do by one handle one is not told of a failure.
    const Status settled = context_.commit_log->settle(inode_);
    if (!settled.is_ok()) return SidecarWriter::Outcome::unchanged(settled);
  }
  if (job.has_record) {
    const Status fetched = fetch_inline(job);
    if (!fetched.is_ok()) return SidecarWriter::Outcome::unchanged(fetched.with_context(path()));
    const Status marked = context_.array.keep_dirty_since();
    if (!marked.is_ok()) return SidecarWriter::Outcome::unchanged(marked);
    if (job.objects != nullptr) job.objects->set_recorded();
    if (context_.has_others.load() && !job.is_moved && job.log.sequence > 0) {
      const Status own = context_.storage().remove_xattr(job.sidecar->get(), ChunkSource::kOthersAttribute);
      const int reason = own.errno_value();
      // Who may not remove it could not set it either.
      const bool has_none = reason == ENODATA || reason == EOPNOTSUPP || reason == EPERM || reason == EACCES;
      if (!own.is_ok() && !has_none) return SidecarWriter::Outcome::unchanged(own);
      // The record's own sync is of data only. A power cut in between leaves a file that was not changed unmarked.
      const Status synced = own.is_ok() ? context_.storage().fsync(job.sidecar->get()) : Status::ok();
      if (!synced.is_ok()) return SidecarWriter::Outcome::unchanged(synced);
    }
    SidecarWriter::Outcome appended =
        writer.append(job.record, job.after_unsynced, [this] { return context_.reclaimer->finish(); });
    if (!appended.status.is_ok()) return appended;
    job.log = writer.log();
    if (job.record.has_inline) inline_appended(job, writer.place());
    FPFS_RETURN_IF_ERROR(keep_times(job.sidecar->get(), writer.before().st_ctim, !job.is_moved));
  }
  if (!job.sync) return {};
  FPFS_ASSIGN_OR_RETURN(const bool is_logged, log_commit(job, writer));
  if (is_logged) return {};
  FPFS_RETURN_IF_ERROR(writer.sync());
  if (job.all_names) FPFS_RETURN_IF_ERROR(context_.sync_tree());
  if (const ScopedHandle& directory = job.new_name.directory; directory.is_open())
    FPFS_RETURN_IF_ERROR(context_.storage().fsync(directory.get()));
  FPFS_RETURN_IF_ERROR(context_.array.check_tree_running());
  if (context_.commit_log != nullptr && job.has_record) context_.commit_log->forced(job.new_name.made.at);
  return {};
}

// Whether it is durable by an entry in the commit log: the first commit of a new file, all of which its sidecar has. Not
// one that an fsync(2) has asked for, which promises all attributes.
Result<bool> File::log_commit(const CommitJob& job, SidecarWriter& writer) {
  if (context_.commit_log == nullptr || !job.new_name.exists || job.log.sequence != 1 || !job.record.has_inline ||
      !job.is_of_closes)
    return false;
  struct timespec mtime {};
  {
    MutexLock lock(mutex_);
    mtime = content_.mtime();
  }
  return context_.commit_log->append(
      {job.new_name.made, job.names_since, job.sidecar, writer.before(), mtime, writer.bytes()});
}

void File::finish_commit(CommitJob& job, const SidecarWriter::Outcome& outcome) {
  const std::shared_ptr<File> self = shared_from_this();
  if (!outcome.log_is_known) {
    if (context_.health.failure().is_ok()) context_.counters.count_tree_error();  // else it was counted by who was told
    context_.health.fail(outcome.status.with_context(path()));
  }
  if (outcome.status.is_ok() && job.sync && job.previous != nullptr) {
    const std::string& made_at = job.previous->path();
    context_.previous_files->committed(made_at.empty() ? context_.storage().describe(job.sidecar->get()) : made_at,
                                       job.sidecar->get(), stripes().start(job.header.file_id), job.chunks);
  }
  const bool is_new_and_empty = job.log.sequence == 0 && job.new_name.exists;
  const bool tells = context_.committed && outcome.status.is_ok() && job.sync &&
                     (job.has_record || job.after_unsynced || is_new_and_empty);
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    end_inline_write(job, deferred);
    if (abandoned_) return;
    if (outcome.status.is_ok()) {
      writers_.covered(job.covers);
      if (job.sync)
        context_.health.note_synced(inode_);
      else
        context_.health.note_unsynced(inode_, [this] { return path(); });
    }
    if (outcome.status.is_ok() && job.sync) durable_ = job.log.sequence;
    if (outcome.status.is_ok() && job.has_record && !job.is_moved) {
      content_since_ = job.log.sequence;
      context_.health.forget_file_failure(inode_);
    }
    if (outcome.status.is_ok() && job.has_record) {
      content_.set_committed_size(job.record.size);
      log_ = job.log;
      context_.commits.fetch_add(1, std::memory_order_relaxed);
      // The record is durable (a lazy one has nothing to free): what only the one before named can go.
      if (!job.retired.slots.empty()) {
        placement_.begin_freeing(job.retired.slots);
        free_behind_versions([self, dead = std::move(job.retired.slots)]() mutable {
          self->context_.reclaimer->post([self, dead = std::move(dead)] { self->punch_dead(dead); });
        });
      }
      std::vector<DoomedObjects> doomed;
      for (const auto& objects : job.retired.objects) doomed.push_back(DoomedObjects::of(objects, true));
      if (job.objects != nullptr) context_.generations.end_claim(content_.file_id(), job.record.generation);
      if (!doomed.empty())
        free_behind_versions([self, doomed = std::move(doomed)]() mutable {
          self->context_.reclaimer->reclaim(std::move(doomed), ScopedHandle());
        });
      if (job.record.snapshot && job.sync && log_.snapshot_offset > kLogPunchedFrom)
        free_behind_versions([self, sidecar = job.sidecar, end = log_.snapshot_offset] {
          self->context_.reclaimer->post([self, sidecar, end] { self->punch_log(*sidecar, end); });
        });
    }
    if (!tells) end_commit(outcome.status, deferred);
  }
  if (tells) {
    // Before the commit ends, as the next one may not be told of before this one.
    context_.committed(inode_, job.log.sequence, job.is_moved);
    MutexLock lock(mutex_);
    if (abandoned_) return;
    end_commit(outcome.status, deferred);
  }
  run(deferred);
}

void File::end_commit(const Status& status, Deferred& deferred) {
  const std::shared_ptr<CommitJob> commit = std::move(commit_);
  phase_ = Phase::kIdle;
  if (!status.is_ok()) {
    fail(status);
    discard_dirty(deferred);
    leave(std::move(commit->new_name));
  } else {
    if (commit->new_name.exists) context_.new_names->forget(inode_);
    commit->new_name.directory.reset();
    if (!content_.is_edited()) promised_ = false;
  }
  while (ControlRequest* request = commit->requests.pop_front()) complete_with(deferred, *request, status);
  if (status.is_ok()) flush_dirty(true, deferred);
  run_controls(deferred);
  drop_if_clean();
}

// --- versions that are held ------------------------------------------------------------------------------------------

Result<std::unique_ptr<CommittedVersion>> File::hold_version() {
  MutexLock lock(mutex_);
  if (log_.sequence == 0 || log_.sequence != durable_)
    return Status::error(StatusCode::kNotFound, "nothing of the file is committed durably");
  return hold_durable();
}

Status File::note_synced() {
  uint64_t sequence = 0;
  {
    MutexLock lock(mutex_);
    if (!error_.is_ok()) return error_;
    if (!unsynced_ || commit_ != nullptr) return Status::ok();
    unsynced_ = false;
    durable_ = sequence = log_.sequence;
    context_.health.note_synced(inode_);
  }
  if (context_.committed) context_.committed(inode_, sequence, false);
  return Status::ok();
}

Status File::set_note(const std::string& name, std::span<const std::byte> value, bool is_durable) {
  std::shared_ptr<const ScopedHandle> sidecar;
  {
    MutexLock lock(mutex_);
    sidecar = sidecar_;
  }
  FPFS_ASSIGN_OR_RETURN(const struct stat before, context_.storage().fstat(sidecar->get()));
  FPFS_RETURN_IF_ERROR(context_.storage().set_xattr(sidecar->get(), name, value, 0));
  FPFS_ASSIGN_OR_RETURN(const struct stat after, context_.storage().fstat(sidecar->get()));
  {
    MutexLock lock(mutex_);
    content_.note_sidecar_change(before.st_ctim, after.st_ctim);
  }
  if (!is_durable) return Status::ok();
  // Through a handle of its own: a failure is told once through each, and a commit waits for those of its own.
  FPFS_ASSIGN_OR_RETURN(const Handle reopened, context_.storage().reopen(sidecar->get(), O_RDONLY));
  const ScopedHandle own(context_.storage(), reopened);
  FPFS_RETURN_IF_ERROR(context_.storage().fsync(own.get()));
  return context_.storage().check_running(own.get());
}

std::unique_ptr<CommittedVersion> File::hold_durable() {
  context_.versions_held.fetch_add(1);
  return std::unique_ptr<CommittedVersion>(new CommittedVersion(shared_from_this(), context_.storage(), context_.array,
                                                                *context_.io, sidecar_, log_, held_frees_.hold()));
}

std::unique_ptr<CommittedVersion> File::hold_place(ChunkIndex chunk, Extent& extent,
                                                   std::shared_ptr<ObjectSet>& objects) {
  MutexLock lock(mutex_);
  if (needs_commit() || commit_ != nullptr || !error_.is_ok() || abandoned_) return nullptr;
  if (log_.sequence == 0 || log_.sequence != durable_) return nullptr;
  extent = content_.extent(chunk);
  objects = placement_.objects();
  if (!extent.is_here() || objects == nullptr) return nullptr;
  return hold_durable();
}

std::optional<MemberIndex> File::stripe_start() const {
  MutexLock lock(mutex_);
  if (content_.extents().count() == 0) return std::nullopt;
  return stripes_.start(content_.file_id());
}

void File::let_go(HeldFrees::Ticket ticket) {
  std::vector<HeldFrees::Free> frees;
  {
    MutexLock lock(mutex_);
    frees = held_frees_.let_go(ticket);
  }
  for (const HeldFrees::Free& free : frees) free();
  context_.versions_held.fetch_sub(1);
}

void File::free_behind_versions(HeldFrees::Free free) {
  if (!held_frees_.keep(free)) free();
}

// The log before a durable snapshot, up to the snapshot's own block.
void File::punch_log(const ScopedHandle& sidecar, SidecarOffset end) {
  const Result<struct stat> before = context_.storage().fstat(sidecar.get());
  Status status = context_.storage().fallocate(sidecar.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                               kLogPunchedFrom.value(), end - kLogPunchedFrom);
  if (status.is_ok() && before.is_ok()) status = keep_times(sidecar.get(), before->st_ctim, false);
  if (!status.is_ok()) log(LogLevel::kWarning, "{}: cannot compact the index: {}", path(), status.message());
}

// What the last record but one named and the last does not. Contiguous slots are punched together.
void File::punch_dead(const std::vector<Placement::DeadSlot>& dead) {
  const uint64_t chunk_size = context_.stripes.chunk_size;
  std::vector<Placement::DeadSlot> sorted = dead;
  std::sort(sorted.begin(), sorted.end(), [](const Placement::DeadSlot& a, const Placement::DeadSlot& b) {
    return std::tie(a.member, a.slot) < std::tie(b.member, b.slot);
  });
  std::vector<Placement::DeadSlot> punched;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    while (end < sorted.size() && sorted[end].member == sorted[begin].member &&
           sorted[end].slot == sorted[end - 1].slot + 1)
      ++end;
    const Placement::DeadSlot& first = sorted[begin];
    const Status status =
        first.objects->punch(first.member, offset_of(first.slot, chunk_size), (end - begin) * chunk_size);
    if (status.is_ok())
      punched.insert(punched.end(), sorted.begin() + static_cast<ptrdiff_t>(begin),
                     sorted.begin() + static_cast<ptrdiff_t>(end));
    else
      log(LogLevel::kWarning, "{}: cannot free replaced chunks on member {}: {}; fsck -p will", path(), first.member,
          status.message());
    begin = end;
  }
  {
    MutexLock lock(mutex_);
    for (const Placement::DeadSlot& slot : punched) placement_.freed(slot);
  }
  drop_left_objects();
}

void File::promise() {
  MutexLock lock(mutex_);
  content_.tell_mtime();  // what a commit behind the close gives the sidecar would be later than that
  promised_ |= error_.is_ok() && (content_.is_edited() || commit_ != nullptr) && !writers_.is_unfinished(false);
}

}  // namespace fpfs
