#include "engine/store/store.h"

#include <fcntl.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "engine/array/member_directory.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/check/check.h"
#include "engine/check/replay.h"
#include "engine/check/scan.h"
#include "engine/io/scoped_handle.h"
#include "engine/store/store_impl.h"

namespace fpfs {

namespace {

// Waits for one completion from another thread.
class Arrival {
 public:
  void arrive(const Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    arrived_ = true;
    condition_.notify_one();
  }
  Status wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    condition_.wait(lock, [this] { return arrived_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool arrived_ = false;
  Status status_;
};

}  // namespace

// --- Impl -----------------------------------------------------------------------------------------------------------

Status Store::Impl::start() {
  FPFS_RETURN_IF_ERROR(FileContext::start());
  // Often enough that a trickle is late by a part of what it asked for.
  const auto sooner = [](unsigned a, unsigned b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); };
  const unsigned soonest = sooner(options.commit_interval_ms, options.commit_idle_ms);
  const auto interval = std::chrono::milliseconds(soonest == 0 ? 0 : std::clamp(soonest / 5, 1U, 1000U));
  trickle_timer_.open(environment.executor(), interval, [this] { return commit_trickles(); });
  pool->set_retry_hook(
      [](void* self, std::chrono::milliseconds delay) {
        auto& impl = *static_cast<Impl*>(self);
        impl.tasks.post_after(delay, [&impl, delay] {
          impl.pool->retry_waiters(delay);
          impl.relieve_pressure();
        });
      },
      this);
  pool->set_pressure_hook(
      [](void* self) {
        auto& impl = *static_cast<Impl*>(self);
        // With writes under way the end of the last one looks again.
        if (impl.relieving_.load() || impl.writes_in_flight.load() > 0) return;
        impl.tasks.post([&impl] { impl.relieve_pressure(); });
      },
      this);
  start_watching();
  return Status::ok();
}

void Store::Impl::end() {
  if (reclaimer != nullptr) reclaimer->end();
  trickle_timer_.end();
}

bool Store::Impl::commit_trickles() {
  bool again = false;
  for (const std::shared_ptr<File>& file : files.all()) again |= file->commit_trickle();
  return again;
}

void Store::Impl::start_watching() {
  if (watch == nullptr) return;
  watch->set_name(kTreeDomain, fmt::format("the drive that holds the names ({})", array.metadata_path()));
  for (const MemberIndex m : array.members()) watch_member(m);
  registrations_.push_back(watch->add_listener([this](StallDomain domain) { member_stalled(domain); }));
}

void Store::Impl::watch_member(MemberIndex member) {
  if (watch == nullptr) return;
  watch->set_name(domain_of(member), array.name_of(member));
  if (const IoQueue* const queue = io->queue(member))
    registrations_.push_back(watch->add_source(domain_of(member), [queue] { return queue->oldest_transfer_ns(); }));
}

Status Store::Impl::prepare_member(MemberIndex member) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> queue, environment.make_queue(member, options.queue()));
  io->add_member(member, std::move(queue));
  room->add_member(member);
  spares->add_member(member);
  return Status::ok();
}

bool Store::Impl::is_stalled(MemberIndex member) const {
  if (watch == nullptr) return false;
  const bool holds_the_tree = array.superblock().metadata_member == member;
  return watch->is_stalled(domain_of(member)) || (holds_the_tree && watch->is_stalled(kTreeDomain));
}

void Store::Impl::stop_watching() {
  registrations_.clear();
}

// On the watch's thread, now and then while the domain does not answer.
void Store::Impl::member_stalled(StallDomain domain) {
  const Status failure = watch->check(domain);
  if (failure.is_ok() || domain == kElsewhereDomain) return;
  if (const std::optional<MemberIndex> member = member_of(domain)) io->fail_waiting(*member, failure);
  if (previous_files != nullptr && domain == kTreeDomain) previous_files->release_waiting();
  for (const std::shared_ptr<File>& file : files.all()) file->member_stalled(domain, failure);
  const auto limit_ns = static_cast<uint64_t>(std::chrono::nanoseconds(watch->limit()).count());
  const uint64_t now = monotonic_ns();
  pool->expire_waiters(now > limit_ns ? now - limit_ns : 0);
}

