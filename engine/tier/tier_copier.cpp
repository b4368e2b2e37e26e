#include "engine/tier/tier_copier.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {

Result<std::unique_ptr<TierCopier>> TierCopier::create(Environment& environment, Store& store, ObjectStore& objects,
                                                       const TierCopyOptions& options) {
  const uint32_t chunk_size = store.array().stripes().chunk_size;
  const uint64_t memory = round_down(options.memory, chunk_size);
  const uint64_t least = round_up(objects.part_size_min(), chunk_size);
  if (memory < 4 * uint64_t{chunk_size} || least > memory / 2)
    return Status::error(
        StatusCode::kInvalidArgument,
        fmt::format("{} of memory for copies are too little for {}: at least {}", format_size(options.memory),
                    objects.describe(), format_size(2 * std::max<uint64_t>(least, 2 * uint64_t{chunk_size}))));
  const uint64_t wanted = std::min(options.part_size, objects.part_size_max());
  const uint64_t part_size = std::clamp(round_down(wanted, chunk_size), std::max<uint64_t>(least, chunk_size),
                                        memory / 2 / chunk_size * chunk_size);
  return std::unique_ptr<TierCopier>(
      new TierCopier(std::make_shared<Impl>(environment, store, objects, options, part_size)));
}

TierCopier::~TierCopier() {
  impl_->end();
}

void TierCopier::open() {
  impl_->open();
}

void TierCopier::committed(uint64_t inode, uint64_t sequence, bool is_moved) {
  impl_->committed(inode, sequence, is_moved);
}

void TierCopier::changed(const Store::NameEvent& event) {
  impl_->changed(event);
}

void TierCopier::scan() {
  impl_->scan();
}

void TierCopier::wait_for(const std::string& path, Done done) {
  impl_->wait_for(path, std::move(done));
}

void TierCopier::wait_for_commit(uint64_t inode, uint64_t sequence, Done done) {
  impl_->wait_for_commit(inode, sequence, std::move(done));
}

void TierCopier::wait_for_all(const Done& done) {
  impl_->wait_for_all(done);
}

bool TierCopier::look(const std::string& path, uint64_t since_ns, std::function<void()> done) {
  return impl_->look(path, since_ns, std::move(done));
}

bool TierCopier::shows_others() const {
  return impl_->shows_others();
}

TierCopyStatus TierCopier::status() const {
  return impl_->status();
}

uint64_t TierCopier::progress() const {
  return impl_->progress();
}

bool TierCopier::is_copying(uint64_t inode) const {
  return impl_->is_copying(inode);
}

void TierCopier::content_is_away() {
  impl_->content_is_away();
}

void TierCopier::set_rate(uint64_t bytes_per_second) {
  impl_->set_rate(bytes_per_second);
}

void TierCopier::hold(bool holds, std::chrono::seconds most) {
  impl_->hold(holds, most);
}

void TierCopier::stop(std::function<void()> done) {
  impl_->stop(std::move(done));
}

void TierCopier::Impl::open() {
  is_open_.store(true);
  scan();
  pump();
}

// --- Impl: time and tasks --------------------------------------------------------------------------------------------

TierCopier::Impl::Impl(Environment& environment, Store& store, ObjectStore& objects, const TierCopyOptions& options,
                       uint64_t part_size)
    : environment_(environment),
      store_(store),
      objects_(objects),
      options_(options),
      part_size_(part_size),
      place_(objects.describe()),
      noted_store_(options.store_id.empty() ? place_ : options.store_id),
      memory_(options.memory, store.array().stripes().chunk_size, options.connections),
      pace_(options.rate),
      shown_(store, noted_store_, options.named),
      lost_(options.lost != nullptr ? options.lost : std::make_shared<TierLost>(store, noted_store_)) {
  if (!options.shares) return;
  content_is_away();
  store.has_others();
}

