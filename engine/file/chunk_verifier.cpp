#include "engine/file/chunk_verifier.h"

#include <utility>

#include <fmt/format.h>

#include "engine/index/sidecar_file.h"

namespace fpfs {

const char* ChunkVerifier::name_of(Remedy remedy) {
  switch (remedy) {
    case Remedy::kHealed:
      return "healed";
    case Remedy::kHealable:
      return "healable";
    case Remedy::kLost:
      return "lost";
    case Remedy::kUnknown:
      break;
  }
  return "";
}

void ChunkVerifier::verify(ChunkIndex chunk, std::shared_ptr<const void> keep, Done done, Taken taken) {
  Source::Place place = source_.place_of(chunk);
  const bool is_inline = place.is_inline;
  if (!place.extent.is_here() && !is_inline) return done(Status::ok(), Remedy::kUnknown);
  const StallDomain domain = is_inline ? kTreeDomain : domain_of(place.extent.member);
  std::unique_ptr<Job> job(new Job{.verifier = *this,
                                   .keep = std::move(keep),
                                   .chunk = chunk,
                                   .place = std::move(place),
                                   .domain = domain,
                                   .waiter = {},
                                   .transfer = {},
                                   .done = std::move(done),
                                   .taken = std::move(taken),
                                   .link = {}});
  {
    MutexLock lock(mutex_);
    jobs_.push_front(*job);
  }
  if (is_inline) return verify_inline(std::move(job));
  job->waiter.owner = job.get();
  job->waiter.ready = [](BufferPool::Waiter& waiter) {
    auto& waiting = *static_cast<Job*>(waiter.owner);
    waiting.verifier.start(waiting);
  };
  start(*job.release());
}

bool ChunkVerifier::take(Job& job) {
  MutexLock lock(mutex_);
  if (job.given_up) return false;
  jobs_.remove(job);
  return true;
}

void ChunkVerifier::mark_submitted(Job& job) {
  MutexLock lock(mutex_);
  job.submitted = true;
}

void ChunkVerifier::verify_again(std::unique_ptr<Job> job) {
  if (take(*job)) verify(job->chunk, std::move(job->keep), std::move(job->done), std::move(job->taken));
}

std::vector<ChunkVerifier::Done> ChunkVerifier::give_up(StallDomain domain) {
  std::vector<Done> answers;
  MutexLock lock(mutex_);
  jobs_.for_each([&](Job& job) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (!job.submitted || job.domain != domain) return;
    job.given_up = true;
    jobs_.remove(job);
    answers.push_back(std::move(job.done));
    if (const std::optional<MemberIndex> member = member_of(domain))
      parts_.counters[*member].read_errors.fetch_add(1, std::memory_order_relaxed);
  });
  return answers;
}

// --- chunks ---------------------------------------------------------------------------------------------------------

void ChunkVerifier::start(Job& job) {
  if (job.waiter.expired) {
    std::unique_ptr<Job> self(&job);
    if (take(job)) self->done(BufferPool::no_buffer_comes(), Remedy::kUnknown);
    return;
  }
  if (!parts_.pool.acquire(1, &job.buffer, &job.waiter, nullptr)) return;
  job.transfer.kind = IoRequest::Kind::kRead;
  job.transfer.chunk = job.chunk;
  job.transfer.extent = job.place.extent;
  job.transfer.objects = job.place.objects;
  job.transfer.data = job.buffer->data;
  job.transfer.as_stored = job.taken != nullptr;
  job.transfer.is_checked = true;
  job.transfer.owner = &job;
  job.transfer.done = [](ChunkTransfer& transfer, const ObjectSet& objects, const Status& status) {
    std::unique_ptr<Job> self(static_cast<Job*>(transfer.owner));
    ChunkVerifier& verifier = self->verifier;
    const std::shared_ptr<const void> keep = self->keep;
    verifier.end(std::move(self), objects, status);
  };
  mark_submitted(job);
  parts_.io.start(job.transfer);
}

void ChunkVerifier::end(std::unique_ptr<Job> job, const ObjectSet& objects, const Status& status) {
  if (status.is_ok() && job->taken != nullptr) job->taken(job->place, job->buffer->data);
  parts_.pool.release(*job->buffer);
  parts_.pool.run_waiters();
  if (!status.is_ok() && !(source_.place_of(job->chunk).extent == job->place.extent))
    return verify_again(std::move(job));
  if (!take(*job)) return;
  if (status.is_ok()) return job->done(status, Remedy::kUnknown);
  const Status damage = parts_.io.report(status, job->transfer, objects, source_.path());
  source_.heal(job->chunk, job->place, damage,
               [done = std::move(job->done), told = parts_.io.locate(status, job->transfer, objects)](
                   const Status&, Remedy remedy) { done(told, remedy); });
}

// --- content in the sidecar -----------------------------------------------------------------------------------------

// Small, and nothing of it goes through the pool: read on the executor, which may wait for the drive.
void ChunkVerifier::verify_inline(std::unique_ptr<Job> job) {
  mark_submitted(*job);
  parts_.tasks.post([this, job = job.release()] {
    std::unique_ptr<Job> self(job);
    const std::shared_ptr<const void> keep = self->keep;
    // A commit behind the place that was noted: what it says is what counts.
    self->place = source_.place_of(self->chunk);
    Status outcome = read_sidecar_again(self->place);
    if (!outcome.is_ok()) {
      // Committed meanwhile: the log that was read may have been compacted.
      if (source_.place_of(self->chunk).log.sequence != self->place.log.sequence) return verify_again(std::move(self));
    }
    if (!take(*self)) return;
    if (!outcome.is_ok()) parts_.counters.count_tree_read_error(outcome);
    self->done(outcome, outcome.code() == StatusCode::kCorruption ? Remedy::kLost : Remedy::kUnknown);
  });
}

// The last commit, as it is on the drive.
Status ChunkVerifier::read_sidecar_again(const Source::Place& place) {
  FPFS_ASSIGN_OR_RETURN(const std::unique_ptr<DirectSidecarReader> reader,
                        DirectSidecarReader::open(parts_.storage, place.sidecar->get(), place.log.end));
  FPFS_ASSIGN_OR_RETURN(const FileImage image,
                        fold_sidecar(*reader, parts_.array.id(), parts_.array.stripes().member_count,
                                     parts_.array.stripes().chunk_size, nullptr));
  if (image.sequence == place.log.sequence) return Status::ok();
  return Status::error(StatusCode::kCorruption, fmt::format("the sidecar ends with record {}, record {} was committed",
                                                            image.sequence, place.log.sequence));
}

}  // namespace fpfs
