// Commit: from "some chunks are dirty" to "the sidecar durably describes them". The order is the promise (P1, P2):
//
//   1. drain     every dirty chunk is written to a place that no earlier record names (kDraining)
//   2. objects   fdatasync of every object touched, members in parallel; new objects: fsync of their directory
//   3. record    appended to the sidecar, fsync
//   4. name      for a file just created or moved: fsync of its directory
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

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

namespace {
// A sidecar is compacted when its log exceeds this many bytes plus kLogFactor times what is live.
constexpr uint64_t kLogSlack = 64 * kKiB;
constexpr uint64_t kLogFactor = 4;
constexpr uint64_t kBytesPerExtent = 64;
}  // namespace

bool File::fits_sidecar() const {
  if (objects_ != nullptr || extents_.count() > 0 || writes_in_flight_ > 0 || dirty_count_ > 1) return false;
  if (dirty_count_ == 1) return dirty_head_->index == 0 && dirty_head_->length <= context_.options.inline_max;
  return true;  // empty, or there already
}

void File::start_commit(ControlRequest* requests, Deferred& deferred) {
  commit_ = std::make_unique<Commit>();
  commit_->requests = requests;
  commit_->began_ns = StallWatch::monotonic_ns();
  commit_->sync = !requests->lazy;
  commit_->closing = background_commit_;  // a writer has closed: this may be the last commit
  for (const ControlRequest* request = requests; request != nullptr; request = request->next)
    commit_->closing |= request->kind == ControlRequest::Kind::kClose;
  commit_->after_unsynced = unsynced_;
  if (commit_->sync) {
    commit_->new_name_in = new_name_in_;
    new_name_in_ = kNoHandle;
    new_name_ = false;
    unsynced_ = false;
  } else {
    unsynced_ = true;
  }
  commit_->has_record = modified_;
  commit_->covers = change_;
  if (!modified_) {
    phase_ = Phase::kSyncing;
    if (commit_->closing && has_slack()) {
      commit_->objects = objects_;
      plan_trim();
      phase_ = Phase::kTrimming;
    }
    deferred.start_sync = true;
    return;
  }
  if (file_id_ == 0)
    while (file_id_ == 0) file_id_ = context_.environment->random_u64();
  const bool in_sidecar = fits_sidecar();
  if (!in_sidecar) flush_dirty(false, deferred);
  SidecarRecord& record = commit_->record;
  record.generation = generation_;
  record.size = size_;
  record.truncate_from = truncated_from_;
  commit_->changes = std::move(changes_);
  commit_->dead = std::move(dead_);
  commit_->doomed = std::move(doomed_);
  changes_.clear();
  dead_.clear();
  doomed_.clear();
  truncated_from_.reset();
  modified_ = replaces_ = false;
  if (in_sidecar) {
    build_inline_record();
    ++epoch_;
    phase_ = Phase::kSyncing;
    deferred.start_sync = true;
    return;
  }
  ++epoch_;
  phase_ = Phase::kDraining;
  advance_commit(deferred);
}

bool File::wants_snapshot(uint64_t live_bytes) const {
  return sequence_ > 0 && log_end_ - snapshot_offset_ > kLogSlack + kLogFactor * live_bytes;
}

// Called after every completed flush: when the last one of a commit is done, the record is built and syncs start.
void File::advance_commit(Deferred& deferred) {
  if (phase_ != Phase::kDraining || writes_in_flight_ > 0) return;
  if (!error_.is_ok()) {
    end_commit(error_, deferred);
    return;
  }
  commit_->objects = objects_;
  build_record();
  if (commit_->closing && objects_ != nullptr) plan_trim();
  phase_ = commit_->trim_to.empty() ? Phase::kSyncing : Phase::kTrimming;
  deferred.start_sync = true;
  if (may_flush()) flush_dirty(true, deferred);
}

void File::build_record() {
  SidecarRecord& record = commit_->record;
  record.allocated = extents_.allocated_bytes();
  const uint64_t count = extents_.count();
  record.snapshot = wants_snapshot(count * kBytesPerExtent) && commit_->copies.take(context_, count);
  if (record.snapshot) {
    record.truncate_from.reset();
    record.extents.reserve(count);
    extents_.for_each(0, [&record](ChunkIndex chunk, const Extent& extent) {
      record.extents.emplace_back(chunk, extent);
      return true;
    });
    return;
  }
  std::vector<ChunkIndex>& changes = commit_->changes;
  std::sort(changes.begin(), changes.end());
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  record.extents.reserve(changes.size());
  for (ChunkIndex chunk : changes) {
    const Extent& extent = extents_.get(chunk);
    if (extent.exists() || !record.truncate_from || chunk < *record.truncate_from)
      record.extents.emplace_back(chunk, extent);
  }
}

