#include "engine/store/background_pass.h"

#include <fcntl.h>

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/check/scan.h"
#include "engine/io/named_thread.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

constexpr auto kRateInterval = std::chrono::seconds(5);
constexpr double kRateSecondsMin = 0.1;
constexpr size_t kExtentsAtOnce = 32;
// So much lies between two chunks that a removal moves, and more.
constexpr uint64_t kStripesPassedBy = 8;

const char* word_for(PassState::Phase phase) {
  switch (phase) {
    case PassState::Phase::kRunning:
      return "is running";
    case PassState::Phase::kPaused:
      return "is paused";
    case PassState::Phase::kFinished:
      return "has finished";
    case PassState::Phase::kCancelled:
      return "was cancelled";
    default:
      return "was never started";
  }
}

// Whether a walk comes to `a` before `b`: names are compared directory by directory.
bool comes_before(const std::string& a, const std::string& b) {
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<int>(static_cast<unsigned char>(c)); };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [&](char x, char y) { return rank(x) < rank(y); });
}

// Two per member keep every drive busy; a small pool keeps most of its buffers for others.
unsigned choose_window(const Store& store) {
  const auto buffers = static_cast<unsigned>(store.options().buffer_memory / store.array().stripes().chunk_size);
  return std::clamp(2U * store.array().member_count(), 1U, std::max(1U, buffers / 8));
}

}  // namespace

const char* name_of(PassState::Phase phase) {
  constexpr const char* kNames[] = {"none", "running", "paused", "finished", "cancelled"};
  return kNames[static_cast<size_t>(phase)];
}

BackgroundPass::BackgroundPass(Store& store, PassVisitor& visitor, std::string name, Clock::duration save_interval)
    : store_(store),
      visitor_(visitor),
      name_(std::move(name)),
      save_interval_(save_interval),
      window_(choose_window(store)) {}

BackgroundPass::~BackgroundPass() {
  stop();
}

// --- commands --------------------------------------------------------------------------------------------------------

void BackgroundPass::open() {
  const MutexLock lock(commands_);
  if (store_.array().read_only()) return;
  keeps_state_ = true;
  Result<PassState> kept = visitor_.load();
  if (!kept.is_ok()) {
    log(LogLevel::kWarning, "what is kept of an earlier {} is given up: {}", name_, kept.status().message());
    return;
  }
  const bool was_running = kept->phase == Phase::kRunning;
  const uint64_t limit = kept->limit;
  {
    const MutexLock state_lock(mutex_);
    state_ = *std::move(kept);
  }
  if (was_running) run_thread(limit);
}

Status BackgroundPass::start(uint64_t limit) {
  const MutexLock lock(commands_);
  const Phase now = phase();
  if (now == Phase::kRunning || now == Phase::kPaused)
    return Status::error(StatusCode::kBusy, fmt::format("a {} {}; {} or cancel it first", name_, word_for(now),
                                                        now == Phase::kRunning ? "let it finish" : "resume"));
  {
    const MutexLock state_lock(mutex_);
    state_ = PassState();
    state_.started_seconds = ::time(nullptr);
    visitor_.begin_pass();
  }
  run_thread(limit);
  return Status::ok();
}

Status BackgroundPass::pause() {
  const MutexLock lock(commands_);
  if (phase() != Phase::kRunning) return refuse("pause");
  end_thread(Phase::kPaused);
  return Status::ok();
}

Status BackgroundPass::resume(std::optional<uint64_t> limit) {
  const MutexLock lock(commands_);
  const Phase now = phase();
  if (now == Phase::kRunning && limit) {
    const MutexLock state_lock(mutex_);
    state_.limit = *limit;
    return Status::ok();
  }
  if (now != Phase::kPaused) return refuse("resume");
  uint64_t before = 0;
  {
    const MutexLock state_lock(mutex_);
    before = state_.limit;
  }
  run_thread(limit.value_or(before));
  return Status::ok();
}

Status BackgroundPass::cancel() {
  const MutexLock lock(commands_);
  const Phase now = phase();
  if (now != Phase::kRunning && now != Phase::kPaused) return refuse("cancel");
  end_thread(Phase::kCancelled);
  return Status::ok();
}

void BackgroundPass::stop() {
  const MutexLock lock(commands_);
  end_thread(phase());
}

PassState::Phase BackgroundPass::phase() const {
  const MutexLock lock(mutex_);
  return state_.phase;
}

