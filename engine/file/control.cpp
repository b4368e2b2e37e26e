// Controls: commit, truncate, hole punching. They run in order of arrival, each at a moment when no write is in
// progress; writes that arrive behind one wait for it.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

void File::control(ControlRequest& request) {
  request.result = Status::ok();
  if (request.kind == ControlRequest::Kind::kPunchHole)
    zero_edges_then_punch(request);
  else
    enqueue_control(request);
}

void File::enqueue_control(ControlRequest& request) {
  const std::shared_ptr<File> self = shared_from_this();
  Deferred deferred;
  bool waits = false;
  {
    MutexLock lock(mutex_);
    waits = cuts_what_is_away(request);
    if (!waits) {
      gate_.add(request);
      run_controls(deferred);
    }
  }
  if (waits) return zero_end_then_truncate(request);
  run(deferred);
}

void File::run_controls(Deferred& deferred) {
  while (const ControlRequest* const next = may_flush() ? gate_.next_control() : nullptr) {
    if (next->is_commit()) {
      if (!run_commit_request(deferred)) return;
      continue;
    }
    ControlRequest& request = gate_.pop_control();
    Status status = error_;
    if (status.is_ok() && (!writable_ || context_.array.read_only()))
      status = Status::error(StatusCode::kReadOnly, "the array is mounted read-only");
    if (status.is_ok()) status = context_.health.failure();
    if (status.is_ok() && !fits_a_file(request.offset, request.length))
      status = Status::error(StatusCode::kTooLarge, "beyond the largest file size");
    if (status.is_ok()) {
      if (request.kind == ControlRequest::Kind::kTruncate)
        truncate_locked(request.offset, request.origin, deferred);
      else
        punch_locked(request, deferred);
    }
    complete_with(deferred, request, status);
  }
  deferred.writes.append(gate_.take_parked());
}

// Whether anybody could come to what it makes durable. A file that was made without a name may be linked later: what is
// asked of it meanwhile counts, but its close does not, nor the end of the array.
bool File::matters(const ControlRequest& request) const {
  return !names_.is_removed() && !(names_.is_nameless() && request.kind == ControlRequest::Kind::kClose);
}

// Whether a commit is what the request asks for, given who has written what.
bool File::is_wanted(ControlRequest& request) {
  using Unfinished = ControlRequest::Unfinished;
  // What is left of space is given back by any close, unless somebody is about to fill it.
  if (request.kind == ControlRequest::Kind::kClose && request.origin.writer != nullptr)
    return writers_.finish(request.origin, false) || (!content_.is_edited() && !writers_.is_unfinished(false));
  if (request.unfinished == Unfinished::kCommitted) return true;
  request.was_left_alone =
      matters(request) && writers_.is_unfinished(request.unfinished == Unfinished::kTricklesCommitted);
  return !request.was_left_alone;
}

// A lazy commit makes nothing durable, so it must leave nothing to free. fsync makes attributes and names durable too,
// of which nobody keeps account here.
bool File::has_work(const ControlRequest& request) const {
  if (request.lazy) return content_.is_edited() && fits_sidecar() && placement_.retired().is_empty();
  if (needs_commit()) return true;
  return request.kind == ControlRequest::Kind::kClose
             ? has_slack()
             : request.unfinished == ControlRequest::Unfinished::kCommitted && !context_.array.read_only();
}