// Where an object ends once preallocated space is given back: after its last taken slot, whose tail is not needed when
// it holds the end of the file.
uint64_t File::needed_end(MemberIndex member) const {
  const uint64_t chunk_size = context_.stripes.chunk_size;
  const Extent& last = extents_.get(size_ > 0 ? context_.stripes.chunk_of(size_ - 1) : 0);
  if (last.exists() && last.member == member && last.slot + 1 == slots_[member].end())
    return last.slot * chunk_size + last.allocated();
  return slots_[member].end() * chunk_size;
}

void File::plan_trim() {
  bool may_hold_space = std::exchange(has_unpunched_, false);
  for (MemberIndex m = 0; m < slots_.size(); ++m) {
    commit_->trim_to.push_back(needed_end(m));
    may_hold_space |= objects_->is_allocated_ahead(m);
  }
  if (!may_hold_space) return;
  // What was written and given up before any commit, or allocated ahead of a stream that then jumped: slots below the
  // end that nothing took, and the unused ends of slots whose chunk is not full. A dense file has none.
  const uint64_t chunk_size = context_.stripes.chunk_size;
  for (MemberIndex m = 0; m < slots_.size(); ++m)
    slots_[m].for_each_gap([&](SlotIndex slot, uint64_t count) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      commit_->gaps.push_back({m, slot * chunk_size, count * chunk_size});
    });
  extents_.for_each(0, [&](ChunkIndex, const Extent& extent) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    const uint64_t used = extent.slot * chunk_size + extent.allocated();
    const uint64_t end = (extent.slot + 1) * chunk_size;
    if (used < end && end <= commit_->trim_to[extent.member])
      commit_->gaps.push_back({extent.member, used, end - used});
    return true;
  });
}

// Preallocated space is left over, and nothing under way will fill it.
bool File::has_slack() const {
  if (objects_ == nullptr || writes_in_flight_ > 0) return false;
  if (has_unpunched_) return true;
  for (MemberIndex m = 0; m < slots_.size(); ++m)
    if (objects_->allocated_end(m) > needed_end(m) || objects_->is_allocated_ahead(m)) return true;
  return false;
}

// --- on executor threads
// ----------------------------------------------------------------------------------------------

// Without the lock: the commit belongs to this phase alone until finish_commit().
void File::post_object_syncs() FPFS_NO_THREAD_SAFETY_ANALYSIS {
  Commit& commit = *commit_;
  const std::shared_ptr<File> self = shared_from_this();
  std::vector<MemberIndex> members;
  if (commit.objects != nullptr)
    for (MemberIndex m = 0; m < context_.stripes.member_count; ++m)
      if (commit.objects->is_touched(m) ||
          (!commit.trim_to.empty() && (commit.objects->allocated_end(m) > commit.trim_to[m] || !commit.gaps.empty())))
        members.push_back(m);
  commit.pending.store(static_cast<unsigned>(members.size()) + 1);
  for (MemberIndex m : members) {
    context_.post([self, m, &commit] {
      ObjectSet& objects = *commit.objects;
      Status status;
      if (!commit.trim_to.empty()) status = objects.trim(m, commit.trim_to[m]);
      for (const Gap& gap : commit.gaps)
        if (gap.member == m && status.is_ok()) status = objects.punch(m, gap.offset, gap.length);
      if (status.is_ok() && objects.is_touched(m)) {
        objects.clear_touched(m);
        status = objects.sync(m);
      }
      if (!status.is_ok()) {
        self->context_.counters[m].sync_errors.fetch_add(1, std::memory_order_relaxed);
        status =
            status.at(m, 0, 0).with_context(fmt::format("member {} ({})", m, self->context_.array->member(m).path));
      }
      self->object_sync_done(status);
    });
  }
  context_.post([self] { self->object_sync_done(Status::ok()); });
}

