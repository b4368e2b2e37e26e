// Content that is kept in the sidecar: chunk 0 of a small file, all there is of it.
//
// It passes through a pool buffer like any chunk, and nothing of it is kept beside the pool:
//   open    the sidecar is read anyway: its content goes to a buffer, when one is at hand without waiting. Clean, so
//           evictable
//   load    when that is gone, chunk 0 is read from its record and checked, on the executor
//   commit  a dirty chunk 0 is kWriting until its record is in the log: then it can be loaded from there. One that is
//           not dirty (a truncation, other times) is copied from the record before
//
// Where the record lies (Content::inline_place) changes with each commit, and compaction punches out what lay before: a
// load that fails looks again when the place is another by then.
#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/file/file.h"
#include "engine/index/sidecar_file.h"

namespace fpfs {

void File::cache_inline(std::span<const std::byte> content) {
  Buffer* buffer = nullptr;
  if (content.empty() || !context_.pool->acquire(1, &buffer, nullptr, this)) return;
  CachedChunk& chunk = cache_.adopt(*buffer, *this, ChunkIndex(0));
  std::copy(content.begin(), content.end(), buffer->data);
  chunk.length = static_cast<uint32_t>(content.size());
  context_.pool->make_evictable(*buffer, false);
}

// --- loads ----------------------------------------------------------------------------------------------------------

void File::begin_load_inline(CachedChunk& chunk) {
  chunk.state = CachedChunk::State::kLoading;
  chunk.drive = kTreeDomain;
  chunk.length = content_.inline_length();
  chunk.keep = shared_from_this();
  context_.tasks.post([&chunk] {
    const std::shared_ptr<File> file = std::move(chunk.keep);
    file->load_inline(chunk);
    file->context_.relieve_pressure();
  });
}

Result<uint32_t> File::read_place(Handle sidecar, FileId file_id, const RecordPlace& place,
                                  std::span<std::byte> buffer) {
  FPFS_RETURN_IF_ERROR(context_.check_names());
  StorageSidecarReader reader(context_.storage(), sidecar, place.end);
  return read_inline(reader, context_.array.id(), file_id, place, buffer);
}

void File::load_inline(CachedChunk& chunk) {
  Status outcome = Status::error(StatusCode::kIoError, "it was replaced before it was read");
  mutex_.lock();
  const std::shared_ptr<const ScopedHandle> sidecar = sidecar_;
  const FileId file_id = content_.file_id();
  // Once a chunk is detached its content may be another one at another place, and who still waits looks again.
  for (bool has_moved = true; has_moved && !chunk.detached;) {
    const RecordPlace place = content_.inline_place();
    mutex_.unlock();
    outcome = read_place(sidecar->get(), file_id, place, {chunk.buffer->data, context_.stripes.chunk_size}).status();
    mutex_.lock();
    has_moved = !outcome.is_ok() && place != content_.inline_place();
  }
  const bool is_wanted = !chunk.detached;
  mutex_.unlock();
  if (!outcome.is_ok() && is_wanted) {
    context_.counters.count_tree_read_error(outcome);
    outcome = outcome.with_context(path());
    log_about(outcome.message(), LogLevel::kError, "{}; the read fails with an I/O error", outcome.message());
  }
  finish_load(chunk, outcome);
}

// --- commits --------------------------------------------------------------------------------------------------------

void File::build_inline_record() {
  if (CachedChunk* const chunk = cache_.oldest_dirty()) {
    mark_clean(*chunk);
    chunk->state = CachedChunk::State::kWriting;
    chunk->transfer.extent = Extent();
    chunk->drive = kTreeDomain;
    context_.writes_in_flight.fetch_add(1, std::memory_order_relaxed);
    commit_->inline_chunk = chunk;
  }
  const uint32_t length = commit_->inline_chunk != nullptr ? commit_->inline_chunk->length : content_.inline_length();
  content_.set_inline(length);
  commit_->inline_from = content_.inline_place();
  commit_->inline_length = length;
  SidecarRecord& record = commit_->record;
  record.has_inline = true;
  record.truncate_from = ChunkIndex(0);
  record.allocated = round_up(length, 512);
  record.snapshot = log_.is_long(length);
}

// On the executor, before the record is encoded: its content, which is not there earlier, so that commits that wait for
// their turn hold nothing beside the pool.
Status File::fetch_inline(CommitJob& commit) {
  if (commit.inline_length == 0) return Status::ok();
  std::vector<std::byte>& content = commit.record.inline_data;
  if (const CachedChunk* const chunk = commit.inline_chunk) {
    content.assign(chunk->buffer->data, chunk->buffer->data + commit.inline_length);
    return Status::ok();
  }
  content.resize(kInlineRecordMax);
  FPFS_ASSIGN_OR_RETURN(const uint32_t stored,
                        read_place(commit.sidecar->get(), commit.header.file_id, commit.inline_from, content));
  if (stored < commit.inline_length)
    return Status::error(StatusCode::kCorruption, "the sidecar holds less than was read from it before");
  content.resize(commit.inline_length);
  return Status::ok();
}

// The record is in the log, if not durably: the content can be read from there.
void File::inline_appended(CommitJob& commit, const RecordPlace& place) {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    content_.set_inline_place(place);
    end_inline_write(commit, deferred);
  }
  run(deferred);
  context_.relieve_pressure();
}

void File::end_inline_write(CommitJob& commit, Deferred& deferred) {
  CachedChunk* const chunk = std::exchange(commit.inline_chunk, nullptr);
  if (chunk == nullptr) return;
  if (!chunk->given_up) context_.writes_in_flight.fetch_sub(1, std::memory_order_relaxed);
  if (abandoned_) return;
  chunk->state = CachedChunk::State::kReady;
  // Cold: it is little to read again, and the pool would go on to memory that was never used, of which the kernel clears
  // 2 MiB at a time.
  cache_.release_if_idle(*chunk, true, deferred);
}

}  // namespace fpfs