TierTools TierCopier::Impl::tools() {
  return {environment_, objects_, memory_, pace_, *this, bytes_sent_, store_.array().stripes().chunk_size, part_size_};
}

uint64_t TierCopier::Impl::now_ns() const {
  const struct timespec now = environment_.now();
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool TierCopier::Impl::is_stopping() const {
  return stopping_.load();
}

// Half of it is certain, so that a store that has just failed is left alone; half is drawn, so that machines that
// failed together do not come back together.
std::chrono::milliseconds TierCopier::Impl::pause(unsigned attempt) {
  const auto first = static_cast<uint64_t>(std::max<int64_t>(1, options_.pause_first.count()));
  const auto most = std::max(first, static_cast<uint64_t>(std::max<int64_t>(1, options_.pause_max.count())));
  const uint64_t limit = std::min(most, first << std::min(attempt > 0 ? attempt - 1 : 0, 20U));
  return std::chrono::milliseconds(limit / 2 + environment_.random_u64() % (limit - limit / 2 + 1));
}

void TierCopier::Impl::after(std::chrono::milliseconds delay, std::function<void()> task) {
  uint64_t number = 0;
  bool is_now = false;
  {
    const MutexLock lock(mutex_);
    is_now = stopping_.load();
    number = ++next_later_;
    if (!is_now) later_[number] = task;
  }
  if (is_now) return environment_.executor().post(std::move(task));
  environment_.executor().post_after(delay, [weak = weak_from_this(), number] {
    const Self self = weak.lock();
    if (self == nullptr) return;
    std::function<void()> due;
    {
      const MutexLock lock(self->mutex_);
      const auto found = self->later_.find(number);
      if (found == self->later_.end()) return;
      due = std::move(found->second);
      self->later_.erase(found);
    }
    due();
  });
}

void TierCopier::Impl::begin_task() {
  const MutexLock lock(mutex_);
  ++tasks_;
}

// On the executor; the copier does not end before it.
void TierCopier::Impl::post(std::function<void(Impl&)> task) {
  begin_task();
  environment_.executor().post([self = shared_from_this(), task = std::move(task)] {
    task(*self);
    self->task_ended();
  });
}

void TierCopier::Impl::task_ended() {
  std::function<void()> stopped;
  {
    const MutexLock lock(mutex_);
    --tasks_;
    if (stopping_.load() && tasks_ == 0 && copying_.empty()) {
      stopped = std::exchange(stopped_, nullptr);
      ended_.notify_all();
    }
  }
  if (stopped != nullptr) stopped();
}

// --- Impl: what waits ------------------------------------------------------------------------------------------------

// False: there are too many.
bool TierCopier::Impl::add(TierWaiting file) {
  if (const auto failed = failed_.find(file.path); failed != failed_.end()) {
    // Of two files that were at one path: whatever is there now.
    if (file.inode != failed->second.inode) file.inode = 0;
    failed->second = merge(failed->second, std::move(file));
    return true;
  }
  if (!queue_.contains(file) && queue_.size() >= options_.waiting_max) return false;
  queue_.add(std::move(file));
  return true;
}

// Others see a file only in a directory that the store knows.
bool TierCopier::Impl::waits_for_directory(const std::string& path) const {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string directory = path.substr(0, slash + 1);
    if (queue_.contains({0, directory}) || copying_.contains(directory)) return true;
  }
  return false;
}

// One at a time writes an object, and one at a time works for a file. In some stores a file is in the way of whatever
// is in a directory of that name.
bool TierCopier::Impl::may_begin(const TierWaiting& file) const {
  if (options_.shares && file.inode != 0 && waits_for_directory(file.path)) return false;
  const auto is_in_way = [](const std::string& of, const std::string& path) {
    const std::string_view name = std::string_view(of).substr(0, of.size() - (of.ends_with('/') ? 1 : 0));
    return path.starts_with(name) && (path.size() == name.size() || (path[name.size()] == '/' && !of.ends_with('/')) ||
                                      path.size() == name.size() + 1);
  };
  return std::none_of(copying_.begin(), copying_.end(), [&](const auto& copying) {
    const TierWaiting& other = copying.second;
    return is_in_way(other.path, file.path) || (other.inode == file.inode && file.inode != 0) ||
           other.from == file.path || (!file.from.empty() && other.path == file.from);
  });
}