void Store::Impl::relieve_pressure() {
  if (!pool->has_waiters() || writes_in_flight.load() > 0) return;
  if (relieving_.exchange(true)) return;
  for (const std::shared_ptr<File>& file : dirty_files.all()) file->flush_for_pressure();
  relieving_.store(false);
}

Store::Removed* Store::Impl::find_removed(uint64_t inode) {
  MutexLock lock(removed_mutex_);
  const auto found = removed_.find(inode);
  return found == removed_.end() ? nullptr : found->second;
}

void Store::Impl::insert_removed(uint64_t inode, Removed& removed) {
  {
    MutexLock lock(removed_mutex_);
    removed_[inode] = &removed;
  }
  reclaimer->note_kept(inode);
}

void Store::Impl::erase_removed(uint64_t inode, const Removed& removed) {
  MutexLock lock(removed_mutex_);
  const auto found = removed_.find(inode);
  // A file that was linked and removed once more has another one by now.
  if (found != removed_.end() && found->second == &removed) removed_.erase(found);
}

// Where there is no room for it, or it cannot be made, every commit is synced.
void Store::Impl::open_commit_log() {
  if (!options.commit_log || options.null_write || !names_need_no_directory) return;
  CommitLog::Hooks hooks;
  hooks.check = [this] { return check_names(); };
  hooks.fail = [this](const Status& failure) { fail_tree(failure); };
  auto opened = CommitLog::open(storage(), array, tasks, std::move(hooks));
  // Announced before anything is in it.
  const Status status = opened.is_ok() ? array.announce(kFeatureCommitLog) : opened.status();
  if (status.is_ok())
    commit_log = std::move(*opened);
  else
    log(LogLevel::kWarning, "{}: no commit log, so each small file that is saved is synced by itself: {}",
        array.metadata_path(), status.message());
}

void Store::Impl::fail_tree(const Status& failure) {
  counters.count_tree_error();
  health.fail(failure);
}

// One at a time: the kernel tells one of two callers that a writeback failed (errseq_check_and_advance() in syncfs(2)),
// and the other one is not to return before that is known.
Status Store::Impl::sync_tree() {
  const MutexLock lock(tree_sync_mutex_);
  FPFS_RETURN_IF_ERROR(health.failure());
  const std::string covered = health.take_unsynced();
  const uint64_t until = commit_log != nullptr ? commit_log->now() : 0;
  Status synced = storage().sync_filesystem(array.tree());
  if (synced.is_ok()) synced = array.check_tree_running();
  if (synced.is_ok() && commit_log != nullptr) commit_log->forced(until);
  if (synced.is_ok()) return synced;
  if (!covered.empty()) may_have_lost.store(true);
  const std::string at_risk = covered.empty() ? "" : "; it may have lost what was closed in " + covered;
  const Status failure = Status::error(synced.code(), synced.message() + at_risk);
  fail_tree(failure);
  return failure;
}

// For a mount that stores nothing of what is written: it replaces content by nothing.
Status Store::Impl::check_holds_nothing() {
  std::string path;
  FPFS_RETURN_IF_ERROR(walk_files(storage(), array.tree(), [&](const FileEntry& entry) -> Result<bool> {
    FPFS_ASSIGN_OR_RETURN(const ScannedFile file, scan_file(storage(), array, entry, SidecarSource::kCache));
    if (!file.status.is_ok() || file.image.extents.count() > 0 || !file.image.inline_data.empty()) path = entry.path;
    return path.empty();
  }));
  if (path.empty()) return Status::ok();
  return Status::error(StatusCode::kExists,
                       fmt::format("null_write stores nothing, and this array has files ({} for one) whose content "
                                   "would go when they are written: use an empty array for it",
                                   path));
}

Status Store::sync_names() {
  return impl_->sync_tree();
}

// --- life -----------------------------------------------------------------------------------------------------------

Store::Store(Environment& environment, const StoreOptions& options)
    : environment_(environment), options_(options), shares_(options.shared_handles) {}

