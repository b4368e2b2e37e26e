// What a member that hangs means for an open file (engine/io/stall_watch.h says what hanging is).
//
// Nothing can be taken back from a drive that does not answer. So whoever waits is answered without it, and what the
// drive still has is left to it: the chunk of such a transfer is detached, its buffer comes back when the transfer
// ends.
//
//   loads       their readers get the failure. The file is as whole as before
//   what was healed, and is being written back: nobody waits for it any more, and it is nobody's content
//   flushes     the file fails, as after any failed write
//   a commit    that is caught in a sync fails the file; caught while it appends to the sidecar, it leaves the
//               sidecar's state unknown, and the array turns read-only
//
// A commit that was given up on ends whenever its sync returns, and must not make durable what was reported as failed:
// object_sync_done() looks before it appends.
#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

void File::member_stalled(StallDomain domain, const Status& failure) {
  const std::shared_ptr<File> self = shared_from_this();
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (abandoned_) return;
    give_up_loads(domain, failure, deferred);
    give_up_heal_writes(domain, deferred);
    if (writes_to(domain) || commit_is_caught(domain)) give_up_writes(domain, failure, deferred);
  }
  run(deferred);
  for (const ChunkVerifier::Done& answer : verifier_.give_up(domain)) answer(failure, ChunkVerifier::Remedy::kUnknown);
  context_.relieve_pressure();
}

void File::give_up_loads(StallDomain domain, const Status& failure, Deferred& deferred) {
  const auto is_caught = [domain](const CachedChunk& chunk) {
    return chunk.state == CachedChunk::State::kLoading && chunk.drive == domain && !chunk.given_up;
  };
  const auto give_up = [&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    chunk.given_up = true;
    chunk.failure = failure.with_context(path());
    if (domain == kTreeDomain)
      context_.counters.count_tree_read_error(failure);
    else
      context_.counters[chunk.transfer.extent.member].read_errors.fetch_add(1, std::memory_order_relaxed);
    log(LogLevel::kError, "{}; the read of chunk {} fails with an I/O error", chunk.failure.message(), chunk.index);
  };
  for (CachedChunk* chunk : cache_.detached_in_transfer()) {
    if (!is_caught(*chunk)) continue;
    give_up(*chunk);
    ChunkCache::wake(*chunk, deferred);
  }
  cache_.for_each([&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (!is_caught(chunk)) return;
    give_up(chunk);
    detach(chunk, deferred);
  });
}

bool File::writes_to(StallDomain domain) const {
  if (domain == kTreeDomain) return false;  // only commits do
  const auto is_caught = [domain](const CachedChunk& chunk) {
    return chunk.state == CachedChunk::State::kWriting && chunk.drive == domain && !chunk.given_up;
  };
  const std::vector<CachedChunk*>& detached = cache_.detached_in_transfer();
  bool found =
      std::any_of(detached.begin(), detached.end(), [&](const CachedChunk* chunk) { return is_caught(*chunk); });
  cache_.for_each([&](const CachedChunk& chunk) { found |= is_caught(chunk); });
  return found;
}

// Commits that drain wait for flushes; these here for calls that nobody else sees.
bool File::commit_is_caught(StallDomain domain) const {
  if (commit_ == nullptr || commit_->given_up || phase_ == Phase::kDraining) return false;
  const std::optional<MemberIndex> member = fpfs::member_of(domain);
  const bool needs_it = domain == kTreeDomain || (member && commit_->objects != nullptr &&
                                                  commit_->objects->allocated_end(*member) > ObjectOffset(0));
  const auto limit_ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(context_.watch->limit()).count());
  return needs_it && monotonic_ns() - commit_->began_ns > limit_ns;
}

void File::give_up_writes(StallDomain domain, const Status& failure, Deferred& deferred) {
  fail(failure);
  const auto give_up = [&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (chunk.state != CachedChunk::State::kWriting || chunk.drive != domain || chunk.given_up) return;
    chunk.given_up = true;
    context_.writes_in_flight.fetch_sub(1, std::memory_order_relaxed);
    if (domain == kTreeDomain) return;  // counted with the commit
    context_.counters[chunk.transfer.extent.member].write_errors.fetch_add(1, std::memory_order_relaxed);
  };
  for (CachedChunk* chunk : cache_.detached_in_transfer()) give_up(*chunk);
  // Flushes to other members too end for themselves: there is no commit left that they could belong to.
  cache_.for_each([&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (chunk.state != CachedChunk::State::kWriting) return;
    give_up(chunk);
    detach(chunk, deferred);
  });
  discard_dirty(deferred);
  if (commit_ != nullptr && phase_ == Phase::kDraining) return end_commit(error_, deferred);
  if (commit_ != nullptr && !commit_->given_up) {
    commit_->given_up = true;
    if (const std::optional<MemberIndex> member = fpfs::member_of(domain))
      context_.counters[*member].sync_errors.fetch_add(1, std::memory_order_relaxed);
    if (commit_->appending) {
      context_.counters.count_tree_error();
      context_.health.fail(failure.with_context(path()));
    }
    while (ControlRequest* request = commit_->requests.pop_front()) complete_with(deferred, *request, error_);
    phase_ = Phase::kSyncing;  // requests behind it are answered; flushes there are none of any more
  }
  run_controls(deferred);
}

}  // namespace fpfs
