#include "engine/tier/array_tier.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/io/named_thread.h"
#include "engine/tier/array_tier_impl.h"
#include "engine/tier/noted_copy.h"
#include "engine/tier/tier_chunk_source.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;

constexpr int kNiceOfCopies = 10;
// Saving is what writes this much from look to look, and for a while after it: a save has pauses.
constexpr milliseconds kLookInterval{100}, kRestingInterval{1000}, kSavingFor{500};
constexpr uint64_t kSavingBytes = kMiB;
constexpr milliseconds kLostInterval{1000};
// Who has a tree restored is about to read from the store; that each manifest becomes this array's has time.
constexpr std::chrono::seconds kRestoredRest{5};
// A store that hangs must not keep this thread from other tasks.
constexpr std::chrono::seconds kFenceAnswer{10}, kEndAnswer{2};
constexpr milliseconds kDoubtInterval{2000};

// This thread and those that it starts: nobody waits for them. Both are wishes.
void become_background() {
  (void)::setpriority(PRIO_PROCESS, 0, kNiceOfCopies);
  constexpr int kThisThread = 1, kBestEffortLowest = 2 << 13 | 7;  // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_BE
  (void)::syscall(SYS_ioprio_set, kThisThread, 0, kBestEffortLowest);
}

}  // namespace

const char* to_string(TierStatus::State state) {
  switch (state) {
    case TierStatus::State::kNone:
      return "none";
    case TierStatus::State::kAway:
      return "away";
    case TierStatus::State::kScanning:
      return "scanning";
    case TierStatus::State::kCopying:
      return "copying";
    case TierStatus::State::kCurrent:
      return "current";
    case TierStatus::State::kReading:
      return "reading";
    case TierStatus::State::kRestoring:
      return "restoring";
  }
  return "";
}

const char* to_string(TierFileState state) {
  return state == TierFileState::kCopied ? "copied" : state == TierFileState::kCopying ? "copying" : "local";
}

ArrayTier::ArrayTier(Environment& environment, Store& store, Storage& outside, TierOptions options)
    : impl_(std::make_shared<Impl>(environment, store, outside, std::move(options))) {
  store.on_commit(
      [impl = impl_](uint64_t inode, uint64_t sequence, bool is_moved) { impl->committed(inode, sequence, is_moved); });
  store.on_names([impl = impl_](const Store::NameEvent& event) { impl->changed(event); });
}

ArrayTier::~ArrayTier() = default;

void ArrayTier::when_moved(std::function<void(uint64_t inode)> listener) {
  impl_->when_moved(std::move(listener));
}

void ArrayTier::when_named(RestoredTree::Named listener) {
  impl_->when_named(std::move(listener));
}

Status ArrayTier::open() {
  return impl_->open();
}

void ArrayTier::set(const TierSet& set, const Done& done) {
  impl_->set(set, done);
}

void ArrayTier::leave(const Done& done) {
  impl_->leave(done);
}

void ArrayTier::wait_for(const std::string& path, const Done& done) {
  impl_->when_connected([path](TierCopier& copier, const Done& told) { copier.wait_for(path, told); }, done);
}

void ArrayTier::wait_for_commit(uint64_t inode, uint64_t sequence, const Done& done) {
  impl_->when_connected(
      [inode, sequence](TierCopier& copier, const Done& told) { copier.wait_for_commit(inode, sequence, told); }, done);
}

void ArrayTier::wait_for_all(const Done& done) {
  impl_->when_connected([](TierCopier& copier, const Done& told) { copier.wait_for_all(told); }, done);
}

void ArrayTier::fetch_begins() {
  impl_->count_fetch(true);
}

void ArrayTier::fetch_ends() {
  impl_->count_fetch(false);
}

bool ArrayTier::look(const std::string& path, std::function<void()> done) {
  return impl_->look(path, std::move(done));
}

bool ArrayTier::shows_others() const {
  return impl_->shows_others();
}

TierFileState ArrayTier::state_of(Handle node, const File& file, const struct stat& attributes) const {
  return impl_->state_of(node, file, attributes);
}

TierStatus ArrayTier::status() const {
  return impl_->status();
}

void ArrayTier::pins_changed() {
  impl_->pins_changed();
}

uint64_t ArrayTier::progress() const {
  return impl_->progress();
}

std::string ArrayTier::left_over() const {
  return impl_->left_over();
}

bool ArrayTier::stop(milliseconds patience) {
  return impl_->stop(patience);
}

