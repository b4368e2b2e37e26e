// Recall: all that is away of a file comes to the members, to stay. Past the buffer pool, as nobody reads it: what was
// fetched goes to the drives from the memory that it came into.
#include <chrono>
#include <utility>
#include <vector>

#include "engine/file/away_fetch.h"
#include "engine/file/file.h"

namespace fpfs {
namespace {

// Chunks that somebody else is fetching, and those that did not stay, are looked at again.
constexpr std::chrono::milliseconds kBetweenPasses{200};
constexpr unsigned kPassesInVain = 10;

}  // namespace

struct File::Recall : std::enable_shared_from_this<Recall> {
  Recall(std::shared_ptr<File> of, std::function<bool()> asked, std::function<void(const Status&)> answer, Status may)
      : file(std::move(of)), is_wanted(std::move(asked)), done(std::move(answer)), failure(std::move(may)) {}

  void go_on();
  void ask(const std::vector<AwayChunk>& run);
  void came(const AwayChunk& chunk, const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece);
  void told(bool is_kept);
  void look_at_end();
  void end_pass();

  const std::shared_ptr<File> file;
  const std::function<bool()> is_wanted;
  const std::function<void(const Status&)> done;

  Mutex mutex;                             // never with the file's
  ChunkIndex next FPFS_GUARDED_BY(mutex);  // what lies before it was asked for in this pass
  bool is_asking FPFS_GUARDED_BY(mutex) = false;
  enum class Phase : uint8_t { kAsking, kAtEnd, kEnded };
  Phase phase FPFS_GUARDED_BY(mutex) = Phase::kAsking;  // of this pass
  unsigned fetching FPFS_GUARDED_BY(mutex) = 0;         // chunks
  uint64_t returning FPFS_GUARDED_BY(mutex) = 0;        // chunks that came and are not committed yet
  bool is_any_kept FPFS_GUARDED_BY(mutex) = false;      // in this pass
  bool is_any_refused FPFS_GUARDED_BY(mutex) = false;
  bool is_any_left_out FPFS_GUARDED_BY(mutex) = false;
  unsigned passes_in_vain FPFS_GUARDED_BY(mutex) = 0;
  Status failure FPFS_GUARDED_BY(mutex);
};

void File::recall(std::function<bool()> is_wanted, std::function<void(const Status&)> done) {
  Status may_stay;
  if (context_.array.read_only())
    may_stay = Status::error(StatusCode::kReadOnly, "the array is mounted read-only: nothing that is fetched stays");
  const auto recall =
      std::make_shared<Recall>(shared_from_this(), std::move(is_wanted), std::move(done), std::move(may_stay));
  context_.tasks.post([recall] { recall->go_on(); });
}

// What is away from `next` on, of one run (start_loads()); `next` moves behind it. What is on its way already, to a
// reader or to its member, is left out, which `leaves_out` becomes true for. Empty: there is nothing up to the end.
std::vector<File::AwayChunk> File::next_away(ChunkIndex& next, bool& leaves_out) {
  std::vector<AwayChunk> run;
  MutexLock lock(mutex_);
  ChunkIndex behind = next;
  content_.extents().for_each(next, [&](ChunkIndex chunk, const Extent& extent) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    const bool goes_on = run.empty() || (chunk == run.back().chunk + 1 && chunk.value() % context_.fetch_run != 0 &&
                                         run.back().extent.raw_length == context_.stripes.chunk_size);
    if (!goes_on) return false;
    const CachedChunk* const cached = cache_.find(chunk);
    const bool is_loading = cached != nullptr && cached->state == CachedChunk::State::kLoading;
    Healing::Told nobody;
    const bool is_wanted = extent.is_away() && !is_loading && !healing_.join(chunk, nobody);
    if (!is_wanted && !run.empty()) return false;
    leaves_out |= extent.is_away() && !is_wanted;
    behind = chunk + 1;
    if (is_wanted) run.push_back({chunk, extent, placement_.objects()});
    return true;
  });
  next = run.empty() ? context_.stripes.chunks_end(content_.end()) : behind;
  return run;
}