void File::object_sync_done(const Status& status) FPFS_NO_THREAD_SAFETY_ANALYSIS {
  Commit& commit = *commit_;
  if (!status.is_ok()) {
    MutexLock lock(commit.mutex);
    commit.failure = status;
  }
  if (commit.pending.fetch_sub(1) > 1) return;
  Status failure;
  {
    MutexLock lock(commit.mutex);
    failure = commit.failure;
  }
  if (failure.is_ok()) failure = context_.array_failure();
  if (failure.is_ok()) failure = context_.check_names();
  if (failure.is_ok()) {
    MutexLock lock(mutex_);
    failure = error_;  // given up meanwhile: what was reported as failed is not made durable
    commit.appending = failure.is_ok();
  }
  finish_commit(failure.is_ok() ? append_record() : Appended::nothing(failure));
}

// A record is appended only behind a durable one: a reader tells a torn tail from damage by nothing valid following it.
// So the record of a lazy commit is synced first, and a torn tail that a crash or a failed append left is cut durably.
Status File::settle_log(Handle sidecar, uint64_t log_end, bool is_unsynced, const struct stat& attributes) {
  if (static_cast<uint64_t>(attributes.st_size) > log_end) return cut_log(sidecar, log_end);
  return is_unsynced && log_end > 0 ? context_.storage().fdatasync(sidecar) : Status::ok();
}

Status File::cut_log(Handle sidecar, uint64_t log_end) {
  FPFS_RETURN_IF_ERROR(context_.storage().ftruncate(sidecar, log_end));
  return context_.storage().fdatasync(sidecar);
}

// Writing to the sidecar moved its times: the modification time is set to the file's (once more if it was set by a user
// meanwhile), and its new change time stands for the one before.
Status File::keep_times(Handle sidecar, const struct timespec& change_before) {
  struct timespec set {};
  for (bool again : {true, false}) {
    {
      MutexLock lock(mutex_);
      if (!again && ChangeTime::is_same(set, mtime_)) break;
      set = mtime_;
    }
    const struct timespec times[2] = {{0, UTIME_OMIT}, set};
    FPFS_RETURN_IF_ERROR(context_.storage().set_times(sidecar, times));
  }
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, context_.storage().fstat(sidecar));
  MutexLock lock(mutex_);
  change_time_.shown = change_time_.show(change_before);
  change_time_.own = attributes.st_ctim;
  return Status::ok();
}

File::Appended File::append_record() FPFS_NO_THREAD_SAFETY_ANALYSIS {
  Commit& commit = *commit_;
  Storage& storage = context_.storage();
  Handle sidecar;
  uint64_t log_end;
  uint64_t snapshot_offset;
  SidecarHeader header;
  {
    MutexLock lock(mutex_);
    sidecar = sidecar_;
    log_end = log_end_;
    snapshot_offset = snapshot_offset_;
    commit.record.sequence = sequence_ + 1;
    header = {context_.array->id(), file_id_, context_.stripes.chunk_size};
  }
  Appended appended{snapshot_offset, log_end};
  if (commit.has_record) {
    const Status fetched = fetch_inline(sidecar, header.file_id);
    if (!fetched.is_ok()) return Appended::nothing(fetched.with_context(path()));
    std::vector<std::byte> bytes;
    if (log_end == 0) bytes = encode_sidecar_header(header);
    const uint64_t record_offset =
        encode_sidecar_record(header, commit.record, log_end + bytes.size(), snapshot_offset, bytes);
    commit.record.inline_data = {};
    commit.record.extents = {};
    if (commit.objects != nullptr) commit.objects->set_recorded();
    FPFS_ASSIGN_OR_RETURN(const struct stat before, storage.fstat(sidecar));
    FPFS_RETURN_IF_ERROR(settle_log(sidecar, log_end, commit.after_unsynced, before));
    const Status written = context_.with_space([&] { return storage.pwrite(sidecar, bytes, log_end); });
    if (!written.is_ok()) {
      FPFS_RETURN_IF_ERROR(cut_log(sidecar, log_end).with_context(written.message()));
      return written.code() == StatusCode::kNoSpace ? Appended::nothing(written) : Appended(written);
    }
    appended = {record_offset, log_end + bytes.size()};
    if (commit.record.has_inline) inline_appended({appended.record_offset, appended.end});
    FPFS_RETURN_IF_ERROR(keep_times(sidecar, before.st_ctim));
  }
  if (!commit.sync) return appended;
  FPFS_RETURN_IF_ERROR(storage.fsync(sidecar));
  if (commit.new_name_in != kNoHandle) FPFS_RETURN_IF_ERROR(storage.fsync(commit.new_name_in));
  FPFS_RETURN_IF_ERROR(context_.array->check_tree_running());
  return appended;
}