Result<std::unique_ptr<Store>> Store::open(Environment& environment, const std::vector<std::string>& directories,
                                           const StoreOptions& options) {
  std::unique_ptr<Store> store(new Store(environment, options));
  if (environment.watch() != nullptr) environment.watch()->start(std::chrono::milliseconds(options.io_timeout_ms));
  FPFS_ASSIGN_OR_RETURN(store->array_, Array::open(environment, directories, options.array));
  store->impl_ = std::make_unique<Impl>(environment, *store->array_, options);
  Impl& impl = *store->impl_;
  impl.files_sync_names = environment.storage().syncs_own_names(store->array_->tree());
  impl.names_need_no_directory = environment.storage().logs_names_in_order(store->array_->tree());
  impl.open_file = [self = store.get()](Handle node) { return self->open_file(node, false); };
  FPFS_RETURN_IF_ERROR(impl.start());
  store->options_ = impl.options;
  if (store->array_->read_only()) {
    if (store->array_->was_dirty()) store->tell_of_commit_log();
    return store;
  }
  FPFS_RETURN_IF_ERROR(store->array_->begin_changes());
  store->recovery_.was_dirty = store->array_->was_dirty();
  bool has_freed = false;
  if (store->recovery_.was_dirty) {
    FPFS_ASSIGN_OR_RETURN(const RecoveryCounts counts, recover_array(environment, *store->array_));
    store->recovery_.orphans_removed = counts.orphans_removed;
    store->recovery_.commits_put_back = counts.commits_put_back;
    store->recovery_.torn_tails = counts.torn_tails;
    store->recovery_.bytes_freed = counts.bytes_freed;
    has_freed = counts.orphans_removed > 0 || counts.bytes_freed > 0 || counts.torn_tails > 0;
    if (has_freed)
      log(LogLevel::kWarning,
          "the array was not unmounted cleanly: {} freed that no file has ({} with other leftovers), {} taken back",
          format_count(counts.orphans_removed, "object was", "objects were"), format_size(counts.bytes_freed),
          format_count(counts.torn_tails, "commit that was cut short was", "commits that were cut short were"));
  }
  if (options.null_write) FPFS_RETURN_IF_ERROR(impl.check_holds_nothing());
  FPFS_RETURN_IF_ERROR(store->array_->mark_dirty());
  impl.open_commit_log();
  if (store->recovery_.was_dirty && !has_freed)
    log(LogLevel::kInfo, "the array was not unmounted cleanly: recovery ran, and found nothing to free");
  return store;
}

// What nobody may put back.
void Store::tell_of_commit_log() {
  const Result<ReplayReport> pending = replay_commits(storage(), *array_, false);
  std::string what = pending.is_ok() ? pending->damage : pending.status().message();
  if (what.empty() && !pending->missing.empty())
    what = format_count(pending->missing.size(), "small file", "small files") + " of it are not shown";
  if (!what.empty())
    log(LogLevel::kWarning,
        "{}/{}: {}: what was saved in the moments before a crash; a mount for writing puts it where it belongs, or "
        "fsck.fastpersistfs -p",
        array_->metadata_path(), kCommitsName, what);
}

Status Store::close() {
  Arrival arrival;
  close_async([&arrival](const Status& status) { arrival.arrive(status); });
  const Status status = arrival.wait();
  impl_->tasks.wait();
  return status;
}

void Store::close_async(std::function<void(const Status&)> done) {
  impl_->end();
  impl_->healer->finish();
  commit_all(ControlRequest::Kind::kClose, ControlRequest::Unfinished::kTricklesCommitted,
             [this, done = std::move(done)](const CommitOutcome& outcome) {
               Status status = outcome.status;
               NamedFiles unfinished;
               for (const std::string& path : outcome.unfinished) {
                 log(LogLevel::kError, "{} was being written when the array was closed: it is left as after a crash",
                     path);
                 impl_->health.note_file_failure(UINT64_MAX - unfinished.count(), path,
                                                 Status::error(StatusCode::kBusy, "it was being written at the end"));
                 unfinished.add(unfinished.count(), path);
               }
               if (unfinished.count() > 0 && status.is_ok())
                 status = Status::error(
                     StatusCode::kBusy,
                     fmt::format("{} being written and left as after a crash: {}",
                                 format_count(outcome.unfinished.size(), "file was", "files were"), unfinished.text()));
               finish_close(status, done);
             });
}