bool File::is_any_away() const {
  MutexLock lock(mutex_);
  bool is_any = false;
  content_.extents().for_each(ChunkIndex(0), [&is_any](ChunkIndex, const Extent& extent) {
    is_any = extent.is_away();
    return !is_any;
  });
  return is_any;
}

// One thread at a time asks, so that runs are asked for in their order.
void File::Recall::go_on() {
  for (;;) {
    ChunkIndex from;
    {
      const MutexLock lock(mutex);
      if (is_asking || phase != Phase::kAsking || fetching >= file->context_.healer->at_once()) return;
      is_asking = true;
      from = next;
    }
    // Who is asked may be gone once `done` was told, which is not before this.
    const bool goes_on = is_wanted == nullptr || is_wanted();
    bool leaves_out = false;
    const std::vector<AwayChunk> run = file->next_away(from, leaves_out);
    {
      const MutexLock lock(mutex);
      is_asking = false;
      next = from;
      is_any_left_out |= leaves_out;
      if (!goes_on && failure.is_ok())
        failure = Status::error(StatusCode::kCancelled, "nobody waits for what is fetched");
      if (run.empty() || is_any_refused || !failure.is_ok()) phase = Phase::kAtEnd;
      if (phase == Phase::kAtEnd) break;
      fetching += static_cast<unsigned>(run.size());
    }
    ask(run);
  }
  look_at_end();
}

void File::Recall::ask(const std::vector<AwayChunk>& run) {
  std::vector<std::shared_ptr<Fetch>> fetches;
  fetches.reserve(run.size());
  for (const AwayChunk& chunk : run) {
    const auto fetch = std::make_shared<Fetch>(Fetch{.chunk = chunk.chunk, .extent = chunk.extent});
    fetch->is_in_run = run.size() > 1;
    fetch->done = [self = shared_from_this(), chunk](const Status& status,
                                                     const std::shared_ptr<ChunkHealer::Piece>& piece) {
      self->came(chunk, status, piece);
    };
    fetches.push_back(fetch);
  }
  file->try_to_fetch(fetches);
}

void File::Recall::came(const AwayChunk& chunk, const Status& status,
                        const std::shared_ptr<ChunkHealer::Piece>& piece) {
  {
    const MutexLock lock(mutex);
    --fetching;
    if (status.is_ok()) ++returning;
    if (!status.is_ok() && failure.is_ok()) failure = status;
  }
  if (status.is_ok())
    file->write_back(chunk.chunk, chunk.extent, chunk.objects, piece,
                     [self = shared_from_this()](bool is_kept) { self->told(is_kept); });
  // Not on a thread of the workers: who asks may wait for the drive of the names.
  file->context_.tasks.post([self = shared_from_this()] {
    self->go_on();
    self->look_at_end();
  });
}

void File::Recall::told(bool is_kept) {
  {
    const MutexLock lock(mutex);
    --returning;
    is_any_kept |= is_kept;
    is_any_refused |= !is_kept;
  }
  look_at_end();
}

void File::Recall::look_at_end() {
  {
    const MutexLock lock(mutex);
    if (phase != Phase::kAtEnd || fetching > 0 || returning > 0) return;
    phase = Phase::kEnded;
  }
  file->context_.tasks.post([self = shared_from_this()] { self->end_pass(); });
}

void File::Recall::end_pass() {
  const bool is_over = !file->is_any_away();
  Status status;
  {
    const MutexLock lock(mutex);
    // What a reader waits for comes when it comes.
    passes_in_vain = is_any_kept || is_any_left_out ? 0 : passes_in_vain + 1;
    is_any_kept = is_any_refused = is_any_left_out = false;
    next = ChunkIndex(0);
    if (!is_over) status = failure;
    if (!is_over && status.is_ok() && passes_in_vain == kPassesInVain)
      status = Status::error(StatusCode::kBusy,
                             "it was fetched, and does not stay on the drives: they are full, or it is being written");
  }
  if (is_over || !status.is_ok()) return done(status);
  {
    const MutexLock lock(mutex);
    phase = Phase::kAsking;
  }
  file->context_.tasks.post_after(kBetweenPasses, [self = shared_from_this()] { self->go_on(); });
}

}  // namespace fpfs
