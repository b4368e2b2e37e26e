#include "engine/file/chunk_healer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
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

class ChunkHealer::Memory {
 public:
  // None to be had: data() is null.
  Memory(std::shared_ptr<ChunkHealer> healer, unsigned chunks)
      : healer_(std::move(healer)), chunks_(chunks), data_(healer_->take_memory(chunks)) {}
  ~Memory() { healer_->give_back_memory(data_, chunks_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }

 private:
  const std::shared_ptr<ChunkHealer> healer_;
  const unsigned chunks_;
  std::byte* const data_;
};

ChunkHealer::ChunkHealer(Environment& environment, TaskCounter& tasks, const Uuid& array_id, uint32_t chunk_size,
                         const Limits& limits)
    : environment_(environment), tasks_(tasks), array_id_(array_id), chunk_size_(chunk_size), limits_(limits) {}

ChunkHealer::~ChunkHealer() {
  for (const auto& [chunks, data] : free_) std::free(data);
}

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
  std::vector<Asked> one;
  one.push_back({std::move(wanted), into, std::move(done)});
  heal_run(std::move(one));
}

void ChunkHealer::heal_run(std::vector<Asked> run) {
  FPFS_CHECK(!run.empty() && run.size() <= run_max(), "no run is longer than there is memory for");
  const auto job = std::make_shared<Job>(Job{.run = std::move(run)});
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
  if (!refusal.is_ok()) return answer_all(job, refusal);
  if (!job->first().extent.is_away()) limit_time(job);
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
      if (waiting_.empty() || in_use_ + waiting_.front()->size() > limits_.at_once || source_ == nullptr) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      fetching_.push_back(job);
      in_use_ += job->size();
      source = source_;
    }
    start(*source, job);
  }
}

void ChunkHealer::start(ChunkSource& source, const std::shared_ptr<Job>& job) {
  const auto memory = std::make_shared<Memory>(shared_from_this(), job->size());
  if (memory->data() == nullptr) return answer_all(job, Status::from_errno(ENOMEM, "allocate a chunk"));
  const ChunkSource::Wanted& first = job->first();
  if (first.extent.is_away()) limit_time(job);
  auto done = [self = shared_from_this(), job, memory](const Result<ChunkSource::Found>& found) {
    self->fetched(job, memory, found);
  };
  if (job->size() == 1) return source.fetch(first, {memory->data(), chunk_size_}, std::move(done));
  const uint64_t bytes = uint64_t{job->size() - 1} * chunk_size_ + job->run.back().wanted.extent.raw_length;
  source.fetch_run(first, first.chunk.value() * chunk_size_, {memory->data(), bytes}, std::move(done));
}

// What has the right size is used again: new memory of the kernel's costs a fault for each page.
std::byte* ChunkHealer::take_memory(unsigned chunks) {
  std::vector<std::byte*> dropped;
  {
    const MutexLock lock(mutex_);
    const auto found =
        std::find_if(free_.begin(), free_.end(), [chunks](const auto& one) { return one.first == chunks; });
    if (found != free_.end()) {
      std::byte* const data = found->second;
      free_.erase(found);
      free_chunks_ -= chunks;
      return data;
    }
    while (in_use_ + free_chunks_ > limits_.at_once) {  // it counts as in use already
      free_chunks_ -= free_.back().first;
      dropped.push_back(free_.back().second);
      free_.pop_back();
    }
  }
  for (std::byte* const data : dropped) std::free(data);
  return static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, size_t{chunks} * chunk_size_));
}

void ChunkHealer::give_back_memory(std::byte* data, unsigned chunks) {
  std::vector<std::pair<unsigned, std::byte*>> dropped;
  bool goes_on = false;
  {
    const MutexLock lock(mutex_);
    in_use_ -= chunks;
    if (data != nullptr) {
      free_.emplace_back(chunks, data);
      free_chunks_ += chunks;
    }
    goes_on = !is_finished_ && !waiting_.empty();
    if (in_use_ == 0 && !goes_on) {
      dropped.swap(free_);
      free_chunks_ = 0;
    }
  }
  for (const auto& [size, memory] : dropped) std::free(memory);
  if (goes_on) pump();
}

// --- answers ---------------------------------------------------------------------------------------------------------

void ChunkHealer::fetched(const std::shared_ptr<Job>& job, const std::shared_ptr<Memory>& memory,
                          const Result<ChunkSource::Found>& found) {
  if (found.is_ok()) {
    const MutexLock lock(mutex_);
    if (is_finished_) return;  // it was answered, and nobody waits for tasks any more
    for (size_t at = 0; at < job->run.size(); ++at) {
      const auto piece = std::make_shared<Piece>(memory, memory->data() + at * chunk_size_);
      tasks_.post_work(
          [self = shared_from_this(), job, at, piece, what = *found] { self->judge(job, at, piece, what); });
    }
    return;
  }
  if (is_of_the_store(found.status())) leave_alone(found.status());
  answer_all(job, found.status());
}

void ChunkHealer::judge(const std::shared_ptr<Job>& job, size_t at, const std::shared_ptr<Piece>& piece,
                        const ChunkSource::Found& found) {
  const Asked& asked = job->run[at];
  const Status proven = prove(asked.wanted, *piece, found);
  if (!proven.is_ok()) return answer(job, at, proven);
  const uint32_t length = asked.wanted.extent.visible_length;
  std::memset(piece->data() + length, 0, round_up(length, kIoAlignment) - length);
  std::byte* const into = asked.into;
  const Done done = take(*job, at);
  if (done == nullptr) return;  // too late
  if (into != nullptr) std::memcpy(into, piece->data(), length);
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
    if (job->answered == job->size()) return;
  }
  leave_alone(late);
  answer_all(job, late);
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
  for (const std::shared_ptr<Job>& job : waiting) answer_all(job, why);
}

ChunkHealer::Done ChunkHealer::take(Job& job, size_t at) {
  const MutexLock lock(mutex_);
  Done done = std::exchange(job.run[at].done, nullptr);
  if (done == nullptr || ++job.answered < job.size()) return done;
  std::erase_if(fetching_, [&job](const std::shared_ptr<Job>& one) { return one.get() == &job; });
  std::erase_if(waiting_, [&job](const std::shared_ptr<Job>& one) { return one.get() == &job; });
  return done;
}

void ChunkHealer::answer(const std::shared_ptr<Job>& job, size_t at, const Status& status) {
  if (const Done done = take(*job, at); done != nullptr) done(status, nullptr);
}

void ChunkHealer::answer_all(const std::shared_ptr<Job>& job, const Status& status) {
  for (size_t at = 0; at < job->run.size(); ++at) answer(job, at, status);
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
    answer_all(job, Status::error(StatusCode::kCancelled, "the array is being closed"));
}

void ChunkHealer::abandon() {
  std::vector<Done> dropped;  // these go behind the lock
  std::shared_ptr<ChunkSource> source;
  const MutexLock lock(mutex_);
  is_finished_ = true;
  is_on_.store(false, std::memory_order_release);
  for (const std::shared_ptr<Job>& job : waiting_)
    for (Asked& one : job->run) dropped.push_back(std::exchange(one.done, nullptr));
  for (const std::shared_ptr<Job>& job : fetching_)
    for (Asked& one : job->run) dropped.push_back(std::exchange(one.done, nullptr));
  waiting_.clear();
  fetching_.clear();
  source.swap(source_);
}

}  // namespace fpfs