Status BackgroundPass::refuse(const char* verb) const {
  return Status::error(StatusCode::kInvalidArgument,
                       fmt::format("nothing to {}: the {} {}", verb, name_, word_for(phase())));
}

void BackgroundPass::run_thread(uint64_t limit) {
  if (thread_.joinable()) thread_.join();  // of a pass that ended by itself
  {
    const MutexLock lock(mutex_);
    stopping_ = false;
    note_.clear();
    state_.phase = Phase::kRunning;
    state_.limit = limit;
    run_began_ = Clock::now();
    rate_from_ = rate_next_ = {run_began_, state_.bytes};
    passed_by_ = 0;
    resumed_ = state_;
  }
  save();
  thread_ = start_thread("fpfs-" + name_, [this] { run(); });
}

// `phase`: what a pass that has not finished meanwhile is from now on.
void BackgroundPass::end_thread(Phase phase) {
  const bool was_there = thread_.joinable();
  if (was_there) {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  {
    const MutexLock lock(mutex_);
    const bool was_running = was_there && state_.phase == Phase::kRunning;
    if (!was_running && !(phase == Phase::kCancelled && state_.phase == Phase::kPaused)) return;
    state_ = current_state();
    state_.phase = phase;
    if (phase == Phase::kCancelled) state_.ended_seconds = ::time(nullptr);
  }
  save();
}

// With the time of this run counted in.
PassState BackgroundPass::current_state() const {
  PassState state = state_;
  if (state.phase == Phase::kRunning)
    state.active_ms =
        resumed_.active_ms +
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - run_began_).count());
  return state;
}

BackgroundPass::Report BackgroundPass::report(const std::function<void()>& also) const {
  const MutexLock lock(mutex_);
  if (also) also();
  Report report;
  report.state = current_state();
  report.note = note_;
  report.bytes_total = state_.bytes_total == 0 ? 0 : std::max(state_.bytes_total, state_.bytes);
  if (state_.phase != Phase::kRunning || passes_by()) return report;
  const Clock::time_point now = Clock::now();
  if (now - rate_next_.time >= kRateInterval) {
    rate_from_ = rate_next_;
    rate_next_ = {now, state_.bytes};
  }
  const double seconds = std::chrono::duration<double>(now - rate_from_.time).count();
  if (seconds > kRateSecondsMin)
    report.bytes_per_second = static_cast<double>(state_.bytes - rate_from_.bytes) / seconds;
  if (state_.bytes_total > 0 && report.bytes_per_second > 0)
    report.eta_seconds = static_cast<double>(report.bytes_total - state_.bytes) / report.bytes_per_second;
  return report;
}

// --- the pass --------------------------------------------------------------------------------------------------------

// From the beginning of the tree; the time counts on, and what was looked at counts once.
void BackgroundPass::begin_again() {
  linked_inodes_.clear();
  const MutexLock lock(mutex_);
  const uint64_t active_ms = resumed_.active_ms;
  resumed_ = PassState();
  resumed_.active_ms = active_ms;
  state_.files = state_.chunks = state_.bytes = 0;
  rate_from_ = rate_next_ = {Clock::now(), 0};
}

void BackgroundPass::run() {
  saved_ = paced_ = Clock::now();
  allowance_ = 0;
  linked_inodes_.clear();
  Status status = count_remaining();
  for (bool is_again = true; is_again && status.is_ok();) {
    status = walk_files(store_.storage(), store_.root(), [this](const FileEntry& entry) { return visit(entry); });
    const Result<bool> finished = status.is_ok() ? visitor_.finish() : status;
    status = finished.status();
    is_again = finished.is_ok() && *finished && !stopping();
    if (is_again) begin_again();
  }
  PassState ended;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;  // whoever stops it keeps the place
    state_ = current_state();
    if (status.is_ok()) {
      state_.phase = Phase::kFinished;
      state_.ended_seconds = ::time(nullptr);
      state_.position.clear();
    } else {
      state_.phase = Phase::kPaused;
      note_ = status.message();
    }
    ended = state_;
  }
  save();
  if (status.is_ok())
    visitor_.end_pass(ended);
  else
    log(LogLevel::kError, "{} paused: {}", name_, status.message());
}