// --- Impl: what others call ------------------------------------------------------------------------------------------

ArrayTier::Impl::Impl(Environment& environment, Store& store, Storage& outside, TierOptions options)
    : environment_(environment),
      store_(store),
      outside_(outside),
      options_(std::move(options)),
      is_read_only_(store.read_only()) {}

Status ArrayTier::Impl::open() {
  const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array());
  const bool is_away = !remembered.is_ok() || (remembered->has_value() && (**remembered).is_away);
  if (is_away || TierLost::is_there(store_.storage(), store_.array())) store_.has_others();
  if (remembered.is_ok() && remembered->has_value() && (**remembered).shares && !is_read_only_)
    open_lost((**remembered).store_id);
  if (options_.url == TierOptions::kNone) return Status::ok();
  const bool is_named = !options_.url.empty();
  const std::string url = is_named                                        ? options_.url
                          : remembered.is_ok() && remembered->has_value() ? (**remembered).url
                                                                          : std::string();
  MutexLock lock(mutex_);
  uncopied_since_s_ = environment_.now().tv_sec;
  if (!remembered.is_ok()) {
    if (is_required()) return remembered.status();
    failure_ = remembered.status();
    failed_at_s_ = environment_.now().tv_sec;
    ++failures_;
    log(LogLevel::kError, "{}", failure_.message());
    if (!is_named) return Status::ok();
  }
  if (url.empty() && is_required())
    return Status::error(StatusCode::kInvalidArgument,
                         "tier_required=yes, but this array copies nowhere: name its store (tier=URL), or mount it "
                         "without that and have one set: fpfs tier set MOUNTPOINT URL");
  if (url.empty()) return Status::ok();
  url_ = url;
  place_ = place_of(url);
  if (remembered.is_ok() && remembered->has_value()) store_id_ = (**remembered).store_id;
  store_.set_chunk_source(awaited_);
  start_thread_once();
  const auto deadline = Clock::now() + kFirstAnswerMax;
  while (is_required() && !was_tried_ && Clock::now() < deadline) changed_.wait_for(mutex_, deadline - Clock::now());
  if (!is_required()) return Status::ok();
  if (!was_tried_)
    return Status::error(StatusCode::kUnreachable, fmt::format("tier: {} does not answer; mount with tier_required=no "
                                                               "to go on without it",
                                                               place_));
  return failure_;
}

void ArrayTier::Impl::set(const TierSet& set, const Done& done) {
  const bool begins = leave_task([this, set, done] { done(do_set(set)); });
  if (!begins) done(Status::error(StatusCode::kCancelled, "the mount is ending"));
}

void ArrayTier::Impl::leave(const Done& done) {
  const bool begins = leave_task([this, done] { done(do_leave()); });
  if (!begins) done(Status::error(StatusCode::kCancelled, "the mount is ending"));
}

void ArrayTier::Impl::when_connected(const Ask& ask, const Done& done) {
  bool is_over = false;
  if (is_read_only_) return done(Status::error(StatusCode::kReadOnly, "the mount is read-only: nothing is copied"));
  {
    const MutexLock lock(mutex_);
    is_over = stopping_;
    if (copier() != nullptr) return ask(*session_->copier, across_sessions(ask, done));
    if (!url_.empty() && !is_over) {
      waiting_.push_back({ask, done});
      return;
    }
  }
  done(is_over ? Status::error(StatusCode::kCancelled, "the mount is ending")
               : Status::error(StatusCode::kNotFound,
                               "this array copies nowhere; say where to: fpfs tier set MOUNTPOINT URL"));
}

// Who waits when the store ends the session is asked for again, or told why, once that is known (has_tried()).
ArrayTier::Done ArrayTier::Impl::across_sessions(const Ask& ask, const Done& done) {
  return [weak = weak_from_this(), ask, done](const Status& status) {
    const std::shared_ptr<Impl> self = status.code() == StatusCode::kCancelled ? weak.lock() : nullptr;
    if (self == nullptr) return done(status);
    {
      const MutexLock lock(self->mutex_);
      if (!self->stopping_) return self->interrupted_.push_back({ask, done});
    }
    done(Status::error(StatusCode::kCancelled, "the mount is ending"));
  };
}

std::vector<ArrayTier::Impl::Waiting> ArrayTier::Impl::take_all_waiting() {
  std::vector<Waiting> waiting = std::move(waiting_);
  std::ranges::move(interrupted_, std::back_inserter(waiting));
  waiting_.clear();
  interrupted_.clear();
  return waiting;
}