void TierCopier::Impl::hold(bool holds, std::chrono::seconds most) {
  {
    const MutexLock lock(mutex_);
    held_until_ns_ = holds ? now_ns() + static_cast<uint64_t>(std::chrono::nanoseconds(most).count()) : 0;
  }
  if (!holds) return post([](Impl& self) { self.pump(); });
  after(most, [weak = weak_from_this()] {
    if (const Self later = weak.lock()) later->pump();
  });
}

unsigned TierCopier::Impl::jobs_max() const {
  if (stopping_.load()) return 0;
  const bool is_waited_for = !waiters_.empty() || !everything_.empty() || !looks_.empty();
  if (now_ns() < held_until_ns_ && !is_waited_for) return 0;
  if (away_attempts_ > 0) return may_try_ ? 1 : 0;
  return std::max(options_.connections, 1U);
}

void TierCopier::Impl::pump() {
  if (!is_open_.load()) return;
  std::vector<std::shared_ptr<Job>> jobs;
  bool scans = false;
  Calls calls;
  {
    const MutexLock lock(mutex_);
    while (copying_.size() < jobs_max()) {
      std::optional<TierWaiting> next;
      // What may be gone here makes room there.
      if (is_full_)
        next = queue_.take([this](const TierWaiting& file)
                               FPFS_NO_THREAD_SAFETY_ANALYSIS { return file.inode == 0 && may_begin(file); });
      if (!next.has_value())
        next = queue_.take([this](const TierWaiting& file) FPFS_NO_THREAD_SAFETY_ANALYSIS { return may_begin(file); });
      if (!next.has_value()) break;
      may_try_ = false;
      copying_[next->path] = *next;
      jobs.push_back(std::make_shared<Job>());
      jobs.back()->begun_at = next->path;
      jobs.back()->file = *std::move(next);
    }
    if (scan_waits_ && queue_.size() <= options_.waiting_max / 2 && !stopping_.load()) {
      scan_waits_ = false;
      scans = true;
    }
    if (scan_is_due_ && !scan_is_scheduled_ && !stopping_.load()) {
      scan_is_due_ = false;
      scan_is_scheduled_ = true;
      // Soon when somebody waits for it.
      const bool is_awaited = !everything_.empty() && away_attempts_ == 0;
      calls.push_back([self = shared_from_this(), is_awaited] {
        self->after(is_awaited ? self->options_.pause_first : self->options_.pause_max,
                    [weak = self->weak_from_this()] {
                      if (const Self later = weak.lock()) later->scan();
                    });
      });
    }
    look_whether_idle(calls);
  }
  for (const std::shared_ptr<Job>& job : jobs)
    environment_.executor().post([self = shared_from_this(), job] { self->begin(job); });
  if (scans) post([](Impl& self) { self.scan_some(); });
  for (const auto& call : calls) call();
}

// --- Impl: what has ended --------------------------------------------------------------------------------------------