// What lies ahead, from the ends of the sidecars: for the progress that is shown.
Status BackgroundPass::count_remaining() {
  std::unordered_set<uint64_t> seen;
  uint64_t bytes = 0;
  FPFS_RETURN_IF_ERROR(walk_files(store_.storage(), store_.root(), [&](const FileEntry& entry) -> Result<bool> {
    if (comes_before(entry.path, resumed_.position)) return !stopping();
    const Result<Store::Node> node = store_.lookup(entry.directory, entry.name);
    if (!node.is_ok()) return !stopping();
    if (is_further_name(node->attributes, seen)) return !stopping();
    const uint64_t size = static_cast<uint64_t>(node->attributes.st_blocks) * 512;
    bytes += size - std::min(size, entry.path == resumed_.position ? visited_before(node->handle.get(), size) : 0);
    return !stopping();
  }));
  const MutexLock lock(mutex_);
  state_.bytes_total = state_.bytes + bytes;
  return Status::ok();
}

// Of the file in which this run begins.
uint64_t BackgroundPass::visited_before(Handle node, uint64_t size) {
  if (resumed_.file == FileId()) return size;  // it begins behind it
  const Result<std::shared_ptr<File>> file = store_.open_file(node, false);
  if (!file.is_ok() || !is_where_it_was((**file).info())) return 0;
  uint64_t bytes = 0;
  for (ChunkIndex next(0); next < resumed_.next_chunk;) {
    const std::vector<File::MappedExtent> extents = (**file).map(next, kExtentsAtOnce);
    for (const File::MappedExtent& mapped : extents) {
      next = mapped.chunk;
      if (next < resumed_.next_chunk) bytes += mapped.extent.allocated();
      ++next;
    }
    if (extents.empty()) break;
  }
  return bytes;
}

bool BackgroundPass::is_where_it_was(const File::Info& info) const {
  return info.file_id == resumed_.file && info.generation == resumed_.generation;
}

bool BackgroundPass::is_further_name(const struct stat& attributes, std::unordered_set<uint64_t>& seen) const {
  return attributes.st_nlink > 1 && !seen.insert(attributes.st_ino).second;
}

Result<bool> BackgroundPass::visit(const FileEntry& entry) {
  if (stopping()) return false;
  if (comes_before(entry.path, resumed_.position)) return true;
  if (entry.path == resumed_.position && resumed_.file == FileId()) return true;
  const Result<Handle> opened = store_.storage().open_at(entry.directory, entry.name, O_PATH);
  if (!opened.is_ok()) return true;  // gone since the directory was listed
  const ScopedHandle node(store_.storage(), *opened);
  const Result<struct stat> attributes = store_.storage().fstat(*opened);
  if (!attributes.is_ok() || is_further_name(*attributes, linked_inodes_)) return true;
  const Result<std::shared_ptr<File>> file = store_.open_file(*opened, false);
  if (file.is_ok()) {
    if (!visit_file(entry, *opened, **file)) return false;
  } else {
    visitor_.visit_unopened(entry, file.status());
  }
  finish_file(entry.path);
  save_now_and_then();
  return true;
}

// False when it was stopped before the end; then the place is kept.
bool BackgroundPass::visit_file(const FileEntry& entry, Handle node, File& file) {
  const File::Info info = file.info();
  const bool is_resumed = entry.path == resumed_.position && is_where_it_was(info);
  ChunkIndex next = is_resumed ? resumed_.next_chunk : ChunkIndex(0);
  set_position(entry.path, info, next);
  const bool came_to_end = visit_chunks(entry, node, file, info, next);
  file_done(entry, file);
  if (!came_to_end) set_position(entry.path, info, next);
  return came_to_end;
}

// `next`: the first chunk that was not begun. False when it was stopped before.
bool BackgroundPass::visit_chunks(const FileEntry& entry, Handle node, File& file, const File::Info& info,
                                  ChunkIndex& next) {
  // Content that is kept in the sidecar counts as one piece.
  const bool has_inline_content = info.is_inline && info.sequence > 0;
  if (has_inline_content && !begin_chunk(entry, file, ChunkIndex(0), Extent(), round_up(info.stored_bytes, 512)))
    return false;
  for (;;) {
    const std::vector<File::MappedExtent> extents = file.map(next, kExtentsAtOnce);
    for (const File::MappedExtent& mapped : extents) {
      next = mapped.chunk;
      if (!begin_chunk(entry, file, mapped.chunk, mapped.extent, mapped.extent.allocated())) return false;
      ++next;
    }
    // A file that failed stays failed while someone holds it, and one that was removed keeps its space.
    const Result<struct stat> attributes = store_.storage().fstat(node);
    const bool is_gone = !attributes.is_ok() || attributes->st_nlink == 0 || !file.error().is_ok();
    if (extents.empty() || is_gone) return true;
    if (Clock::now() - saved_ >= save_interval_) {
      file_done(entry, file);
      set_position(entry.path, info, next);
      save_now_and_then();
    }
  }
}