// Waits, by looking again, until the background work of the commits is done too, and the last transfers: one may hold
// the last reference to a removed file, whose objects are freed with it.
void Store::finish_close(const Status& synced, const std::function<void(const Status&)>& done) {
  impl_->reclaimer->free_spares();
  if (impl_->tasks.outstanding() > 0 || impl_->io->under_way() > 0) {
    environment_.executor().post_after(std::chrono::milliseconds(1),
                                       [this, synced, done] { finish_close(synced, done); });
    return;
  }
  Status status = impl_->health.all_losses();
  if (status.is_ok()) status = synced;
  if (status.is_ok()) status = impl_->health.failure();
  if (const unsigned held = impl_->versions_held.load(); status.is_ok() && held > 0 && !array_->read_only())
    status = Status::error(
        StatusCode::kBusy,
        fmt::format("{} still held by a copy that does not end; nothing is lost, and the next mount frees what {}",
                    format_count(held, "version of a file is", "versions of files are"),
                    one_or_many(held, "it keeps", "they keep")));
  if (status.is_ok() && !array_->read_only() && !impl_->health.had_failure() && !impl_->health.has_leftovers()) {
    if (impl_->commit_log != nullptr) status = impl_->commit_log->retire_all();
    // "Clean" says that nothing is left to free, so what was freed must not come back with a power cut.
    for (const MemberIndex m : array_->members()) {
      if (!array_->is_present(m)) continue;
      if (status.is_ok()) status = storage().sync_filesystem(array_->member(m).objects);
      if (status.is_ok()) status = array_->check_running(m);
    }
    if (status.is_ok()) {
      status = array_->mark_clean();
      left_clean_ = status.is_ok();
      // Whether the mark is gone is not known: it is put back, should the drive still take it.
      if (!status.is_ok()) static_cast<void>(array_->mark_dirty());
    }
  }
  done(impl_->health.with_failed_files(status));
}

Store::~Store() {
  // No file starts anything any more; what is under way ends (in a simulation that lost its power it is gone already);
  // then the files go, then what they share.
  if (impl_ == nullptr) return;
  impl_->end();
  impl_->stop_watching();
  if (impl_->new_names != nullptr) impl_->new_names->clear();
  for (const std::shared_ptr<File>& file : impl_->files.all()) file->abandon();
  if (impl_->healer != nullptr) impl_->healer->abandon();
  if (impl_->io != nullptr) impl_->io->close_queues();
  for (const std::shared_ptr<File>& file : impl_->files.all()) file->forget_heal_writes();
  if (!environment_.is_simulated()) impl_->tasks.wait();
  if (impl_->chunks != nullptr)
    for (unsigned i = 0; i < impl_->pool->total(); ++i) {
      const std::shared_ptr<File> keep = std::move(impl_->chunks[i].keep);
      const std::shared_ptr<ObjectSet> objects = std::move(impl_->chunks[i].transfer.objects);
      const std::shared_ptr<PreviousContent> previous = std::move(impl_->chunks[i].transfer.sharing.previous);
      impl_->chunks[i].transfer.sharing.objects = nullptr;
    }
}

std::string Store::not_saved() const {
  const std::string failed = impl_->health.failed_files();
  NamedFiles dirty;
  for (const std::shared_ptr<File>& file : impl_->files.all())
    if (!file->is_nameless() && file->is_dirty()) dirty.add(file->inode(), file->path());
  return failed + (failed.empty() || dirty.count() == 0 ? "" : ", ") + dirty.text();
}

bool Store::had_failed_saves() const {
  return impl_->health.had_failure();
}

bool Store::had_losses() const {
  return !impl_->health.all_losses().is_ok() || impl_->may_have_lost.load();
}

bool Store::names_stalled() const {
  return impl_->watch != nullptr && impl_->watch->is_stalled(kTreeDomain);
}