bool ArrayTier::Impl::look(const std::string& path, std::function<void()> done) {
  if (!options_.share.has_value()) return false;
  const struct timespec now = environment_.now();
  const uint64_t now_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  const auto age_ns = static_cast<uint64_t>(std::chrono::nanoseconds(*options_.share).count());
  const MutexLock lock(mutex_);
  return copier() != nullptr && copier()->look(path, now_ns - std::min(now_ns, age_ns), std::move(done));
}

bool ArrayTier::Impl::shows_others() const {
  const MutexLock lock(mutex_);
  return copier() != nullptr ? copier()->shows_others() : store_id_.empty();  // without a store there are no others
}

TierFileState ArrayTier::Impl::state_of(Handle node, const File& file, const struct stat& attributes) const {
  std::string store;
  {
    const MutexLock lock(mutex_);
    if (copier() != nullptr && copier()->is_copying(attributes.st_ino)) return TierFileState::kCopying;
    store = store_id_;
  }
  if (store.empty() || file.is_dirty()) return TierFileState::kLocal;
  const std::optional<Store::OpenFile> open = store_.find_open(attributes.st_ino);
  // Of several names it is copied at one.
  const bool has_other_names = attributes.st_nlink > 1;
  if (!open.has_value() && !has_other_names) return TierFileState::kLocal;
  const File::Info info = file.info();
  const bool is_copied =
      has_other_names
          ? is_noted_as_copied(store_.storage(), node, "", {info.file_id, info.sequence, info.size}, "")
          : is_noted_as_copied(store_.storage(), node, open->path, {info.file_id, info.sequence, info.size}, store);
  return is_copied ? TierFileState::kCopied : TierFileState::kLocal;
}

TierStatus::State ArrayTier::Impl::state_now(const TierStatus& status) const {
  using State = TierStatus::State;
  if (session_ == nullptr) return url_.empty() && failure_.is_ok() ? State::kNone : State::kAway;
  if (is_read_only_) return State::kReading;
  if (session_->copier == nullptr) return State::kRestoring;
  if (status.copies.is_store_away || !gives_nothing_.is_ok()) return State::kAway;
  if (status.copies.files_waiting > 0) return State::kCopying;
  return status.copies.is_scanning ? State::kScanning : State::kCurrent;
}

TierStatus ArrayTier::Impl::status() const {
  const MutexLock lock(mutex_);
  TierStatus status;
  status.store = place_;
  status.store_id = store_id_;
  status.required = is_required();
  status.is_paced = is_paced_.load();
  status.limits = options_.copy;
  status.rate_while_saving = options_.rate_while_saving;
  if (copier() != nullptr) {
    status.copies = copier()->status();
    if (!gives_nothing_.is_ok()) {
      status.copies.last_error = gives_nothing_.message();
      status.copies.last_error_s = failed_at_s_;
      ++status.copies.errors;
    }
  } else {
    status.copies.errors = failures_;
    status.copies.last_error = failure_.is_ok() ? "" : failure_.message();
    status.copies.last_error_s = failed_at_s_;
  }
  if (restore_ != nullptr) status.restored = restore_->status();
  status.keep = options_.keep;
  status.files_left = files_left_.load();
  status.bytes_left = bytes_left_.load();
  status.files_pinned = files_pinned_.load();
  status.bytes_pinned = bytes_pinned_.load();
  status.state = state_now(status);
  const int64_t now = environment_.now().tv_sec;
  using State = TierStatus::State;
  status.is_waiting_known =
      is_read_only_ || copier() != nullptr || (status.state != State::kAway && status.state != State::kRestoring);
  const int64_t oldest = status.is_waiting_known ? status.copies.oldest_waiting_s : uncopied_since_s_;
  if (oldest > 0 && now > oldest) status.lag_seconds = static_cast<uint64_t>(now - oldest);
  const double rate = status.copies.bytes_per_second;
  if (status.state == TierStatus::State::kCurrent) status.eta_seconds = 0;
  if (status.state == TierStatus::State::kCopying && rate > 0)
    status.eta_seconds = static_cast<double>(status.copies.bytes_waiting) / rate;
  return status;
}

uint64_t ArrayTier::Impl::progress() const {
  const MutexLock lock(mutex_);
  return copier() == nullptr ? 0 : copier()->progress();
}