// Has one chunk visited when its turn has come. False: stopped before.
bool BackgroundPass::begin_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent,
                                 uint64_t bytes) {
  if (!visitor_.wants_chunk(file, chunk, extent)) return pass_by(extent, bytes);
  stop_passing_by();
  if (!pace(bytes)) return false;
  {
    const MutexLock lock(mutex_);
    while (in_flight_ >= window_ && !stopping_) changed_.wait(mutex_);
    if (stopping_) return false;
    ++in_flight_;
  }
  visitor_.visit_chunk(entry, file, chunk, extent, [this, bytes, counts = extent.exists()] {
    const MutexLock lock(mutex_);
    if (counts) ++state_.chunks;
    state_.bytes += bytes;
    --in_flight_;
    changed_.notify_all();
  });
  return true;
}

bool BackgroundPass::pass_by(const Extent& extent, uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (extent.exists()) ++state_.chunks;
  state_.bytes += bytes;
  passed_by_ += bytes;
  return !stopping_;
}

// What is passed by costs nothing. Where that is much at once (what was done before the pass was begun again), it says
// nothing of the time that is left: the rate begins anew behind it.
void BackgroundPass::stop_passing_by() {
  const MutexLock lock(mutex_);
  if (passes_by()) rate_from_ = rate_next_ = {Clock::now(), state_.bytes};
  passed_by_ = 0;
}

bool BackgroundPass::passes_by() const {
  const StripeMap stripes = store_.array().stripes();
  return passed_by_ > kStripesPassedBy * stripes.member_count * stripes.chunk_size;
}

void BackgroundPass::file_done(const FileEntry& entry, File& file) {
  {
    const MutexLock lock(mutex_);
    while (in_flight_ > 0) changed_.wait(mutex_);
  }
  visitor_.file_done(entry, file);
}

// Waits until `bytes` may be visited at the limit in force. False: stopped meanwhile.
bool BackgroundPass::pace(uint64_t bytes) {
  const MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return false;
    if (state_.limit == 0) return true;
    const Clock::time_point now = Clock::now();
    const auto limit = static_cast<double>(state_.limit);
    // A tenth of a second may be caught up with, so that a sleep that took too long costs no rate.
    allowance_ = std::min(allowance_ + std::chrono::duration<double>(now - paced_).count() * limit, limit / 10);
    paced_ = now;
    if (allowance_ >= 0) {
      allowance_ -= static_cast<double>(bytes);
      return true;
    }
    changed_.wait_for(mutex_, std::chrono::duration<double>(std::min(-allowance_ / limit, 1.0)));
  }
}

// --- the place -------------------------------------------------------------------------------------------------------

void BackgroundPass::set_position(const std::string& path, const File::Info& info, ChunkIndex next_chunk) {
  const MutexLock lock(mutex_);
  state_.position = path;
  state_.file = info.file_id;
  state_.generation = info.generation;
  state_.next_chunk = next_chunk;
}

void BackgroundPass::finish_file(const std::string& path) {
  const MutexLock lock(mutex_);
  ++state_.files;
  state_.position = path;
  state_.file = FileId();
  state_.generation = Generation();
  state_.next_chunk = ChunkIndex(0);
}

void BackgroundPass::save_now_and_then() {
  if (Clock::now() - saved_ < save_interval_) return;
  saved_ = Clock::now();
  save();
}

// The array needs nothing of it: when it cannot be kept, the next mount starts from an older place.
void BackgroundPass::save() {
  if (!keeps_state_ || store_.read_only()) return;
  PassState state;
  {
    const MutexLock lock(mutex_);
    state = current_state();
  }
  const Status saved = visitor_.save(state);
  if (!saved.is_ok()) log(LogLevel::kWarning, "the place of the {} cannot be kept: {}", name_, saved.message());
}

bool BackgroundPass::stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

}  // namespace fpfs