// The commit at the head of the queue. False when it has to wait for the one under way.
bool File::run_commit_request(Deferred& deferred) {
  ControlRequest& request = *gate_.head();
  if (error_.is_ok() && !is_wanted(request)) {
    complete_with(deferred, gate_.pop_control(), Status::ok());
    return true;
  }
  const bool works = has_work(request);
  const bool lazy = request.lazy;
  Status failure = error_;
  if (failure.is_ok() && works) failure = context_.health.failure();
  if (!failure.is_ok() && error_.is_ok() && std::exchange(promised_, false)) {
    log(LogLevel::kError, "{}: not committed: {}", path(), failure.message());
    context_.health.note_loss(inode_, path(), failure);
  }
  // fsync is told what was lost before, with this file open or another time.
  const bool is_fsync =
      request.kind == ControlRequest::Kind::kCommit && request.unfinished == ControlRequest::Unfinished::kCommitted;
  if (is_fsync) {
    const Status loss = context_.health.take_loss(inode_);
    if (failure.is_ok()) failure = loss;
  }
  if (failure.is_ok() && request.killed && replaces_committed()) {
    // What is on its way may be going to the objects that the file goes back to.
    if (commit_ != nullptr || writes_in_flight_ > 0) return false;
    revert_replacement(gate_.pop_control(), deferred);
    return true;
  }
  const bool nothing_to_do = !works || !matters(request);
  if (!failure.is_ok() || (nothing_to_do && commit_ == nullptr)) {
    complete_with(deferred, gate_.pop_control(), failure);
    drop_if_clean();
    return true;
  }
  if (commit_ != nullptr) {
    // What it asks for is what the commit under way makes durable; only space is not given back by every commit.
    const bool wants_trim = request.kind == ControlRequest::Kind::kClose && !lazy && !names_.is_removed();
    if (!nothing_to_do || (wants_trim && !commit_->closing)) return false;
    commit_->requests.push_front(gate_.pop_control());
    return true;
  }
  // With it those behind it that ask for the same: what a killed saver left is looked at by itself.
  ControlList list;
  list.push_front(gate_.pop_control());
  const auto goes_with_it = [lazy](const ControlRequest* next) {
    return next != nullptr && next->is_commit() && next->lazy == lazy && !next->killed;
  };
  while (goes_with_it(gate_.head())) {
    ControlRequest& behind = gate_.pop_control();
    (void)is_wanted(behind);
    list.push_front(behind);
  }
  start_commit(std::move(list), deferred);
  return true;
}

// --- truncate -------------------------------------------------------------------------------------------------------

void File::truncate_locked(FileOffset new_end, const Origin& origin, Deferred& deferred) {
  // Also of the size that it has: what fallocate set aside behind the end is given back.
  if (new_end <= content_.end()) reserved_.remove(content_.file_id(), context_.stripes.chunks_end(new_end), kChunksEnd);
  if (new_end == content_.end()) {
    if (new_end == FileOffset(0)) context_.health.forget_file_failure(inode_);  // it is to be empty
    return;
  }
  if (new_end == FileOffset(0) && context_.previous_files != nullptr) keep_as_previous();
  mark_modified(origin);
  if (new_end == FileOffset(0)) {
    drop_chunks(ChunkIndex(0), kChunksEnd, deferred);
    // The content is replaced as a whole: new objects, so that the committed ones stay until the next commit.
    content_.clear(placement_.start_generation());
    static_cast<void>(context_.health.take_loss(inode_));  // what was lost is given up now
    content_.set_end(new_end);
  } else if (new_end < content_.end()) {
    const uint32_t kept = context_.stripes.offset_in_chunk(new_end);
    const ChunkIndex boundary = context_.stripes.chunk_of(new_end);
    drop_chunks(kept > 0 ? boundary + 1 : boundary, kChunksEnd, deferred);
    if (CachedChunk* const chunk = kept > 0 ? cache_.find(boundary) : nullptr)
      chunk->length = std::min(chunk->length, kept);
    content_.truncate(new_end, [this](const Extent& extent) FPFS_NO_THREAD_SAFETY_ANALYSIS { forget_extent(extent); });
  } else {
    content_.set_end(new_end);
  }
}

// What is written instead may be the same in part. As it was committed, so that all of it is durable; it stays until
// the commit of what comes.
void File::keep_as_previous() {
  if (needs_commit() || commit_ != nullptr || log_.sequence == 0 || log_.sequence != durable_) return;
  if (placement_.objects() == nullptr || content_.extents().count() == 0) return;
  previous_ =
      std::make_shared<PreviousContent>(content_.take_extents(context_.indexes.entries()), placement_.objects());
}

void File::drop_chunks(ChunkIndex first, ChunkIndex last, Deferred& deferred) {
  if (first == ChunkIndex(0)) tensors_.forget();
  cache_.for_each([&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (chunk.index >= first && chunk.index <= last) detach(chunk, deferred);
  });
}

// --- holes ----------------------------------------------------------------------------------------------------------