void TierCopier::Impl::end_job(const std::shared_ptr<Job>& job, Ending ending, const Status& status) {
  TierWaiting file = job->file;
  file.sequence = std::max(file.sequence, job->note.sequence);
  job->opened = nullptr;
  Calls calls;
  {
    const MutexLock lock(mutex_);
    copying_.erase(job->begun_at);
    ++tasks_;
    // Where its copy was before, nothing may be any more.
    const bool has_copy = ending == Ending::kCopied || ending == Ending::kIsCopied;
    if ((has_copy || ending == Ending::kRemoved) && job->lost != 0) lost_->forget(place_of(job->begun_at), job->lost);
    if (has_copy && job->note.manifest_tag != 0) note_seen(job->note.place, job->note.manifest_tag);
    const std::string left = std::exchange(has_copy ? file.from : job->left, {});
    TierWaiting where_it_was{0, left, 0, 0, now_ns()};
    where_it_was.was_here = true;
    if (!left.empty() && follows() && !add(std::move(where_it_was))) scan_is_due_ = true;
    if ((has_copy || ending == Ending::kBroughtBack) && file.inode != 0 && strays_.settle(file.inode, file.path))
      unblock();
    settle(std::move(file), ending, status, calls);
    if (ending != Ending::kLooksBelow) end_looks(job->begun_at, calls);
  }
  for (const auto& call : calls) call();
  pump();
  task_ended();
}

void TierCopier::Impl::settle(TierWaiting file, Ending ending, const Status& status, Calls& calls) {
  const bool reaches_store = ending == Ending::kCopied || ending == Ending::kRemoved || ending == Ending::kRefused;
  if (reaches_store && away_attempts_ > 0) {
    log(LogLevel::kInfo, "tier: {} takes copies again", place_);
    away_attempts_ = 0;
  }
  take_in(std::move(file), ending, status, calls);
  // With nothing left to try, nobody would find out that it is there again.
  if (queue_.size() == 0 && copying_.empty() && failed_.empty() && blocked_.empty()) away_attempts_ = 0;
  if (away_attempts_ > 0 && !may_try_ && !try_is_scheduled_) schedule_try(calls);
}

void TierCopier::Impl::take_in(TierWaiting file, Ending ending, const Status& status, Calls& calls) {
  const uint64_t inode = file.inode;
  switch (ending) {
    case Ending::kCopied:
      is_full_ = false;
      if (file.no_room > 0) queue_.forget_no_room();
      [[fallthrough]];
    case Ending::kIsCopied:
    case Ending::kRemoved:
    case Ending::kWaits:
      return tell_waiters(inode, file.sequence, Status::ok(), calls);
    case Ending::kGone:
      return tell_waiters(inode, UINT64_MAX,
                          Status::error(StatusCode::kNotFound, file.path + " is gone, or nothing of it is durable"),
                          calls);
    case Ending::kMoved:
    case Ending::kBroughtBack:
      return add_again(std::move(file));
    case Ending::kLost:
      scan_is_due_ = true;
      return tell_waiters(inode, UINT64_MAX, Status::error(StatusCode::kNotFound, file.path + " was moved or removed"),
                          calls);
    case Ending::kStoreFails:
      is_full_ = status.code() == StatusCode::kNoSpace;
      if (is_full_) ++file.no_room;
      add_again(std::move(file));
      return store_failed(status);
    case Ending::kBlocked:
      return block(std::move(file));
    case Ending::kRefused:
      if (status.code() == StatusCode::kExists && follows() && !file.was_refused) return clear_way(std::move(file));
      [[fallthrough]];
    case Ending::kFails:
      tell_waiters(inode, UINT64_MAX, status, calls);
      return file_failed(std::move(file), status, calls);
    case Ending::kLooksBelow:
    case Ending::kCancelled:
      return;
  }
}

// What was told of it meanwhile is newer.
void TierCopier::Impl::add_again(TierWaiting file) {
  if (std::optional<TierWaiting> newer = queue_.take(file)) file = merge(file, *std::move(newer));
  if (!add(std::move(file))) scan_is_due_ = true;
}