void File::finish_commit(const Appended& outcome) {
  const std::shared_ptr<File> self = shared_from_this();
  if (!outcome.log_is_known) {
    context_.count_tree_error();
    context_.fail_array(outcome.status.with_context(path()));
  }
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    end_inline_write(deferred);
    if (abandoned_) return;
    if (outcome.status.is_ok()) {
      committed_change_ = commit_->covers;
      if (commit_->sync)
        context_.note_synced(*this);
      else
        context_.note_unsynced(*this);
    }
    if (outcome.status.is_ok() && commit_->has_record) {
      committed_size_ = commit_->record.size;
      const bool compacted = commit_->record.snapshot;
      if (compacted) snapshot_offset_ = outcome.record_offset;
      log_end_ = outcome.end;
      ++sequence_;
      context_.commits.fetch_add(1, std::memory_order_relaxed);
      // The record is durable (a lazy one has nothing to free): what only the one before named can go.
      if (!commit_->dead.empty())
        context_.post_free([self, dead = std::move(commit_->dead)] { self->punch_dead(dead); });
      std::vector<DoomedObjects> doomed;
      for (const auto& objects : commit_->doomed) doomed.push_back(DoomedObjects::of(objects, true));
      if (commit_->objects != nullptr) context_.settle_generation(file_id_, commit_->record.generation);
      if (!doomed.empty()) context_.reclaim(std::move(doomed), kNoHandle);
      if (compacted && commit_->sync && snapshot_offset_ > kSnapshotAlignment)
        context_.post_free([self, handle = sidecar_, end = snapshot_offset_] { self->punch_log(handle, end); });
    }
    end_commit(outcome.status, deferred);
  }
  run(deferred);
}

void File::end_commit(const Status& status, Deferred& deferred) {
  const std::unique_ptr<Commit> commit = std::move(commit_);
  phase_ = Phase::kIdle;
  if (!status.is_ok()) {
    fail(status);
    discard_dirty(deferred);
    if (commit->new_name_in != kNoHandle) context_.keep_new_name(key_, commit->new_name_in);
  } else {
    if (commit->new_name_in != kNoHandle) {
      context_.storage().close(commit->new_name_in);
      context_.forget_new_name(key_);
    }
    if (!modified_) promised_ = false;
  }
  while (ControlRequest* request = commit->requests) {
    commit->requests = request->next;
    complete_with(deferred, *request, status);
  }
  if (status.is_ok()) flush_dirty(true, deferred);
  run_controls(deferred);
  drop_if_clean();
}

// The log before a durable snapshot, up to the snapshot's own block.
void File::punch_log(Handle sidecar, uint64_t end) {
  const Result<struct stat> before = context_.storage().fstat(sidecar);
  Status status = context_.storage().fallocate(sidecar, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kSnapshotAlignment,
                                               end - kSnapshotAlignment);
  if (status.is_ok() && before.is_ok()) status = keep_times(sidecar, before->st_ctim);
  if (!status.is_ok()) log(LogLevel::kWarning, "{}: cannot compact the index: {}", path(), status.message());
}

// What the last record but one named and the last does not. Contiguous slots are punched together.
void File::punch_dead(const std::vector<DeadSlot>& dead) {
  const uint64_t chunk_size = context_.stripes.chunk_size;
  std::vector<DeadSlot> sorted = dead;
  std::sort(sorted.begin(), sorted.end(), [](const DeadSlot& a, const DeadSlot& b) {
    return std::tie(a.member, a.slot) < std::tie(b.member, b.slot);
  });
  std::vector<DeadSlot> punched;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    while (end < sorted.size() && sorted[end].member == sorted[begin].member &&
           sorted[end].slot == sorted[end - 1].slot + 1)
      ++end;
    const DeadSlot& first = sorted[begin];
    const Status status = first.objects->punch(first.member, first.slot * chunk_size, (end - begin) * chunk_size);
    if (status.is_ok())
      punched.insert(punched.end(), sorted.begin() + static_cast<ptrdiff_t>(begin),
                     sorted.begin() + static_cast<ptrdiff_t>(end));
    else
      log(LogLevel::kWarning, "{}: cannot free replaced chunks on member {}: {}; fsck -p will", path(), first.member,
          status.message());
    begin = end;
  }
  MutexLock lock(mutex_);
  for (const DeadSlot& slot : punched)
    if (slot.objects == objects_) slots_[slot.member].release(slot.slot);
}

void File::promise() {
  MutexLock lock(mutex_);
  promised_ |= error_.is_ok() && (modified_ || commit_ != nullptr) && !is_unfinished(false);
}

}  // namespace fpfs