bool Store::read_only() const {
  return array_->read_only() || !impl_->health.failure().is_ok();
}

bool Store::populate_buffers() {
  return impl_->pool->populate_some();
}

// --- files ----------------------------------------------------------------------------------------------------------

Status Store::index_failure(const Status& failure, Handle node) const {
  if (failure.code() != StatusCode::kCorruption && failure.code() != StatusCode::kIoError) return failure;
  // What the drive does not give is counted where it is asked.
  if (failure.code() == StatusCode::kCorruption) impl_->counters.index_errors.fetch_add(1, std::memory_order_relaxed);
  return failure.with_context(array_->path_in_mount(node) + ": its index cannot be read, see fsck.fastpersistfs");
}

Result<std::shared_ptr<File>> Store::open_file(Handle node, bool for_writing) {
  if (for_writing && array_->read_only()) return Status::error(StatusCode::kReadOnly, "the array is mounted read-only");
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
  if (!S_ISREG(attributes.st_mode)) return Status::error(StatusCode::kInvalidArgument, "not a regular file");
  MutexLock lock(impl_->files.name_lock(attributes.st_ino));
  const int flags = for_writing ? O_RDWR : O_RDONLY;
  if (std::shared_ptr<File> file = impl_->files.find(attributes.st_ino)) {
    if (for_writing && !file->is_writable()) {
      FPFS_ASSIGN_OR_RETURN(const Handle sidecar, storage().reopen(node, flags));
      file->make_writable(ScopedHandle(storage(), sidecar));
      FPFS_ASSIGN_OR_RETURN(const std::optional<Compression> compression, this->compression(node));
      file->set_compression(compression);
    }
    return file;
  }
  FPFS_ASSIGN_OR_RETURN(const Handle reopened, storage().reopen(node, flags));
  ScopedHandle sidecar(storage(), reopened);
  FPFS_ASSIGN_OR_RETURN(const struct stat now, storage().fstat(reopened));
  Removed* removed = now.st_nlink == 0 ? impl_->find_removed(now.st_ino) : nullptr;
  // Its objects may be gone already; nobody has it open.
  if (now.st_nlink == 0 && removed == nullptr) return Status::from_errno(ESTALE, "open a removed file");
  FPFS_ASSIGN_OR_RETURN(ScopedHandle new_name_in, impl_->new_names->reopen(storage(), now.st_ino));
  const bool has_new_name = new_name_in.is_open();
  if (impl_->names_need_no_directory) new_name_in.reset();  // it is one of the file's own
  Result<std::shared_ptr<File>> opened = File::open(*impl_, std::make_shared<const ScopedHandle>(std::move(sidecar)),
                                                    now, for_writing, {has_new_name, std::move(new_name_in)});
  if (!opened.is_ok()) return index_failure(opened.status(), node);
  std::shared_ptr<File> file = *std::move(opened);
  if (for_writing) {
    FPFS_ASSIGN_OR_RETURN(const std::optional<Compression> compression, this->compression(node));
    file->set_compression(compression);
  }
  if (removed != nullptr) removed->adopt(file);
  impl_->insert(file);
  file->follow_members();  // they may have changed since it looked
  return file;
}