// What was a directory before, or a file, is removed first.
void TierCopier::Impl::clear_way(TierWaiting file) {
  const uint64_t now = now_ns();
  const std::string& path = file.path;
  bool fits = true;
  const auto clear = [&](std::string at) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    TierWaiting in_way{0, std::move(at), 0, 0, now};
    in_way.is_in_way = true;
    fits &= add(std::move(in_way));
  };
  clear(path.ends_with('/') ? path.substr(0, path.size() - 1) : path + "/");
  for (size_t slash = path.find('/'); slash != std::string::npos && slash + 1 < path.size();
       slash = path.find('/', slash + 1))
    clear(path.substr(0, slash));
  if (!fits) scan_is_due_ = true;
  file.was_refused = true;
  file.since_ns = now;
  add_again(std::move(file));
}

void TierCopier::Impl::note_failure(const Status& status) {
  ++counted_.errors;
  counted_.last_error = status.message();
  counted_.last_error_s = now_s();
}

void TierCopier::Impl::store_failed(const Status& status) {
  note_failure(status);
  if (away_attempts_ > 0) return;
  away_attempts_ = 1;
  log_about("takes no copies: " + place_, LogLevel::kWarning,
            "tier: {} does not take copies, they wait until it does: {}", place_, status.message());
}

void TierCopier::Impl::schedule_try(Calls& calls) {
  try_is_scheduled_ = true;
  const auto wait = pause(away_attempts_++);
  const auto try_again = [weak = weak_from_this()] {
    const Self self = weak.lock();
    if (self == nullptr) return;
    {
      const MutexLock lock(self->mutex_);
      self->try_is_scheduled_ = false;
      self->may_try_ = true;
    }
    self->pump();
  };
  calls.push_back([self = shared_from_this(), wait, try_again] { self->after(wait, try_again); });
}

void TierCopier::Impl::file_failed(TierWaiting file, const Status& status, Calls& calls) {
  note_failure(status);
  log(LogLevel::kError, "tier: the copy of {} is not up to date, which is tried again in {} s: {}", file.path,
      options_.failed_pause.count() / 1000, status.message());
  // What was told of it meanwhile is newer.
  if (std::optional<TierWaiting> newer = queue_.take(file)) file = merge(file, *std::move(newer));
  const std::string path = file.path;
  failed_[path] = std::move(file);
  const auto try_again = [weak = weak_from_this(), path] {
    if (const Self self = weak.lock()) self->try_failed_again(path);
  };
  calls.push_back([self = shared_from_this(), try_again] { self->after(self->options_.failed_pause, try_again); });
}

void TierCopier::Impl::try_failed_again(const std::string& path) {
  {
    const MutexLock lock(mutex_);
    const auto found = failed_.find(path);
    if (found == failed_.end()) return;
    queue_.add(std::move(found->second));
    failed_.erase(found);
  }
  pump();
}

void TierCopier::Impl::tell_waiters(uint64_t inode, uint64_t sequence, const Status& status, Calls& calls) {
  const auto [begin, end] = waiters_.equal_range(inode);
  for (auto at = begin; at != end;) {
    if (at->second.sequence > sequence) {
      ++at;
      continue;
    }
    calls.push_back([done = std::move(at->second.done), status] { done(status); });
    at = waiters_.erase(at);
  }
}

void TierCopier::Impl::look_whether_idle(Calls& calls) {
  if (everything_.empty() || is_scanning_ || queue_.size() > 0 || !copying_.empty() || !blocked_.empty()) return;
  const Status status =
      failed_.empty()
          ? refusal_
          : Status::error(StatusCode::kIoError, fmt::format("{} cannot be copied, the last one because of: {}",
                                                            format_count(failed_.size(), "file"), counted_.last_error));
  std::erase_if(everything_, [&](Everything& waits) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (waits.scan > scans_begun_ || scan_is_due_ || scan_is_scheduled_) return false;
    calls.push_back([done = std::move(waits.done), status] { done(status); });
    return true;
  });
}