// The whole chunks inside the range; its ragged ends were overwritten with zeros before.
void File::punch_locked(const ControlRequest& request, Deferred& deferred) {
  const FileOffset end = request.offset + request.length;
  const ChunkIndex first = context_.stripes.chunks_end(request.offset);
  // The last chunk of the file counts as whole when the range reaches the end of the file.
  const ChunkIndex stop =
      end >= content_.end() ? context_.stripes.chunks_end(content_.end()) : context_.stripes.chunk_of(end);
  mark_modified(request.origin);
  if (first >= stop) return;
  drop_chunks(first, stop - 1, deferred);
  reserved_.remove(content_.file_id(), first, stop);
  content_.punch(first, stop, [this](const Extent& extent) FPFS_NO_THREAD_SAFETY_ANALYSIS { forget_extent(extent); });
}

// The ragged ends of a hole, or what is cut off of a chunk, written with zeros one piece after the other, then the
// control itself.
struct File::ZeroEdges {
  ZeroEdges(std::shared_ptr<File> of, ControlRequest& behind) : file(std::move(of)), control(&behind) {}

  std::shared_ptr<File> file;
  ControlRequest* control;
  WriteRequest write;
  std::vector<std::pair<FileOffset, uint64_t>> pieces;  // offset, length; last first

  static void next(ZeroEdges* job) {
    if (job->pieces.empty()) {
      const std::shared_ptr<File> target = std::move(job->file);
      ControlRequest* request = job->control;
      delete job;
      target->enqueue_control(*request);
      return;
    }
    auto& [offset, length] = job->pieces.back();
    job->write.offset = offset;
    job->write.length = static_cast<uint32_t>(std::min<uint64_t>(length, kRequestBytesMax));
    offset += job->write.length;
    length -= job->write.length;
    if (length == 0) job->pieces.pop_back();
    job->write.data = job->file->context_.zeros.get();
    job->write.origin = job->control->origin;
    job->write.owner = job;
    job->write.complete = [](WriteRequest& request, const Status& status) {
      auto* self = static_cast<ZeroEdges*>(request.owner);
      if (status.is_ok()) return next(self);
      ControlRequest* request_behind = self->control;
      delete self;
      request_behind->complete(*request_behind, status);
    };
    job->file->write(job->write);
  }
};

// A chunk that is away is known by the checksum of all of it: it comes to the members before a part is cut off.
bool File::cuts_what_is_away(const ControlRequest& request) const {
  const ChunkIndex boundary = context_.stripes.chunk_of(request.offset);
  const CachedChunk* const cached = cache_.find(boundary);
  if (cached != nullptr && (cached->dirty || cached->state == CachedChunk::State::kWriting)) return false;
  return request.kind == ControlRequest::Kind::kTruncate && error_.is_ok() && request.offset < content_.end() &&
         offset_of(boundary, context_.stripes.chunk_size) < request.offset && content_.extent(boundary).is_away();
}

void File::zero_end_then_truncate(ControlRequest& request) {
  auto job = std::make_unique<ZeroEdges>(shared_from_this(), request);
  const uint32_t chunk_size = context_.stripes.chunk_size;
  job->pieces.emplace_back(request.offset, chunk_size - context_.stripes.offset_in_chunk(request.offset));
  {
    MutexLock lock(mutex_);
    auto& [offset, length] = job->pieces.back();
    length = content_.length_within(offset, length);
  }
  ZeroEdges::next(job.release());
}

void File::zero_edges_then_punch(ControlRequest& request) {
  auto job = std::make_unique<ZeroEdges>(shared_from_this(), request);
  {
    MutexLock lock(mutex_);
    const StripeMap& stripes = context_.stripes;
    const FileOffset end = request.offset + content_.length_within(request.offset, request.length);
    auto add = [&](FileOffset from, FileOffset to) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      if (from < to && has_data(stripes.chunk_of(from))) job->pieces.emplace_back(from, to - from);
    };
    if (request.offset < end) {
      const FileOffset head_end = std::min(end, offset_of(stripes.chunks_end(request.offset), stripes.chunk_size));
      const FileOffset tail = std::max(head_end, offset_of(stripes.chunk_of(end), stripes.chunk_size));
      if (end < content_.end()) add(tail, end);
      add(request.offset, head_end);
    }
  }
  ZeroEdges::next(job.release());
}

}  // namespace fpfs