void Store::commit_all(ControlRequest::Kind kind, ControlRequest::Unfinished unfinished,
                       std::function<void(const CommitOutcome&)> done) {
  struct Job {
    struct Request {
      ControlRequest control;
      Job* job = nullptr;
      bool had_failed = false;  // whoever has closed it was told, or it is a loss that was noted
    };
    std::vector<Request> requests;
    std::vector<std::shared_ptr<File>> files;
    std::atomic<size_t> pending{0};
    Mutex mutex;
    CommitOutcome outcome;
    Store* store = nullptr;
    std::function<void(const CommitOutcome&)> done;
    void arrive(const Status& status) {
      if (!status.is_ok()) {
        MutexLock lock(mutex);
        if (outcome.status.is_ok()) outcome.status = status;
      }
      if (pending.fetch_sub(1) > 1) return;
      store->impl_->tasks.post([this] {
        std::unique_ptr<Job> self(this);
        for (size_t i = 0; i < files.size(); ++i)
          if (requests[i].control.was_left_alone) outcome.unfinished.push_back(files[i]->path());
        if (!store->array_->read_only()) {
          const Status synced = store->impl_->sync_tree();
          if (outcome.status.is_ok()) outcome.status = synced;
        }
        const Status loss = store->impl_->health.take_any_loss();
        if (outcome.status.is_ok()) outcome.status = loss;
        files.clear();
        done(outcome);
      });
    }
  };
  auto* job = new Job;
  job->store = this;
  job->done = std::move(done);
  job->files = impl_->files.all();
  job->requests.resize(job->files.size());
  job->pending = job->files.size() + 1;
  for (size_t i = 0; i < job->files.size(); ++i) {
    File& file = *job->files[i];
    Job::Request& request = job->requests[i];
    request.job = job;
    if (kind == ControlRequest::Kind::kClose) {
      // It may be open to nobody, and be kept only by what is still on its way to the drives.
      request.had_failed = file.is_given_up();
      file.promise();
    }
    request.control.kind = kind;
    request.control.unfinished = unfinished;
    request.control.owner = &request;
    request.control.complete = [](ControlRequest& control, const Status& status) {
      const auto& answered = *static_cast<Job::Request*>(control.owner);
      answered.job->arrive(answered.had_failed ? Status::ok() : status);
    };
    file.control(request.control);
  }
  job->arrive(Status::ok());
}

void Store::on_commit(CommitListener listener) {
  impl_->committed = std::move(listener);
}

void Store::set_chunk_source(std::shared_ptr<ChunkSource> source) {
  impl_->healer->set_source(std::move(source));
}

void Store::has_others() {
  impl_->has_others.store(true);
}

std::optional<Store::OpenFile> Store::find_open(uint64_t inode) const {
  const std::shared_ptr<File> file = impl_->files.find(inode);
  if (file == nullptr || file->is_nameless()) return std::nullopt;
  std::optional<std::string> path = file->path_below_tree();
  if (!path.has_value()) return std::nullopt;
  return OpenFile{*std::move(path), file->size(), file->id()};
}

bool Store::is_in_use(uint64_t inode) const {
  return impl_->files.find(inode) != nullptr || impl_->find_removed(inode) != nullptr;
}

StoreStatus Store::status() const {
  StoreStatus status;
  for (const MemberIndex m : array_->members()) {
    const Member& member = array_->member(m);
    const MemberCounters& counters = impl_->counters[m];
    MemberStatus entry;
    entry.path = member.path;
    entry.present = array_->is_present(m);
    entry.leaving = array_->is_leaving(m);
    entry.removed = array_->is_removed(m);
    if (entry.removed) entry.path.clear();
    if (entry.present) entry.id = to_string(member.id);  // else nobody knows it
    entry.outdated = member.outdated;
    entry.stalled = impl_->is_stalled(m);
    if (entry.present)
      if (Result<struct statvfs> space = environment_.storage().fstatvfs(member.directory); space.is_ok()) {
        entry.space_total = space->f_blocks * space->f_frsize;
        entry.space_free = space->f_bavail * space->f_frsize;
      }
    entry.space_spare = impl_->spares->bytes(m);
    entry.bytes_read = counters.bytes_read.load();
    entry.bytes_written = counters.bytes_written.load();
    entry.read_errors = counters.read_errors.load();
    entry.write_errors = counters.write_errors.load();
    entry.sync_errors = counters.sync_errors.load();
    entry.checksum_errors = counters.checksum_errors.load();
    status.members.push_back(std::move(entry));
  }
  status.buffers = impl_->pool->counters();
  status.buffer_size = impl_->pool->buffer_size();
  for (const std::shared_ptr<File>& file : impl_->files.all()) {
    ++status.open_files;
    if (file->is_dirty()) ++status.dirty_files;
  }
  status.commits = impl_->commits.load();
  status.pending_frees = impl_->reclaimer->pending();
  if (const ChunkSharer* const sharer = impl_->io->sharer()) {
    status.chunks_shared = sharer->chunks();
    status.bytes_shared = sharer->bytes();
  }
  status.chunks_encoded = impl_->counters.chunks_encoded.load();
  status.bytes_before_encoding = impl_->counters.bytes_before_encoding.load();
  status.bytes_encoded = impl_->counters.bytes_encoded.load();
  if (impl_->watch != nullptr) {
    status.metadata_errors = impl_->watch->errors(kTreeDomain);
    status.metadata_stalled = names_stalled();
  }
  status.metadata_errors += impl_->counters.index_errors.load();
  const Status failure = impl_->health.failure();
  status.chunks_from_copy = impl_->counters.chunks_from_copy.load();
  status.chunks_healed = impl_->counters.chunks_healed.load();
  status.chunks_without_copy = impl_->counters.chunks_without_copy.load();
  status.chunks_fetched = impl_->counters.chunks_fetched.load();
  status.read_only = array_->read_only() || !failure.is_ok();
  if (!failure.is_ok()) status.read_only_reason = failure.message();
  return status;
}

