#include "engine/file/chunk_healer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "engine/codec/chunk_codec.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

// Another chunk would fare no better.
bool is_of_the_store(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnreachable:
    case StatusCode::kPermission:
    case StatusCode::kWrongStore:
    case StatusCode::kClockSkew:
    case StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

}  // namespace

ChunkHealer::Piece::Piece(std::shared_ptr<ChunkHealer> healer, uint32_t bytes)
    : healer_(std::move(healer)), data_(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, bytes))) {}

ChunkHealer::Piece::~Piece() {
  std::free(data_);
  healer_->end_one();
}

ChunkHealer::ChunkHealer(Environment& environment, TaskCounter& tasks, const Uuid& array_id, uint32_t chunk_size,
                         const Limits& limits)
    : environment_(environment), tasks_(tasks), array_id_(array_id), chunk_size_(chunk_size), limits_(limits) {}

uint64_t ChunkHealer::now_ns() const {
  const struct timespec now = environment_.now();
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void ChunkHealer::set_source(std::shared_ptr<ChunkSource> source) {
  const MutexLock lock(mutex_);
  is_on_.store(source != nullptr && !is_finished_, std::memory_order_release);
  source_.swap(source);  // the old one goes behind the lock
  away_until_ns_ = 0;
}

// --- asking ----------------------------------------------------------------------------------------------------------

void ChunkHealer::heal(ChunkSource::Wanted wanted, std::byte* into, Done done) {
  const auto job = std::make_shared<Job>(Job{std::move(wanted), into, std::move(done)});
  const uint64_t now = now_ns();
  Status refusal;
  {
    const MutexLock lock(mutex_);
    // A clock that was set back does not make the pause longer.
    const auto pause_ns = static_cast<uint64_t>(std::chrono::nanoseconds(limits_.pause).count());
    const bool is_away = now < away_until_ns_ && away_until_ns_ - now <= pause_ns;
    if (is_finished_)
      refusal = Status::error(StatusCode::kCancelled, "the array is being closed");
    else if (source_ == nullptr)
      refusal = Status::error(StatusCode::kNotFound, "no copies are kept");
    else if (is_away)
      refusal = away_;
    else
      waiting_.push_back(job);
  }
  if (!refusal.is_ok()) return answer(job, refusal);
  if (!job->wanted.extent.is_away()) limit_time(job);
  pump();
}

void ChunkHealer::limit_time(const std::shared_ptr<Job>& job) {
  if (limits_.timeout.count() > 0)
    environment_.executor().post_after(limits_.timeout, [weak = weak_from_this(), waits = std::weak_ptr<Job>(job)] {
      const std::shared_ptr<ChunkHealer> self = weak.lock();
      const std::shared_ptr<Job> late = waits.lock();
      if (self != nullptr && late != nullptr) self->expire(late);
    });
}

void ChunkHealer::pump() {
  for (;;) {
    std::shared_ptr<Job> job;
    std::shared_ptr<ChunkSource> source;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty() || in_use_ == limits_.at_once || source_ == nullptr) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      fetching_.push_back(job);
      ++in_use_;
      source = source_;
    }
    const auto piece = std::make_shared<Piece>(shared_from_this(), chunk_size_);
    if (piece->data() == nullptr) {
      answer(job, Status::from_errno(ENOMEM, "allocate a chunk"));
      continue;
    }
    if (job->wanted.extent.is_away()) limit_time(job);
    source->fetch(job->wanted, {piece->data(), chunk_size_},
                  [self = shared_from_this(), job, piece](const Result<ChunkSource::Found>& found) {
                    self->fetched(job, piece, found);
                  });
  }
}

void ChunkHealer::end_one() {
  {
    const MutexLock lock(mutex_);
    --in_use_;
    if (is_finished_ || waiting_.empty()) return;
  }
  pump();
}

// --- answers ---------------------------------------------------------------------------------------------------------

void ChunkHealer::fetched(const std::shared_ptr<Job>& job, const std::shared_ptr<Piece>& piece,
                          const Result<ChunkSource::Found>& found) {
  if (found.is_ok()) {
    const MutexLock lock(mutex_);
    if (is_finished_) return;  // it was answered, and nobody waits for tasks any more
    tasks_.post_work([self = shared_from_this(), job, piece, what = *found] { self->judge(job, piece, what); });
    return;
  }
  if (is_of_the_store(found.status())) leave_alone(found.status());
  answer(job, found.status());
}

