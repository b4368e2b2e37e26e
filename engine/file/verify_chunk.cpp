// One chunk read into a buffer of its own, past the cache, and checked: what fpfs verify and scrub are made of. Or,
// when the content is in the sidecar, that.
#include <fmt/format.h>

#include "engine/file/chunk_verification.h"
#include "engine/file/file.h"
#include "engine/index/sidecar_file.h"

namespace fpfs {

void File::verify_chunk(ChunkIndex chunk, std::function<void(const Status&)> done) {
  auto job = std::make_unique<ChunkVerification>();
  job->file = shared_from_this();
  job->chunk = chunk;
  job->waiter.owner = job.get();
  job->waiter.ready = [](BufferPool::Waiter& waiter) {
    start_verification(*static_cast<ChunkVerification*>(waiter.owner));
  };
  bool is_hole = false, is_inline = false;
  {
    MutexLock lock(mutex_);
    job->extent = content_.extent(chunk);
    job->objects = placement_.objects();
    is_inline = chunk == 0 && content_.is_inline() && log_.sequence > 0;
    is_hole = !job->extent.exists() && !is_inline;
    job->domain = is_inline ? StallWatch::kTree : job->extent.member;
    if (!is_hole) {
      job->done = std::move(done);
      verifications_.push_front(*job);
    }
  }
  if (is_hole) return done(Status::ok());
  if (is_inline)
    verify_inline(*job.release());
  else
    start_verification(*job.release());
}

std::optional<ChunkIndex> File::next_stored(ChunkIndex first) const {
  MutexLock lock(mutex_);
  if (first == 0 && content_.is_inline()) return 0;
  std::optional<ChunkIndex> next;
  content_.extents().for_each(first, [&next](ChunkIndex chunk, const Extent&) {
    next = chunk;
    return false;
  });
  return next;
}

// --- content in the sidecar -----------------------------------------------------------------------------------------

// Small, and nothing of it goes through the pool: read on the executor, which may wait for the drive.
void File::verify_inline(ChunkVerification& job) {
  {
    MutexLock lock(job.file->mutex_);
    job.submitted = true;
  }
  job.file->context_.post([&job] {
    std::unique_ptr<ChunkVerification> self(&job);
    const std::shared_ptr<File> file = self->file;
    uint64_t sequence = 0;
    Status outcome = file->read_sidecar_again(sequence);
    if (outcome.is_ok()) return conclude(std::move(self), outcome);
    {
      MutexLock lock(file->mutex_);
      if (self->given_up) return;
      if (file->log_.sequence == sequence) {
        outcome = outcome.with_context(file->path());
      } else {
        // Committed meanwhile: the log that was read may have been compacted.
        file->verifications_.remove(*self);
        outcome = Status::ok();
      }
    }
    if (outcome.is_ok()) return file->verify_chunk(self->chunk, std::move(self->done));
    file->context_.count_tree_read_error(outcome);
    conclude(std::move(self), outcome);
  });
}

// The last commit, as it is on the drive. `sequence`: which one that is.
Status File::read_sidecar_again(uint64_t& sequence) {
  std::unique_ptr<DirectSidecarReader> reader;
  {
    // The handle may be replaced by a writer's. Opening what is open already waits for no drive.
    MutexLock lock(mutex_);
    sequence = log_.sequence;
    FPFS_ASSIGN_OR_RETURN(reader, DirectSidecarReader::open(context_.storage(), sidecar_->get(), log_.end));
  }
  FPFS_ASSIGN_OR_RETURN(
      const FileImage image,
      fold_sidecar(*reader, context_.array->id(), context_.stripes.member_count, context_.stripes.chunk_size, nullptr));
  if (image.sequence == sequence) return Status::ok();
  return Status::error(StatusCode::kCorruption, fmt::format("the sidecar ends with record {}, record {} was committed",
                                                            image.sequence, sequence));
}

// --- chunks ---------------------------------------------------------------------------------------------------------

bool File::has_moved(ChunkIndex chunk, const Extent& extent) const {
  MutexLock lock(mutex_);
  return !(content_.extent(chunk) == extent);
}

void File::start_verification(ChunkVerification& job) {
  FileContext& context = job.file->context_;
  if (job.waiter.expired) return conclude(std::unique_ptr<ChunkVerification>(&job), no_buffer_comes());
  if (!context.pool->acquire(1, &job.buffer, &job.waiter, nullptr)) return;
  job.io.kind = IoRequest::Kind::kRead;
  job.io.data = job.buffer->data;
  job.io.offset = job.extent.slot * context.stripes.chunk_size;
  job.io.length = static_cast<uint32_t>(round_up(job.extent.stored_length, kIoAlignment));
  job.io.owner = &job;
  job.io.prepare = [](IoRequest& io) {
    auto* self = static_cast<ChunkVerification*>(io.owner);
    return open_for_load(*self->objects, self->extent.member, self->object, io);
  };
  job.io.complete = [](IoRequest& io, const Status& status) {
    FileContext& shared = static_cast<ChunkVerification*>(io.owner)->file->context_;
    end_verification(io, status);
    shared.transfer_ended();
  };
  {
    MutexLock lock(job.file->mutex_);
    job.submitted = true;
  }
  context.submit(job.extent.member, job.io);
}

void File::end_verification(IoRequest& io, const Status& status) {
  std::unique_ptr<ChunkVerification> self(static_cast<ChunkVerification*>(io.owner));
  self->object.reset();
  FileContext& context = self->file->context_;
  Status outcome = status;
  if (outcome.is_ok()) outcome = check_loaded(context, *self->objects, self->chunk, self->extent, io);
  context.pool->release(*self->buffer);
  if (!outcome.is_ok() && self->file->has_moved(self->chunk, self->extent)) {
    // Replaced meanwhile: look at the new place, unless nobody wants to know any more.
    const std::shared_ptr<File> file = self->file;
    {
      MutexLock lock(file->mutex_);
      if (self->given_up) return;
      file->verifications_.remove(*self);
    }
    return file->verify_chunk(self->chunk, std::move(self->done));
  }
  count_load(context.counters[self->extent.member], io, outcome);
  if (!outcome.is_ok()) outcome = self->file->describe(outcome, self->chunk, self->extent, *self->objects);
  conclude(std::move(self), outcome);
}

void File::conclude(std::unique_ptr<ChunkVerification> job, const Status& status) {
  {
    MutexLock lock(job->file->mutex_);
    if (job->given_up) return;
    job->file->verifications_.remove(*job);
  }
  job->done(status);
}

std::vector<std::function<void(const Status&)>> File::give_up_verifications(StallWatch::Domain domain) {
  std::vector<std::function<void(const Status&)>> answers;
  verifications_.for_each([&](ChunkVerification& job) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (!job.submitted || job.domain != domain) return;
    job.given_up = true;
    verifications_.remove(job);
    answers.push_back(std::move(job.done));
    if (domain < context_.stripes.member_count)
      context_.counters[domain].read_errors.fetch_add(1, std::memory_order_relaxed);
  });
  return answers;
}

}  // namespace fpfs
