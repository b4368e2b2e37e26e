#include "engine/store/scrub.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/check/scan.h"
#include "engine/io/named_thread.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

constexpr auto kSaveInterval = std::chrono::seconds(10);
constexpr auto kRateInterval = std::chrono::seconds(5);
constexpr size_t kExtentsAtOnce = 32;

Status refuse(const std::string& why) {
  return Status::error(StatusCode::kInvalidArgument, why);
}

const char* word_for(ScrubState::Phase phase) {
  switch (phase) {
    case ScrubState::Phase::kRunning:
      return "is running";
    case ScrubState::Phase::kPaused:
      return "is paused";
    case ScrubState::Phase::kFinished:
      return "has finished";
    case ScrubState::Phase::kCancelled:
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

Scrub::Scrub(Store& store) : store_(store), window_(choose_window(store)) {}

Scrub::~Scrub() {
  stop();
}

// --- commands --------------------------------------------------------------------------------------------------------

void Scrub::open() {
  const MutexLock lock(commands_);
  if (store_.array().read_only()) return;
  keeps_state_ = true;
  Result<ScrubState> kept = load_scrub_state(store_.storage(), store_.array());
  if (!kept.is_ok()) {
    log(LogLevel::kWarning, "what is kept of an earlier scrub is given up: {}", kept.status().message());
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

Status Scrub::start(uint64_t limit) {
  const MutexLock lock(commands_);
  const Phase now = phase();
  if (now == Phase::kRunning || now == Phase::kPaused)
    return Status::error(StatusCode::kBusy, fmt::format("a scrub {}; {} or cancel it first", word_for(now),
                                                        now == Phase::kRunning ? "let it finish" : "resume"));
  {
    const MutexLock state_lock(mutex_);
    state_ = ScrubState();
    state_.started_seconds = ::time(nullptr);
  }
  run_thread(limit);
  return Status::ok();
}

Status Scrub::pause() {
  const MutexLock lock(commands_);
  if (phase() != Phase::kRunning) return refuse(fmt::format("nothing to pause: the scrub {}", word_for(phase())));
  end_thread(Phase::kPaused);
  return Status::ok();
}

Status Scrub::resume(std::optional<uint64_t> limit) {
  const MutexLock lock(commands_);
  const Phase now = phase();
  if (now == Phase::kRunning && limit) {
    const MutexLock state_lock(mutex_);
    state_.limit = *limit;
    return Status::ok();
  }
  if (now != Phase::kPaused) return refuse(fmt::format("nothing to resume: the scrub {}", word_for(now)));
  uint64_t before = 0;
  {
    const MutexLock state_lock(mutex_);
    before = state_.limit;
  }
  run_thread(limit.value_or(before));
  return Status::ok();
}

Status Scrub::cancel() {
  const MutexLock lock(commands_);
  const Phase now = phase();
  if (now != Phase::kRunning && now != Phase::kPaused)
    return refuse(fmt::format("nothing to cancel: the scrub {}", word_for(now)));
  end_thread(Phase::kCancelled);
  return Status::ok();
}

void Scrub::stop() {
  const MutexLock lock(commands_);
  end_thread(phase());
}

ScrubState::Phase Scrub::phase() const {
  const MutexLock lock(mutex_);
  return state_.phase;
}

void Scrub::run_thread(uint64_t limit) {
  if (thread_.joinable()) thread_.join();  // of a pass that ended by itself
  {
    const MutexLock lock(mutex_);
    stopping_ = false;
    note_.clear();
    bytes_total_ = 0;
    state_.phase = Phase::kRunning;
    state_.limit = limit;
    run_began_ = Clock::now();
    rate_from_ = rate_next_ = {run_began_, state_.bytes};
    resumed_ = state_;
  }
  save();
  thread_ = start_thread("fpfs-scrub", [this] { run(); });
}

// `phase`: what a pass that has not finished meanwhile is from now on.
void Scrub::end_thread(Phase phase) {
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
ScrubState Scrub::current_state() const {
  ScrubState state = state_;
  if (state.phase == Phase::kRunning)
    state.active_ms =
        resumed_.active_ms +
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - run_began_).count());
  return state;
}

Scrub::Report Scrub::report() const {
  const MutexLock lock(mutex_);
  Report report;
  report.state = current_state();
  report.note = note_;
  report.bytes_total = std::max(bytes_total_, state_.bytes);
  if (state_.phase != Phase::kRunning) return report;
  const Clock::time_point now = Clock::now();
  if (now - rate_next_.time >= kRateInterval) {
    rate_from_ = rate_next_;
    rate_next_ = {now, state_.bytes};
  }
  const double seconds = std::chrono::duration<double>(now - rate_from_.time).count();
  if (seconds > 0) report.bytes_per_second = static_cast<double>(state_.bytes - rate_from_.bytes) / seconds;
  if (bytes_total_ > 0 && report.bytes_per_second > 0)
    report.eta_seconds = static_cast<double>(report.bytes_total - state_.bytes) / report.bytes_per_second;
  return report;
}

// --- the pass --------------------------------------------------------------------------------------------------------

void Scrub::run() {
  saved_ = paced_ = Clock::now();
  allowance_ = 0;
  linked_inodes_.clear();
  Status status = count_remaining();
  if (status.is_ok())
    status = walk_files(store_.storage(), store_.root(), [this](const FileEntry& entry) { return visit(entry); });
  drain();
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
  }
  save();
  const MutexLock lock(mutex_);
  if (status.is_ok())
    log(state_.errors == 0 ? LogLevel::kInfo : LogLevel::kError, "scrub finished: {} in {} files read, {} errors",
        format_size(state_.bytes), state_.files, state_.errors);
  else
    log(LogLevel::kError, "scrub paused: {}", note_);
}

// What lies ahead, from the ends of the sidecars: for the progress that is shown.
Status Scrub::count_remaining() {
  std::unordered_set<uint64_t> seen;
  uint64_t bytes = 0;
  FPFS_RETURN_IF_ERROR(walk_files(store_.storage(), store_.root(), [&](const FileEntry& entry) -> Result<bool> {
    if (comes_before(entry.path, resumed_.position)) return !stopping();
    const Result<Store::Node> node = store_.lookup(entry.directory, entry.name);
    if (!node.is_ok()) return !stopping();
    const ScopedHandle handle(store_.storage(), node->handle);
    if (!is_further_name(node->attributes, seen)) bytes += static_cast<uint64_t>(node->attributes.st_blocks) * 512;
    return !stopping();
  }));
  const MutexLock lock(mutex_);
  bytes_total_ = state_.bytes + bytes;
  return Status::ok();
}

bool Scrub::is_further_name(const struct stat& attributes, std::unordered_set<uint64_t>& seen) const {
  return attributes.st_nlink > 1 && !seen.insert(attributes.st_ino).second;
}

Result<bool> Scrub::visit(const FileEntry& entry) {
  if (stopping()) return false;
  if (comes_before(entry.path, resumed_.position)) return true;
  if (entry.path == resumed_.position && resumed_.file == 0) return true;
  const Result<Handle> opened = store_.storage().open_at(entry.directory, entry.name, O_PATH);
  if (!opened.is_ok()) return true;  // gone since the directory was listed
  const ScopedHandle node(store_.storage(), *opened);
  const Result<struct stat> attributes = store_.storage().fstat(*opened);
  if (!attributes.is_ok() || is_further_name(*attributes, linked_inodes_)) return true;
  const Result<std::shared_ptr<File>> file = store_.open_file(*opened, false);
  if (file.is_ok()) {
    if (!scrub_file(entry, *opened, **file)) return false;
  } else {
    report_unopened(entry, file.status());
  }
  finish_file(entry.path);
  save_now_and_then();
  return true;
}

// False when it was stopped before the end; then the place is kept.
bool Scrub::scrub_file(const FileEntry& entry, Handle node, File& file) {
  const File::Info info = file.info();
  const bool is_resumed =
      entry.path == resumed_.position && info.file_id == resumed_.file && info.generation == resumed_.generation;
  ChunkIndex next = is_resumed ? resumed_.next_chunk : 0;
  set_position(entry.path, info, next);
  // The file counts as one piece: stopped before, it is read from its beginning.
  if (info.is_inline && info.sequence > 0 && !scrub_inline(entry, file, round_up(info.stored_bytes, 512))) return false;
  for (;;) {
    const std::vector<File::MappedExtent> extents = file.map(next, kExtentsAtOnce);
    for (const File::MappedExtent& mapped : extents) {
      if (!scrub_extent(entry, file, mapped.chunk, mapped.extent)) {
        drain();
        report_failures(entry.path, file);
        set_position(entry.path, info, mapped.chunk);
        return false;
      }
      next = mapped.chunk + 1;
    }
    // A file that failed stays failed while someone holds it, and one that was removed keeps its space.
    const Result<struct stat> attributes = store_.storage().fstat(node);
    const bool is_gone = !attributes.is_ok() || attributes->st_nlink == 0 || !file.error().is_ok();
    if (extents.empty() || is_gone) break;
    if (Clock::now() - saved_ >= kSaveInterval) {
      drain();
      report_failures(entry.path, file);
      set_position(entry.path, info, next);
      save_now_and_then();
    }
  }
  drain();
  report_failures(entry.path, file);
  return true;
}

// Content that is kept in the sidecar. False: stopped before.
bool Scrub::scrub_inline(const FileEntry& entry, File& file, uint64_t bytes) {
  if (!begin_reading(entry, file, bytes)) {
    drain();
    return false;
  }
  file.verify_chunk(0, [this, bytes](const Status& status) { checked(0, Extent(), bytes, status); });
  return true;
}

// Starts reading one chunk when its turn has come. False: stopped before.
bool Scrub::scrub_extent(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent) {
  const uint64_t bytes = extent.allocated();
  if (!begin_reading(entry, file, bytes)) return false;
  file.verify_chunk(chunk, [=, this](const Status& status) { checked(chunk, extent, bytes, status); });
  return true;
}

// Waits for the turn of so many bytes. False: stopped before.
bool Scrub::begin_reading(const FileEntry& entry, const File& file, uint64_t bytes) {
  if (!pace(bytes)) return false;
  bool has_failures = false;
  {
    const MutexLock lock(mutex_);
    while (in_flight_ >= window_ && !stopping_) changed_.wait(mutex_);
    if (stopping_) return false;
    ++in_flight_;
    has_failures = !failures_.empty();
  }
  if (has_failures) report_failures(entry.path, file);
  return true;
}

// On the member's queue thread, on the executor, or inside verify_chunk().
void Scrub::checked(ChunkIndex chunk, const Extent& extent, uint64_t bytes, const Status& status) {
  const MutexLock lock(mutex_);
  if (extent.exists()) ++state_.chunks;
  state_.bytes += bytes;
  if (!status.is_ok()) failures_.push_back({chunk, extent, status});
  --in_flight_;
  changed_.notify_all();
}

void Scrub::drain() {
  const MutexLock lock(mutex_);
  while (in_flight_ > 0) changed_.wait(mutex_);
}

// Waits until `bytes` may be read at the limit in force. False: stopped meanwhile.
bool Scrub::pace(uint64_t bytes) {
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

// --- findings --------------------------------------------------------------------------------------------------------

void Scrub::add_damage(CheckError error) {
  log(LogLevel::kError, "scrub: {}: {}: {}", error.path, error.kind, error.detail);
  const MutexLock lock(mutex_);
  state_.add_damage(std::move(error));
}

void Scrub::report_unopened(const FileEntry& entry, const Status& failure) {
  if (failure.code() == StatusCode::kNotFound || failure.errno_value() == ESTALE) return;  // removed meanwhile
  const Result<ScannedFile> scanned = scan_file(store_.storage(), store_.array(), entry);
  if (!scanned.is_ok() || scanned->status.is_ok()) return;  // removed or replaced meanwhile
  const StatusCode code = scanned->status.code();
  const bool is_readable = code == StatusCode::kCorruption || code == StatusCode::kUnsupported;
  CheckError error;
  error.path = entry.path;
  error.kind = !is_readable ? "unreadable" : scanned->is_foreign ? "foreign-sidecar" : "sidecar";
  error.detail = scanned->status.message();
  add_damage(std::move(error));
}

void Scrub::report_failures(const std::string& path, const File& file) {
  std::vector<Failure> failures;
  {
    const MutexLock lock(mutex_);
    failures.swap(failures_);
  }
  if (failures.empty()) return;
  const File::Info info = file.info();
  for (const Failure& failure : failures) {
    CheckError error;
    error.path = path;
    error.kind = kind_of(failure, info);
    if (failure.extent.exists()) {
      error.chunk = static_cast<int64_t>(failure.chunk);
      error.member = failure.extent.member;
      error.object_offset = static_cast<int64_t>(failure.extent.slot * store_.array().stripes().chunk_size);
    }
    error.detail = failure.status.message();
    add_damage(std::move(error));
  }
}

std::string Scrub::kind_of(const Failure& failure, const File::Info& info) const {
  if (!failure.extent.exists()) return failure.status.code() == StatusCode::kCorruption ? "sidecar" : "unreadable";
  const Member& member = store_.array().member(failure.extent.member);
  if (!member.present) return "missing-member";
  if (failure.status.code() != StatusCode::kCorruption) return "unreadable";
  const std::string object =
      fmt::format("{:02x}/{}", info.file_id & 0xff, Array::object_name(info.file_id, info.generation));
  const Result<Handle> directory =
      store_.storage().open_at(member.objects, object.substr(0, 2), O_RDONLY | O_DIRECTORY);
  if (!directory.is_ok()) return "missing-object";
  const ScopedHandle closed_later(store_.storage(), *directory);
  const Result<struct stat> attributes = store_.storage().stat_at(*directory, object.substr(3));
  if (attributes.status().code() == StatusCode::kNotFound) return "missing-object";
  const uint64_t end = failure.extent.slot * store_.array().stripes().chunk_size + failure.extent.stored_length;
  const bool is_short = attributes.is_ok() && static_cast<uint64_t>(attributes->st_size) < end;
  return is_short ? "short-object" : "checksum";
}

// --- the place -------------------------------------------------------------------------------------------------------

void Scrub::set_position(const std::string& path, const File::Info& info, ChunkIndex next_chunk) {
  const MutexLock lock(mutex_);
  state_.position = path;
  state_.file = info.file_id;
  state_.generation = info.generation;
  state_.next_chunk = next_chunk;
}

void Scrub::finish_file(const std::string& path) {
  const MutexLock lock(mutex_);
  ++state_.files;
  state_.position = path;
  state_.file = 0;
  state_.generation = 0;
  state_.next_chunk = 0;
}

void Scrub::save_now_and_then() {
  if (Clock::now() - saved_ < kSaveInterval) return;
  saved_ = Clock::now();
  save();
}

// The array needs nothing of it: when it cannot be kept, the next mount starts from an older place.
void Scrub::save() {
  if (!keeps_state_ || store_.read_only()) return;
  ScrubState state;
  {
    const MutexLock lock(mutex_);
    state = current_state();
  }
  const Status saved = save_scrub_state(store_.storage(), store_.array(), state);
  if (!saved.is_ok()) log(LogLevel::kWarning, "the place of the scrub cannot be kept: {}", saved.message());
}

bool Scrub::stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

}  // namespace fpfs