void ArrayTier::Impl::committed(uint64_t inode, uint64_t sequence, bool is_moved) {
  if (is_moved) {
    const MutexLock lock(mutex_);
    if (moved_ != nullptr) moved_(inode);
  }
  if (!has_session_.load(std::memory_order_acquire)) return;
  const MutexLock lock(mutex_);
  if (copier() == nullptr) return;
  copier()->committed(inode, sequence, is_moved);
  if (std::exchange(is_resting_, false)) changed_.notify_all();
}

void ArrayTier::Impl::changed(const Store::NameEvent& event) {
  const MutexLock lock(mutex_);
  if (copier() == nullptr) {
    if (lost_ != nullptr && !event.is_ahead) lost_->note(event);
    return;
  }
  copier()->changed(event);
  if (std::exchange(is_resting_, false)) changed_.notify_all();
}

std::string ArrayTier::Impl::left_over() const {
  const TierStatus now = status();
  const TierCopyStatus& copies = now.copies;
  if (copies.files_waiting > 0)
    return fmt::format("{}{} ({}) {} not copied to {} yet; the next mount goes on",
                       copies.is_scanning ? "at least " : "", format_count(copies.files_waiting, "file"),
                       format_size(copies.bytes_waiting), one_or_many(copies.files_waiting, "is", "are"), now.store);
  if (is_read_only_) return "";
  if (now.state == TierStatus::State::kAway)
    return fmt::format("{} takes no copies{}; the next mount looks for what is to be copied to it", now.store,
                       copies.last_error.empty() ? "" : fmt::format(" ({})", copies.last_error));
  return now.state == TierStatus::State::kScanning
             ? fmt::format("the next mount looks again for what is to be copied to {}", now.store)
             : "";
}

bool ArrayTier::Impl::stop(milliseconds patience) {
  std::vector<Waiting> waiting;
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    waiting = take_all_waiting();
    changed_.notify_all();
    const auto deadline = Clock::now() + patience;
    while (thread_.joinable() && !ended_ && Clock::now() < deadline) changed_.wait_for(mutex_, deadline - Clock::now());
    if (ended_) thread.swap(thread_);
  }
  const Status ending = Status::error(StatusCode::kCancelled, "the mount is ending");
  for (const Waiting& waits : waiting) waits.done(ending);
  awaited_->not_found(ending);
  if (thread.joinable()) thread.join();
  save_lost();
  const MutexLock lock(mutex_);
  return !thread_.joinable();
}

// --- Impl: its thread ------------------------------------------------------------------------------------------------

void ArrayTier::Impl::start_thread_once() {
  if (thread_.joinable() || stopping_) return;
  thread_ = start_thread("fpfs-tier", [self = shared_from_this()] { self->run(); });
}

bool ArrayTier::Impl::leave_task(std::function<void()> task) {
  const MutexLock lock(mutex_);
  if (stopping_) return false;
  tasks_.push_back(std::move(task));
  start_thread_once();
  changed_.notify_all();
  return true;
}

void ArrayTier::Impl::run() {
  become_background();
  while (const std::function<void()> task = next_task()) task();
  end_session();
  std::deque<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();  // each finds that it ends
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::function<void()> ArrayTier::Impl::next_task() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return nullptr;
    if (!tasks_.empty()) {
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      return task;
    }
    if (url_.empty() || (session_ != nullptr && is_read_only_)) {
      changed_.wait(mutex_);
    } else if (session_ != nullptr) {
      const TierCopyStatus copies = session_->copier->status();
      is_resting_ = copies.files_waiting == 0 && !copies.is_scanning && !is_paced_.load();
      changed_.wait_for(mutex_, is_resting_ ? kRestingInterval : kLookInterval);
      is_resting_ = false;
      if (!stopping_ && tasks_.empty()) return [this] { look_after_copies(); };
    } else if (const auto now = Clock::now(); now < next_try_) {
      changed_.wait_for(mutex_, next_try_ - now);
    } else {
      return [this] { has_tried(connect()); };
    }
  }
}

bool ArrayTier::Impl::is_stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

// --- Impl: a session -------------------------------------------------------------------------------------------------

void ArrayTier::Impl::begin_session(std::unique_ptr<Session> session, const TierBinding& binding) {
  std::shared_ptr<ChunkSource> source;
  {
    const MutexLock lock(mutex_);
    store_id_ = binding.store_id;
    session_ = std::move(session);
    source = std::make_shared<TierChunkSource>(session_->reader, store_.array().id());
    store_.set_chunk_source(source);
    if (is_read_only_) log(LogLevel::kInfo, "tier: what members do not give is read from {}", place_);
  }
  awaited_->found(source);
  binding_ = binding;
}

