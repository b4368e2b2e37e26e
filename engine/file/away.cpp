// Content that is away: chunks of which the record has a checksum of the content, and a copy outside of the array has
// the bytes (Codec::kAway). They are fetched when they are needed, ahead of sequential readers as from the members, and
// written back like chunks that are healed (healing.cpp).
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/file/away_fetch.h"
#include "engine/file/file.h"
#include "engine/file/move_commit.h"

namespace fpfs {
namespace {

constexpr size_t kPathBytesMax = 4096;
// Some six seconds in all.
constexpr unsigned kFetchAttempts = 6;
constexpr std::chrono::milliseconds kFetchPause{100};

Extent away_extent(uint64_t checksum, uint64_t length, uint32_t epoch) {
  Extent extent;
  extent.codec = Codec::kAway;
  extent.checksum = checksum;
  extent.raw_length = extent.visible_length = static_cast<uint32_t>(length);
  extent.epoch = epoch;
  return extent;
}

// Not about this copy alone.
bool is_of_the_store(StatusCode code) {
  return code == StatusCode::kUnreachable || code == StatusCode::kWrongStore || code == StatusCode::kClockSkew ||
         code == StatusCode::kRefused || code == StatusCode::kPermission || code == StatusCode::kCancelled;
}

Status busy(const char* why) {
  return Status::error(StatusCode::kBusy, why);
}

}  // namespace

// --- fetching --------------------------------------------------------------------------------------------------------

std::string File::copied_at() const {
  std::shared_ptr<const ScopedHandle> sidecar;
  {
    MutexLock lock(mutex_);
    sidecar = sidecar_;
  }
  std::string at(kPathBytesMax, '\0');
  const Result<size_t> length =
      context_.storage().get_xattr(sidecar->get(), ChunkSource::kPathAttribute, std::as_writable_bytes(std::span(at)));
  at.resize(length.is_ok() ? *length : 0);
  if (!at.empty()) return at;
  return path_below_tree().value_or("");
}

// Chunks that lie behind each other come by one request, which costs the store, and who receives it, much less than one
// for each. Not beyond a multiple of fetch_run, where read_ahead() ends, too: so it is always the same ones.
bool File::is_next_of_run(const CachedChunk& last, const CachedChunk& next) const {
  return next.index == last.index + 1 && next.index.value() % context_.fetch_run != 0 &&
         last.transfer.extent.raw_length == context_.stripes.chunk_size;
}

void File::start_loads(SubmitList& loads) {
  std::vector<CachedChunk*> run;
  while (CachedChunk* chunk = loads.pop_front()) {
    if (!chunk->transfer.extent.is_away()) {
      context_.io->start(chunk->transfer);
      continue;
    }
    if (!run.empty() && !is_next_of_run(*run.back(), *chunk)) begin_fetch(std::exchange(run, {}));
    run.push_back(chunk);
  }
  if (!run.empty()) begin_fetch(run);
}

void File::begin_fetch(const std::vector<CachedChunk*>& run) {
  std::vector<std::shared_ptr<Fetch>> fetches;
  fetches.reserve(run.size());
  for (CachedChunk* const one : run) {
    CachedChunk& chunk = *one;
    const std::shared_ptr<File> file = std::move(chunk.keep);
    const std::shared_ptr<ObjectSet> objects = std::move(chunk.transfer.objects);
    const auto fetch = std::make_shared<Fetch>(
        Fetch{.chunk = chunk.index, .extent = chunk.transfer.extent, .into = chunk.buffer->data});
    fetch->is_in_run = run.size() > 1;
    fetch->done = [file, &chunk, objects](const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece) {
      const ChunkIndex index = chunk.index;
      const Extent extent = chunk.transfer.extent;  // the chunk may be gone behind finish_load()
      file->finish_load(chunk, status);
      if (status.is_ok()) file->write_back(index, extent, objects, piece, nullptr);
    };
    fetches.push_back(fetch);
  }
  context_.tasks.post([self = shared_from_this(), fetches = std::move(fetches)] { self->try_to_fetch(fetches); });
}

void File::read_away(ChunkTransfer& transfer, std::shared_ptr<const void> keep) {
  const auto fetch =
      std::make_shared<Fetch>(Fetch{.chunk = transfer.chunk, .extent = transfer.extent, .into = transfer.data});
  fetch->done = [&transfer, keep = std::move(keep)](const Status& status, const std::shared_ptr<ChunkHealer::Piece>&) {
    const std::shared_ptr<ObjectSet> objects = std::move(transfer.objects);
    transfer.done(transfer, *objects, status);
  };
  context_.tasks.post([self = shared_from_this(), fetch] { self->try_to_fetch({fetch}); });
}

// On a thread that may wait for the drive, which knows where the copy is.
void File::try_to_fetch(const std::vector<std::shared_ptr<Fetch>>& fetches) {
  ChunkSource::Wanted wanted{copied_at(), {}, {}, 0, {}, {}};
  {
    MutexLock lock(mutex_);
    wanted.file_id = content_.file_id();
    wanted.generation = content_.generation();
    wanted.sequence = log_.sequence;
  }
  std::vector<ChunkHealer::Asked> run;
  run.reserve(fetches.size());
  for (const std::shared_ptr<Fetch>& fetch : fetches) {
    wanted.chunk = fetch->chunk;
    wanted.extent = fetch->extent;
    run.push_back(
        {wanted, fetch->into,
         [self = shared_from_this(), fetch](const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece) {
           self->fetched(fetch, status, piece);
         }});
  }
  context_.healer->heal_run(std::move(run));
}

// A copy that is being moved is not where it was said to be; and bytes may be spoilt on their way.
void File::fetched(const std::shared_ptr<Fetch>& fetch, const Status& status,
                   const std::shared_ptr<ChunkHealer::Piece>& piece) {
  if (status.is_ok()) {
    context_.counters.chunks_fetched.fetch_add(1, std::memory_order_relaxed);
    return fetch->done(status, piece);
  }
  // Why there is no run says nothing of each chunk in it.
  if (std::exchange(fetch->is_in_run, false) && context_.healer->is_on())
    return context_.tasks.post([self = shared_from_this(), fetch] { self->try_to_fetch({fetch}); });
  if (status.code() == StatusCode::kNotFound && context_.healer->is_on() && fetch->attempt < kFetchAttempts)
    return context_.tasks.post_after(kFetchPause * (1 << fetch->attempt++),
                                     [self = shared_from_this(), fetch] { self->try_to_fetch({fetch}); });
  context_.counters.chunks_without_copy.fetch_add(1, std::memory_order_relaxed);
  const Status failure = Status::error(
      StatusCode::kIoError,
      fmt::format("{}, chunk {}: its content is in the store of the copies only, which does not give it: {}", path(),
                  fetch->chunk, status.message()));
  // While the store is away every read of every such file fails.
  const bool is_away = !context_.healer->is_on() || is_of_the_store(status.code());
  log_about(is_away ? "the store of the copies is away" : failure.message(), LogLevel::kError, "{}", failure.message());
  fetch->done(failure, nullptr);
}

// --- sending away ----------------------------------------------------------------------------------------------------

// Nothing of it is being changed, read from a member or on its way to one.
Status File::may_leave(uint64_t sequence) const {
  if (!error_.is_ok()) return error_;
  if (context_.array.read_only()) return Status::error(StatusCode::kReadOnly, "the array is read-only");
  if (log_.sequence != sequence || durable_ != sequence) return busy("it was committed again");
  if (!is_at_rest() || commit_ != nullptr || phase_ != Phase::kIdle || !gate_.is_quiet() || writes_in_flight_ > 0)
    return busy("it is being changed");
  if (!healing_.is_idle()) return busy("some of it is on its way to the members");
  bool is_read = false;
  cache_.for_each([&is_read](const CachedChunk& chunk) {
    is_read = is_read || chunk.dirty || chunk.state != CachedChunk::State::kReady;
  });
  return is_read ? busy("it is being read") : Status::ok();
}

void File::send_away(uint64_t sequence, std::span<const uint64_t> checksums, const AwayDone& done) {
  Status failure = make_sidecar_writable();
  const auto ended = [self = shared_from_this(), done](bool is_committed) {
    if (is_committed) return done(Status::ok());
    const Status error = self->error();
    done(error.is_ok() ? busy("somebody began to change it") : error);
  };
  auto commit = std::make_unique<MoveCommit>(shared_from_this());
  Deferred deferred;
  bool begins = false;
  {
    MutexLock lock(mutex_);
    if (failure.is_ok()) failure = may_leave(sequence);
    std::vector<std::pair<ChunkIndex, Extent>> leaving;
    if (failure.is_ok()) failure = find_leaving(checksums, leaving);
    begins = failure.is_ok() && !leaving.empty();
    for (const auto& [chunk, extent] : leaving)
      if (begins) set_extent(chunk, extent);
    if (begins) {
      content_.note_moved();
      keep_alive();
      commit->told.emplace_back(ended);
      gate_.add(commit.release()->request);
      run_controls(deferred);
    }
  }
  run(deferred);
  if (!begins) done(failure);
}

// Extents that are to be away, in place of those that are here. What is shown in part, or shorter than its place in the
// file, has no checksum of its own, and stays.
Status File::find_leaving(std::span<const uint64_t> checksums,
                          std::vector<std::pair<ChunkIndex, Extent>>& leaving) const {
  Status failure;
  content_.extents().for_each(
      ChunkIndex(0), [&](ChunkIndex chunk, const Extent& extent) FPFS_NO_THREAD_SAFETY_ANALYSIS {
        const FileOffset begin = offset_of(chunk, context_.stripes.chunk_size);
        const uint64_t length = content_.length_within(begin, context_.stripes.chunk_size);
        if (!extent.is_here() || extent.visible_length != extent.raw_length || extent.raw_length != length) return true;
        if (chunk.value() >= checksums.size())
          failure = Status::error(StatusCode::kInvalidArgument, fmt::format("the copy has no chunk {}", chunk));
        if (!failure.is_ok()) return false;
        leaving.emplace_back(chunk, away_extent(checksums[chunk.value()], length, content_.epoch()));
        return true;
      });
  return failure;
}

Status File::begin_away(uint64_t size, std::span<const uint64_t> checksums) {
  MutexLock lock(mutex_);
  const uint32_t chunk_size = context_.stripes.chunk_size;
  const bool is_new = log_.sequence == 0 && !content_.is_edited() && content_.size() == 0;
  if (!is_new || !writable_ || checksums.size() != context_.stripes.chunks_end(FileOffset(size)).value())
    return Status::error(StatusCode::kInvalidArgument, "only a new file begins with content that is away");
  if (!context_.indexes.fits(checksums.size())) return context_.indexes.refuse(checksums.size()).with_context(path());
  mark_modified({});
  content_.forget_inline();
  content_.set_end(FileOffset(size));
  if (size == 0) return Status::ok();
  content_.set_generation(context_.generations.claim(file_id(), content_.generation()));
  placement_.set_objects(std::make_shared<ObjectSet>(context_.storage(), context_.array, context_.spares.get(),
                                                     member_count_, content_.file_id(), content_.generation(), false));
  for (ChunkIndex chunk(0); chunk.value() < checksums.size(); ++chunk) {
    const uint64_t checksum = checksums[chunk.value()];
    const uint64_t length = content_.length_within(offset_of(chunk, chunk_size), chunk_size);
    if (checksum != 0) set_extent(chunk, away_extent(checksum, length, content_.epoch()));
  }
  return Status::ok();
}

}  // namespace fpfs