void ChunkHealer::judge(const std::shared_ptr<Job>& job, const std::shared_ptr<Piece>& piece,
                        const ChunkSource::Found& found) {
  const Status proven = prove(job->wanted, *piece, found);
  if (!proven.is_ok()) return answer(job, proven);
  const uint32_t length = job->wanted.extent.visible_length;
  std::memset(piece->data() + length, 0, chunk_size_ - length);
  const Done done = take(*job);
  if (done == nullptr) return;  // too late
  if (job->into != nullptr) std::memcpy(job->into, piece->data(), length);
  done(Status::ok(), piece);
}

Status ChunkHealer::prove(const ChunkSource::Wanted& wanted, const Piece& piece,
                          const ChunkSource::Found& found) const {
  const Extent& extent = wanted.extent;
  const std::span<const std::byte> content(piece.data(), extent.raw_length);
  const bool is_whole = extent.visible_length == extent.raw_length;
  bool is_proven = false;
  if (extent.codec == Codec::kRaw && is_whole) {
    const uint64_t seed = chunk_seed(array_id_.data(), wanted.file_id, wanted.generation, wanted.chunk);
    is_proven = stored_checksum(Codec::kRaw, content, seed) == extent.checksum;
  } else if (extent.is_away()) {
    is_proven = hash_bytes(content) == extent.checksum;
  } else {
    is_proven = found.stored_mark != 0 &&
                (found.stored_mark == ChunkSource::mark_of(extent) || found.stored_mark == extent.checksum);
  }
  if (is_proven) return Status::ok();
  return Status::error(StatusCode::kNotFound, "the copy has another content there than the one that was committed");
}

void ChunkHealer::expire(const std::shared_ptr<Job>& job) {
  const Status late = Status::error(StatusCode::kUnreachable,
                                    fmt::format("the copy did not come within {} ms", limits_.timeout.count()));
  {
    const MutexLock lock(mutex_);
    if (job->done == nullptr) return;
  }
  leave_alone(late);
  answer(job, late);
}

// Whoever waits for a place would wait for nothing.
void ChunkHealer::leave_alone(const Status& why) {
  std::deque<std::shared_ptr<Job>> waiting;
  {
    const MutexLock lock(mutex_);
    away_ = why;
    away_until_ns_ = now_ns() + static_cast<uint64_t>(std::chrono::nanoseconds(limits_.pause).count());
    waiting.swap(waiting_);
  }
  for (const std::shared_ptr<Job>& job : waiting) answer(job, why);
}

ChunkHealer::Done ChunkHealer::take(Job& job) {
  const MutexLock lock(mutex_);
  std::erase_if(fetching_, [&job](const std::shared_ptr<Job>& one) { return one.get() == &job; });
  std::erase_if(waiting_, [&job](const std::shared_ptr<Job>& one) { return one.get() == &job; });
  return std::exchange(job.done, nullptr);
}

void ChunkHealer::answer(const std::shared_ptr<Job>& job, const Status& status) {
  if (const Done done = take(*job); done != nullptr) done(status, nullptr);
}

void ChunkHealer::finish() {
  Jobs jobs;
  {
    const MutexLock lock(mutex_);
    is_finished_ = true;
    is_on_.store(false, std::memory_order_release);
    jobs.assign(waiting_.begin(), waiting_.end());
    jobs.insert(jobs.end(), fetching_.begin(), fetching_.end());
  }
  for (const std::shared_ptr<Job>& job : jobs)
    answer(job, Status::error(StatusCode::kCancelled, "the array is being closed"));
}

void ChunkHealer::abandon() {
  std::vector<Done> dropped;  // these go behind the lock
  std::shared_ptr<ChunkSource> source;
  const MutexLock lock(mutex_);
  is_finished_ = true;
  is_on_.store(false, std::memory_order_release);
  for (const std::shared_ptr<Job>& job : waiting_) dropped.push_back(std::exchange(job->done, nullptr));
  for (const std::shared_ptr<Job>& job : fetching_) dropped.push_back(std::exchange(job->done, nullptr));
  waiting_.clear();
  fetching_.clear();
  source.swap(source_);
}

}  // namespace fpfs