// Once what is to be restored is here.
Status ArrayTier::Impl::begin_copying(bool has_restored) {
  std::vector<Waiting> waiting;
  TierCopyOptions options = options_.copy;
  options.store_id = binding_.store_id;
  options.restored = binding_.restored;
  options.shares = options_.share.has_value() || binding_.shares;
  options.named = [this](uint64_t directory, const std::string& name) {
    const MutexLock lock(named_mutex_);
    if (named_ != nullptr) named_(directory, name);
  };
  ObjectStore* objects = nullptr;
  {
    const MutexLock lock(mutex_);
    objects = session_->copies.objects.get();
  }
  if (options.shares) {
    open_lost(binding_.store_id);
    save_lost();
    const MutexLock lock(mutex_);
    options.lost = lost_;
  }
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<TierCopier> copier,
                        TierCopier::create(environment_, store_, *objects, options));
  const bool may_be_away = options_.keep.kind != TierKeep::Kind::kAll || options.shares;
  if ((may_be_away && !binding_.is_away) || options.shares != binding_.shares) {
    binding_.is_away = true;
    binding_.shares = options.shares;
    FPFS_RETURN_IF_ERROR(save_binding(store_.storage(), store_.array(), binding_));
  }
  if (binding_.is_away) copier->content_is_away();
  {
    const MutexLock lock(mutex_);
    session_->prover = TierReader::create(environment_, *objects);
    session_->copier = std::move(copier);
    store_.tell_names(true);
    if (has_restored) session_->copier->hold(true, kRestoredRest);
    session_->copier->open();
    has_session_.store(true, std::memory_order_release);
    waiting.swap(waiting_);
    log(LogLevel::kInfo, "tier: committed files are copied to {}", place_);
  }
  fenced_at_ = Clock::now();
  fenced_progress_ = progress();
  without_copy_ = store_.status().chunks_without_copy;
  saved_before_ = store_.bytes_saved();
  is_paced_ = false;
  for (const Waiting& waits : waiting) when_connected(waits.ask, waits.done);
  return Status::ok();
}

void ArrayTier::Impl::end_session() {
  has_session_.store(false);
  store_.set_chunk_source(nullptr);
  awaited_->not_found(Status::error(StatusCode::kCancelled, "the array copies there no more"));
  std::unique_ptr<Session> session;
  {
    const MutexLock lock(mutex_);
    const int64_t oldest = copier() == nullptr ? uncopied_since_s_ : copier()->status().oldest_waiting_s;
    uncopied_since_s_ = oldest > 0 ? oldest : environment_.now().tv_sec;
    session = std::move(session_);
    if (!gives_nothing_.is_ok()) failure_ = std::exchange(gives_nothing_, Status::ok());  // until it is tried again
    store_.tell_names(lost_ != nullptr);
  }
  if (session == nullptr) return;
  if (session->copier != nullptr) session->copier->stop(nullptr);
  if (session->copier != nullptr) end_fence(*session->copies.objects);
  session->reader->close();
  if (session->prover != nullptr) session->prover->close();
  session->reads->close();
  if (session->copies.objects != nullptr) session->copies.objects->close();
  session->reader = nullptr;
  session->prover = nullptr;
  session->copier = nullptr;
  session->copies = {};
  session->reads = nullptr;
}

void ArrayTier::Impl::look_after_copies() {
  if (has_lost_copies() || is_store_gone()) return end_session();  // who connects again is told why
  adapt_rate();
  if (const auto now = Clock::now(); now - lost_saved_at_ >= kLostInterval) {
    save_lost();
    lost_saved_at_ = now;
  }
  if (Clock::now() - fenced_at_ >= options_.fence_interval && progress() != fenced_progress_) return keep_fence();
  if (options_.keep.kind != TierKeep::Kind::kAll && Clock::now() >= makes_room_at_) make_room();
}

bool ArrayTier::Impl::has_lost_copies() const {
  const MutexLock lock(mutex_);
  return session_->copies.lease != nullptr && session_->copies.lease->is_lost();
}