TierCopyStatus TierCopier::Impl::status() const {
  const uint64_t now = now_ns(), sent = bytes_sent_.load();
  const MutexLock lock(mutex_);
  TierCopyStatus status = counted_;
  uint64_t oldest = queue_.oldest_ns();
  status.files_waiting = queue_.size() + copying_.size() + failed_.size() + blocked_.size();
  status.bytes_waiting = queue_.bytes();
  for (const auto* files : {&copying_, &failed_, &blocked_})
    for (const auto& [path, file] : *files) {
      status.bytes_waiting += file.bytes;
      oldest = oldest == 0 ? file.since_ns : std::min(oldest, file.since_ns);
    }
  status.files_copying = copying_.size();
  status.files_failed = failed_.size();
  status.oldest_waiting_s = static_cast<int64_t>(oldest / 1'000'000'000);
  status.is_store_away = away_attempts_ > 0;
  status.is_scanning = is_scanning_;
  status.is_scan_due = scan_is_due_ || scan_is_scheduled_ || scan_wanted_;
  // Over the last five to ten seconds in which somebody looked.
  constexpr uint64_t kTurn_ns = 5'000'000'000;
  if (rate_from_.ns == 0 || now < rate_next_.ns) rate_from_ = rate_next_ = {now, sent};
  if (now - rate_next_.ns >= kTurn_ns) rate_from_ = std::exchange(rate_next_, Anchor{now, sent});
  if (now > rate_from_.ns)
    status.bytes_per_second =
        static_cast<double>(sent - rate_from_.bytes) * 1e9 / static_cast<double>(now - rate_from_.ns);
  return status;
}

uint64_t TierCopier::Impl::progress() const {
  const MutexLock lock(mutex_);
  return bytes_sent_.load() + counted_.files_copied + counted_.manifests_stored + counted_.copies_removed;
}

bool TierCopier::Impl::is_copying(uint64_t inode) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(copying_, [inode](const auto& entry) { return entry.second.inode == inode; });
}

// --- Impl: its end ---------------------------------------------------------------------------------------------------

void TierCopier::Impl::stop(std::function<void()> done) {
  std::map<uint64_t, std::function<void()>> later;
  Calls calls;
  {
    const MutexLock lock(mutex_);
    ++tasks_;
    stopping_.store(true);
    stopped_ = std::move(done);
    later.swap(later_);
    const Status cancelled = Status::error(StatusCode::kCancelled, "copying has ended");
    for (auto& [inode, waiter] : waiters_)
      calls.push_back([waits = std::move(waiter.done), cancelled] { waits(cancelled); });
    for (Everything& waits : everything_)
      calls.push_back([waiting = std::move(waits.done), cancelled] { waiting(cancelled); });
    waiters_.clear();
    everything_.clear();
    for (auto& [path, look] : looks_)
      for (LookWaiter& waiter : look.waiters) calls.push_back(std::move(waiter.done));
    looks_.clear();
  }
  memory_.close();
  for (auto& [number, task] : later) environment_.executor().post(std::move(task));
  for (const auto& call : calls) call();
  // A scan that waits has no task.
  post([](Impl& self) {
    bool is_mine = false;
    {
      const MutexLock lock(self.mutex_);
      is_mine = self.scan_waits_;
      self.scan_waits_ = false;
    }
    if (is_mine) self.scan_some();
  });
  task_ended();
}

void TierCopier::Impl::end() {
  if (environment_.is_simulated()) return abandon();
  if (!stopping_.load()) stop(nullptr);
  MutexLock lock(mutex_);
  while (tasks_ > 0 || !copying_.empty()) ended_.wait(mutex_);
}

void TierCopier::Impl::abandon() {
  stopping_.store(true);
  memory_.abandon();
  std::map<uint64_t, std::function<void()>> later;
  {
    const MutexLock lock(mutex_);
    later.swap(later_);
    waiters_.clear();
    everything_.clear();
    looks_.clear();
    stopped_ = nullptr;
  }
  levels_.clear();
  orphans_.clear();
  moved_.clear();
}

}  // namespace fpfs