void Store::clear_errors() {
  impl_->counters.clear_errors();
  if (impl_->watch != nullptr) impl_->watch->clear_errors(kTreeDomain);
}

uint64_t Store::bytes_saved() const {
  uint64_t bytes = 0;
  for (const MemberIndex m : array_->members()) bytes += impl_->counters[m].bytes_saved.load(std::memory_order_relaxed);
  return bytes;
}

// --- synchronous forms -----------------------------------------------------------------------------------------------

namespace {

Status control_and_wait(File& file, ControlRequest::Kind kind, FileOffset offset, uint64_t length) {
  Arrival arrival;
  ControlRequest request;
  request.kind = kind;
  request.offset = offset;
  request.length = length;
  request.owner = &arrival;
  request.complete = [](ControlRequest& done, const Status& status) {
    static_cast<Arrival*>(done.owner)->arrive(status);
  };
  file.control(request);
  return arrival.wait();
}

}  // namespace

Status Store::commit_sync(File& file) {
  return control_and_wait(file, ControlRequest::Kind::kCommit, FileOffset(), 0);
}

Status Store::truncate_sync(File& file, uint64_t size) {
  return control_and_wait(file, ControlRequest::Kind::kTruncate, FileOffset(size), 0);
}

Status Store::punch_sync(File& file, FileOffset offset, uint64_t length) {
  return control_and_wait(file, ControlRequest::Kind::kPunchHole, offset, length);
}

Status Store::write_sync(File& file, FileOffset offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    Arrival arrival;
    WriteRequest request;
    request.offset = offset;
    request.length = static_cast<uint32_t>(std::min<size_t>(data.size(), kRequestBytesMax));
    request.data = data.data();
    request.owner = &arrival;
    request.complete = [](WriteRequest& done, const Status& status) {
      static_cast<Arrival*>(done.owner)->arrive(status);
    };
    file.write(request);
    FPFS_RETURN_IF_ERROR(arrival.wait());
    offset += request.length;
    data = data.subspan(request.length);
  }
  return Status::ok();
}

Result<size_t> Store::read_sync(File& file, FileOffset offset, std::span<std::byte> buffer, ReadCursor* cursor) {
  struct Read : ReadRequest {
    Arrival arrival;
    std::byte* to = nullptr;
  };
  size_t total = 0;
  while (total < buffer.size()) {
    Read request;
    request.offset = offset + total;
    request.length = static_cast<uint32_t>(std::min<size_t>(buffer.size() - total, kRequestBytesMax));
    request.cursor = cursor;
    request.to = buffer.data() + total;
    request.complete = [](ReadRequest& done, const Status& status) {
      auto& self = static_cast<Read&>(done);
      for (unsigned i = 0; i < done.iov_count && status.is_ok(); ++i) {
        std::copy_n(static_cast<const std::byte*>(done.iov[i].iov_base), done.iov[i].iov_len, self.to);
        self.to += done.iov[i].iov_len;
      }
      self.arrival.arrive(status);
    };
    file.read(request);
    FPFS_RETURN_IF_ERROR(request.arrival.wait());
    total += request.bytes;
    if (request.bytes < request.length) break;
  }
  return total;
}

}  // namespace fpfs