// Content that lies there only could not be fetched, or nothing is copied: is the store there? A filesystem that is gone
// is let go of, so that it can be unmounted, and is found again by its path.
bool ArrayTier::Impl::is_store_gone() {
  if (Clock::now() - doubted_at_ < kDoubtInterval) return false;
  doubted_at_ = Clock::now();
  const uint64_t without_copy = store_.status().chunks_without_copy;
  const bool is_fetch_in_vain = std::exchange(without_copy_, without_copy) != without_copy;
  std::string url;
  bool is_in_doubt = false;
  {
    const MutexLock lock(mutex_);
    url = url_;
    is_in_doubt = is_fetch_in_vain || !gives_nothing_.is_ok() ||
                  (url.starts_with("file:") && session_->copier->status().is_store_away);
  }
  if (!is_in_doubt) return false;
  Result<std::unique_ptr<ObjectStore>> found = reach(url, Priority::kRequests, quick_answers(), binding_.store_id);
  if (found.is_ok()) found.value()->close();
  const MutexLock lock(mutex_);
  if (stopping_) return false;
  const bool is_news = gives_nothing_.is_ok() && !found.is_ok();
  gives_nothing_ = found.status();
  if (found.is_ok()) return false;
  if (is_news) {
    ++failures_;
    failed_at_s_ = environment_.now().tv_sec;
    log(LogLevel::kWarning, "{}; nothing is copied, or read from there, until that is right, which is tried again",
        found.status().message());
  }
  return found.status().code() == StatusCode::kUnreachable && url.starts_with("file:");
}

// Names that this array loses from now on are noted.
void ArrayTier::Impl::open_lost(const std::string& store_id) {
  {
    const MutexLock lock(mutex_);
    if (lost_ != nullptr && lost_->noted_store() == store_id) return;
  }
  std::shared_ptr<TierLost> lost = TierLost::open(store_, store_id);
  const MutexLock lock(mutex_);
  lost_ = std::move(lost);
  store_.tell_names(true);
}

void ArrayTier::Impl::save_lost() {
  std::shared_ptr<TierLost> lost;
  {
    const MutexLock lock(mutex_);
    lost = lost_;
  }
  if (lost != nullptr) lost->save();
}

void ArrayTier::Impl::keep_fence() {
  ObjectStore* objects = nullptr;
  {
    const MutexLock lock(mutex_);
    objects = session_->copies.objects.get();  // which this thread alone takes away
  }
  const uint64_t now = progress();
  const Status raised = raise_fence(*objects, binding_, Clock::now() + kFenceAnswer);
  fenced_at_ = Clock::now();
  if (raised.is_ok()) fenced_progress_ = now;
  // Who connects again is told what is wrong.
  if (raised.code() == StatusCode::kWrongStore) end_session();
}

// Who has this array's copies restored need not wait for it. A wish.
void ArrayTier::Impl::end_fence(ObjectStore& objects) {
  if (binding_.fences.empty() || has_no_fence_) return;
  const std::string array = to_string(store_.array().id());
  const auto until = Clock::now() + kEndAnswer;
  const auto read = [&](ObjectStore::Done<TierFence> done) { read_fence(objects, array, std::move(done)); };
  const Result<TierFence> stored = ask<Result<TierFence>>(read, until, true);
  // Who takes the copies over has written his.
  if (!stored.is_ok() || stored->token != binding_.fences.back()) return;
  const TierFence ended = {binding_.fences.back(), true};
  const auto write = [&](ObjectStore::DoneStatus done) { write_fence(objects, array, ended, std::move(done)); };
  static_cast<void>(ask<Status>(write, until, true));
}

void ArrayTier::Impl::count_fetch(bool begins) {
  const MutexLock lock(mutex_);
  fetches_ += begins ? 1 : -1U;
  const bool is_change = fetches_ == (begins ? 1 : 0);
  if (is_change && copier() != nullptr) session_->copier->hold(begins);
}

void ArrayTier::Impl::adapt_rate() {
  const auto now = Clock::now();
  const uint64_t saved = store_.bytes_saved();
  if (saved - std::exchange(saved_before_, saved) >= kSavingBytes) saved_at_ = now;
  const bool is_saving = now - saved_at_ < kSavingFor && options_.rate_while_saving > 0;
  const MutexLock lock(mutex_);
  if (copier() == nullptr || is_paced_.exchange(is_saving) == is_saving) return;
  const uint64_t always = options_.copy.rate > 0 ? options_.copy.rate : UINT64_MAX;
  session_->copier->set_rate(is_saving ? std::min(options_.rate_while_saving, always) : options_.copy.rate);
}

}  // namespace fpfs
