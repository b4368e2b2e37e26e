#include "engine/store/store.h"

#include <fcntl.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "engine/base/log.h"
#include "engine/check/check.h"
#include "engine/io/scoped_handle.h"
#include "engine/store/store_impl.h"

namespace fpfs {

namespace {

Status check_options(const StoreOptions& options, uint32_t chunk_size) {
  auto refuse = [](std::string what) { return Status::error(StatusCode::kInvalidArgument, std::move(what)); };
  if (options.queue_depth < 1 || options.queue_depth > 1024)
    return refuse(fmt::format("queue_depth={} is out of range; use 1 to 1024", options.queue_depth));
  if (options.read_ahead > 1024)
    return refuse(fmt::format("read_ahead={} is out of range; use 0 (automatic) to 1024 chunks", options.read_ahead));
  if (options.inline_max > kInlineSizeMax)
    return refuse(fmt::format("inline files of {} bytes; the limit is {}", options.inline_max, kInlineSizeMax));
  const uint64_t least =
      chunk_size * std::max<uint64_t>(BufferPool::kBuffersMin, 2 * (kRequestBytesMax / chunk_size + 1));
  if (options.buffer_memory < least)
    return refuse(fmt::format("buffer_memory={} is too small; chunks of {} need at least {}",
                              format_size(options.buffer_memory), format_size(chunk_size), format_size(least)));
  return Status::ok();
}

// For the indexes of open files: 6.5 TiB of them in chunks of 1 MiB.
constexpr uint64_t kIndexMemoryLeast = 256 * kMiB;

// Closed files whose change time is remembered; some 6 MiB at most.
constexpr size_t kChangeTimesMax = 65536;

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
  stripes = array->stripes();
  opened_at = environment->now();
  FPFS_RETURN_IF_ERROR(check_options(options, stripes.chunk_size));
  FPFS_ASSIGN_OR_RETURN(pool, BufferPool::create(options.buffer_memory, stripes.chunk_size));
  chunks = std::make_unique<CachedChunk[]>(pool->total());
  index_entries_max = options.index_chunks != 0
                          ? options.index_chunks
                          : std::max(options.buffer_memory, kIndexMemoryLeast) / ExtentTable::kEntryBytesMax;
  counters = std::make_unique<MemberCounters[]>(stripes.member_count);
  // Not touched before they are read: then they cost no memory.
  zeros.reset(static_cast<std::byte*>(std::calloc(kReadBytesMax, 1)));
  if (zeros == nullptr) return Status::from_errno(ENOMEM, "allocate buffers");
  room = std::make_unique<Room>(storage(), *array, pool->total() * uint64_t{pool->buffer_size()});
  spares = std::make_unique<SpareObjects>(*this);
  start_timers();
  // Deep enough to keep every member busy while the reader works through what arrived; never the whole pool.
  if (options.read_ahead == 0) options.read_ahead = std::max(8U, 4U * stripes.member_count);
  options.read_ahead = std::min(options.read_ahead, pool->total() / 4);
  pool->set_retry_hook(
      [](void* self) {
        auto& impl = *static_cast<Impl*>(self);
        impl.post_after(std::chrono::milliseconds(1), [&impl] {
          impl.pool->retry_waiters();
          impl.relieve_pressure();
        });
      },
      this);
  pool->set_pressure_hook(
      [](void* self) {
        auto& impl = *static_cast<Impl*>(self);
        // With writes under way the end of the last one looks again.
        if (impl.relieving_.load() || impl.writes_in_flight.load() > 0) return;
        impl.post([&impl] { impl.relieve_pressure(); });
      },
      this);
  io = std::make_unique<ChunkIo>(*this);
  for (MemberIndex m = 0; m < stripes.member_count; ++m) {
    std::unique_ptr<IoQueue> queue;
    if (array->member(m).present) {
      FPFS_ASSIGN_OR_RETURN(queue, environment->make_queue(m, options.queue_depth));
    }
    io->add_queue(std::move(queue));
  }
  start_watching();
  return Status::ok();
}

void Store::Impl::start_timers() {
  spare_timer_.open(environment->executor(), options.spare_life, [this] { return give_up_old_spares(); });
  // Often enough that a trickle is late by a part of what it asked for.
  const auto sooner = [](unsigned a, unsigned b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); };
  const unsigned soonest = sooner(options.commit_interval_ms, options.commit_idle_ms);
  const auto interval = std::chrono::milliseconds(soonest == 0 ? 0 : std::clamp(soonest / 5, 1U, 1000U));
  trickle_timer_.open(environment->executor(), interval, [this] { return commit_trickles(); });
}

void Store::Impl::end_timers() {
  spare_timer_.end();
  trickle_timer_.end();
}

bool Store::Impl::commit_trickles() {
  bool again = false;
  for (const std::shared_ptr<File>& file : files()) again |= file->commit_trickle();
  return again;
}

void Store::Impl::start_watching() {
  watch = environment->watch();
  if (watch == nullptr) return;
  watch->set_name(StallWatch::kTree, fmt::format("the drive that holds the names ({})", array->metadata_path()));
  for (MemberIndex m = 0; m < stripes.member_count; ++m) {
    watch->set_name(m, fmt::format("member {} ({})", m, array->member(m).path));
    if (const IoQueue* const queue = io->queue(m))
      registrations_.push_back(watch->add_source(m, [queue] { return queue->oldest_transfer_ns(); }));
  }
  registrations_.push_back(watch->add_listener([this](StallWatch::Domain domain) { member_stalled(domain); }));
}

bool Store::Impl::is_stalled(MemberIndex member) const {
  if (watch == nullptr) return false;
  const bool holds_the_tree = array->superblock().metadata_member == member;
  return watch->is_stalled(member) || (holds_the_tree && watch->is_stalled(StallWatch::kTree));
}

void Store::Impl::stop_watching() {
  registrations_.clear();
}

// On the watch's thread, now and then while the domain does not answer.
void Store::Impl::member_stalled(StallWatch::Domain domain) {
  const Status failure = watch->check(domain);
  if (failure.is_ok() || domain == StallWatch::kElsewhere) return;
  if (domain < stripes.member_count) io->fail_waiting(static_cast<MemberIndex>(domain), failure);
  for (const std::shared_ptr<File>& file : files()) file->member_stalled(domain, failure);
  const auto limit_ns = static_cast<uint64_t>(std::chrono::nanoseconds(watch->limit()).count());
  const uint64_t now = StallWatch::monotonic_ns();
  pool->expire_waiters(now > limit_ns ? now - limit_ns : 0);
}

void Store::Impl::relieve_pressure() {
  if (!pool->has_waiters() || writes_in_flight.load() > 0) return;
  if (relieving_.exchange(true)) return;
  for (const std::shared_ptr<File>& file : files()) file->flush_for_pressure();
  relieving_.store(false);
}

// Counts a task as outstanding until what it holds is gone too.
Executor::Task Store::Impl::counted(Executor::Task task) {
  MutexLock lock(tasks_mutex_);
  ++tasks_;
  return [this, task = std::move(task)]() mutable {
    task();
    task = nullptr;
    MutexLock done_lock(tasks_mutex_);
    if (--tasks_ == 0) tasks_done_.notify_all();
  };
}

void Store::Impl::post(Executor::Task task) {
  environment->executor().post(counted(std::move(task)));
}

void Store::Impl::post_after(std::chrono::milliseconds delay, Executor::Task task) {
  environment->executor().post_after(delay, counted(std::move(task)));
}

unsigned Store::Impl::tasks_outstanding() const {
  MutexLock lock(tasks_mutex_);
  return tasks_;
}

void Store::Impl::wait_for_tasks() {
  MutexLock lock(tasks_mutex_);
  while (tasks_ > 0) tasks_done_.wait(tasks_mutex_);
}

void Store::Impl::fail_array(const Status& status) {
  MutexLock lock(failure_mutex_);
  if (!failure_.is_ok()) return;
  failure_ = Status::error(StatusCode::kReadOnly, "the array turned read-only: " + status.message());
  failed_.store(true);
  had_failure_.store(true);
  log(LogLevel::kError, "{}; unmount, look at the drive, run fsck.fastpersistfs", failure_.message());
}

Status Store::Impl::array_failure() const {
  if (!failed_.load(std::memory_order_acquire)) return Status::ok();
  MutexLock lock(failure_mutex_);
  return failure_;
}

void Store::Impl::remember_change_time(uint64_t key, const ChangeTime& time) {
  if (time.own.tv_sec == 0 && time.own.tv_nsec == 0) return;  // nothing was committed
  MutexLock lock(change_times_mutex_);
  if (change_times_.insert_or_assign(key, time).second) change_times_order_.push_back(key);
  if (change_times_order_.size() <= kChangeTimesMax) return;
  change_times_.erase(change_times_order_.front());
  change_times_order_.pop_front();
}

ChangeTime Store::Impl::recall_change_time(uint64_t key) {
  MutexLock lock(change_times_mutex_);
  const auto found = change_times_.find(key);
  return found == change_times_.end() ? ChangeTime() : found->second;
}

// Losses that are kept by file; whatever number of files a drive takes with it.
constexpr size_t kLossesMax = 1024;
constexpr size_t kUnsyncedMax = 16;
constexpr size_t kNewNamesMax = 64;

void Store::Impl::note_loss(uint64_t key, const Status& loss) {
  MutexLock lock(failure_mutex_);
  had_failure_.store(true);
  if (first_loss_.is_ok()) first_loss_ = loss;
  if (losses_.size() < kLossesMax) losses_[key] = loss;
  has_losses_.store(true);
}

Status Store::Impl::take_loss(uint64_t key) {
  if (!has_losses_.load()) return Status::ok();
  MutexLock lock(failure_mutex_);
  const auto found = losses_.find(key);
  if (found == losses_.end()) return Status::ok();
  const Status loss = found->second;
  losses_.erase(found);
  has_losses_.store(!losses_.empty());
  return loss;
}

Status Store::Impl::take_any_loss() {
  MutexLock lock(failure_mutex_);
  const Status loss = losses_.empty() ? Status::ok() : losses_.begin()->second;
  losses_.clear();
  has_losses_.store(false);
  return loss;
}

Status Store::Impl::first_loss() const {
  MutexLock lock(failure_mutex_);
  return first_loss_;
}

void Store::Impl::note_unsynced(const File& file) {
  MutexLock lock(failure_mutex_);
  if (unsynced_.size() < kUnsyncedMax) unsynced_.try_emplace(file.key(), file.path());
  has_unsynced_.store(true);
}

void Store::Impl::note_synced(const File& file) {
  if (!has_unsynced_.load()) return;
  MutexLock lock(failure_mutex_);
  unsynced_.erase(file.key());
}

Status Store::Impl::sync_tree() {
  FPFS_RETURN_IF_ERROR(array_failure());
  std::map<uint64_t, std::string> covered;
  {
    MutexLock lock(failure_mutex_);
    covered.swap(unsynced_);
  }
  Status synced = storage().sync_filesystem(array->tree());
  if (synced.is_ok()) synced = array->check_tree_running();
  if (synced.is_ok()) return synced;
  count_tree_error();
  std::string at_risk;
  for (const auto& [key, path] : covered) at_risk += (at_risk.empty() ? "" : ", ") + path;
  if (!at_risk.empty()) at_risk = "; it may have lost what was closed in " + at_risk;
  if (covered.size() == kUnsyncedMax) at_risk += " and others";
  fail_array(Status::error(synced.code(), synced.message() + at_risk));
  return array_failure();
}

void Store::Impl::keep_new_name(uint64_t key, ScopedHandle directory) {
  ScopedHandle surplus;
  {
    MutexLock lock(new_names_mutex_);
    const bool is_known =
        std::any_of(new_names_.begin(), new_names_.end(), [key](const auto& name) { return name.first == key; });
    if (!is_known) {
      new_names_.emplace_back(key, std::move(directory));
      has_new_names_.store(true);
      if (new_names_.size() > kNewNamesMax) {
        surplus = std::move(new_names_.front().second);
        new_names_.pop_front();
      }
    }
  }
  // (When it is known, it was moved meanwhile, and the directory that it came from is synced with where it went.)
  if (surplus.is_open()) reclaim({}, std::move(surplus));  // which syncs it
}

void Store::Impl::forget_new_name(uint64_t key) {
  if (!has_new_names_.load()) return;
  MutexLock lock(new_names_mutex_);
  std::erase_if(new_names_, [key](const auto& name) { return name.first == key; });
  has_new_names_.store(!new_names_.empty());
}

Result<ScopedHandle> Store::Impl::new_name_of(uint64_t key) {
  if (!has_new_names_.load()) return ScopedHandle();
  MutexLock lock(new_names_mutex_);
  for (const auto& [file, directory] : new_names_) {
    if (file != key) continue;
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage().reopen(directory.get(), O_RDONLY | O_DIRECTORY));
    return ScopedHandle(storage(), handle);
  }
  return ScopedHandle();
}

void Store::Impl::close_new_names() {
  MutexLock lock(new_names_mutex_);
  new_names_.clear();
}

Generation Store::Impl::claim_generation(FileId file, Generation wanted) {
  MutexLock lock(generations_mutex_);
  const auto [claim, is_first] = claimed_generations_.try_emplace(file, wanted);
  if (!is_first) claim->second = std::max(claim->second + 1, wanted);
  return claim->second;
}

void Store::Impl::settle_generation(FileId file, Generation generation) {
  MutexLock lock(generations_mutex_);
  const auto claim = claimed_generations_.find(file);
  if (claim != claimed_generations_.end() && claim->second <= generation) claimed_generations_.erase(claim);
}

std::shared_ptr<File> Store::Impl::find(uint64_t inode) {
  MutexLock lock(mutex_);
  auto it = files_.find(inode);
  return it == files_.end() ? nullptr : it->second.lock();
}

void Store::Impl::insert(const std::shared_ptr<File>& file) {
  MutexLock lock(mutex_);
  if (files_.size() >= sweep_at_) {
    std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<size_t>(64, 2 * files_.size());
  }
  files_[file->key()] = file;
}

std::vector<std::shared_ptr<File>> Store::Impl::files() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<File>> result;
  for (const auto& [inode, weak] : files_)
    if (auto file = weak.lock()) result.push_back(std::move(file));
  // Ascending by inode: the order must not depend on hashing (simulations replay).
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a->key() < b->key(); });
  return result;
}

// --- life -----------------------------------------------------------------------------------------------------------

Store::Store(Environment& environment, StoreOptions options)
    : environment_(environment),
      options_(options),
      shares_(options.shared_handles),
      impl_(std::make_unique<Impl>(options)) {}

Result<std::unique_ptr<Store>> Store::open(Environment& environment, const std::vector<std::string>& directories,
                                           const StoreOptions& options) {
  std::unique_ptr<Store> store(new Store(environment, options));
  if (environment.watch() != nullptr) environment.watch()->start(std::chrono::milliseconds(options.io_timeout_ms));
  FPFS_ASSIGN_OR_RETURN(store->array_, Array::open(environment, directories, options.array));
  Impl& impl = *store->impl_;
  impl.environment = &environment;
  impl.array = store->array_.get();
  FPFS_RETURN_IF_ERROR(impl.start());
  store->options_ = impl.options;
  if (store->array_->read_only()) return store;
  FPFS_RETURN_IF_ERROR(store->array_->begin_changes());
  store->recovery_.was_dirty = store->array_->was_dirty();
  if (store->recovery_.was_dirty) {
    FPFS_ASSIGN_OR_RETURN(const RecoveryCounts counts, recover_array(environment, *store->array_));
    store->recovery_.orphans_removed = counts.orphans_removed;
    store->recovery_.torn_tails = counts.torn_tails;
    store->recovery_.bytes_freed = counts.bytes_freed;
  }
  FPFS_RETURN_IF_ERROR(store->array_->mark_dirty());
  return store;
}

Status Store::close() {
  Arrival arrival;
  close_async([&arrival](const Status& status) { arrival.arrive(status); });
  const Status status = arrival.wait();
  impl_->wait_for_tasks();
  return status;
}

void Store::close_async(std::function<void(const Status&)> done) {
  impl_->end_timers();
  commit_all(
      ControlRequest::Kind::kClose, ControlRequest::Unfinished::kTricklesCommitted,
      [this, done = std::move(done)](const CommitOutcome& outcome) {
        Status status = outcome.status;
        for (const std::string& path : outcome.unfinished)
          log(LogLevel::kError, "{} was being written when the array was closed: it is left as after a crash", path);
        if (!outcome.unfinished.empty()) {
          impl_->note_failure();
          if (status.is_ok())
            status = Status::error(
                StatusCode::kBusy,
                fmt::format("{} files were being written and are left as after a crash", outcome.unfinished.size()));
        }
        finish_close(status, done);
      });
}

// Waits, by looking again, until the background work of the commits is done too, and the last transfers: one may hold
// the last reference to a removed file, whose objects are freed with it.
void Store::finish_close(const Status& synced, const std::function<void(const Status&)>& done) {
  impl_->free_spares();
  if (impl_->tasks_outstanding() > 0 || impl_->io->under_way() > 0) {
    environment_.executor().post_after(std::chrono::milliseconds(1),
                                       [this, synced, done] { finish_close(synced, done); });
    return;
  }
  Status status = impl_->first_loss();
  if (status.is_ok()) status = synced;
  if (status.is_ok()) status = impl_->array_failure();
  if (status.is_ok() && !array_->read_only() && !impl_->had_failure()) {
    // "Clean" says that nothing is left to free, so what was freed must not come back with a power cut.
    for (MemberIndex m = 0; m < array_->member_count() && status.is_ok(); ++m) {
      status = storage().sync_filesystem(array_->member(m).objects);
      if (status.is_ok()) status = array_->check_running(m);
    }
    if (status.is_ok()) {
      status = array_->mark_clean();
      left_clean_ = status.is_ok();
      // Whether the mark is gone is not known: it is put back, should the drive still take it.
      if (!status.is_ok()) static_cast<void>(array_->mark_dirty());
    }
  }
  done(status);
}

Store::~Store() {
  // No file starts anything any more; what is under way ends (in a simulation that lost its power it is gone already);
  // then the files go, then what they share.
  impl_->end_timers();
  impl_->stop_watching();
  impl_->close_new_names();
  for (const std::shared_ptr<File>& file : impl_->files()) file->abandon();
  if (impl_->io != nullptr) impl_->io->close_queues();
  if (!environment_.is_simulated()) impl_->wait_for_tasks();
  if (impl_->chunks != nullptr)
    for (unsigned i = 0; i < impl_->pool->total(); ++i) {
      const std::shared_ptr<File> keep = std::move(impl_->chunks[i].keep);
      const std::shared_ptr<ObjectSet> objects = std::move(impl_->chunks[i].transfer.objects);
    }
}

bool Store::names_stalled() const {
  return impl_->watch != nullptr && impl_->watch->is_stalled(StallWatch::kTree);
}

bool Store::read_only() const {
  return array_->read_only() || !impl_->array_failure().is_ok();
}

bool Store::populate_buffers() {
  return impl_->pool->populate_some();
}

// --- files ----------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<File>> Store::open_file(Handle node, bool for_writing) {
  if (for_writing && array_->read_only()) return Status::error(StatusCode::kReadOnly, "the array is mounted read-only");
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
  if (!S_ISREG(attributes.st_mode)) return Status::error(StatusCode::kInvalidArgument, "not a regular file");
  MutexLock lock(impl_->name_lock(attributes.st_ino));
  const int flags = for_writing ? O_RDWR : O_RDONLY;
  if (std::shared_ptr<File> file = impl_->find(attributes.st_ino)) {
    if (for_writing && !file->is_writable()) {
      FPFS_ASSIGN_OR_RETURN(const Handle sidecar, storage().reopen(node, flags));
      file->make_writable(ScopedHandle(storage(), sidecar));
    }
    return file;
  }
  FPFS_ASSIGN_OR_RETURN(const Handle reopened, storage().reopen(node, flags));
  ScopedHandle sidecar(storage(), reopened);
  FPFS_ASSIGN_OR_RETURN(const struct stat now, storage().fstat(reopened));
  Removed* removed = now.st_nlink == 0 ? impl_->find_removed(now.st_ino) : nullptr;
  // Its objects may be gone already; nobody has it open.
  if (now.st_nlink == 0 && removed == nullptr) return Status::from_errno(ESTALE, "open a removed file");
  FPFS_ASSIGN_OR_RETURN(ScopedHandle new_name_in, impl_->new_name_of(now.st_ino));
  FPFS_ASSIGN_OR_RETURN(std::shared_ptr<File> file,
                        File::open(*impl_, std::move(sidecar), for_writing, std::move(new_name_in)));
  if (removed != nullptr) removed->adopt(file);
  impl_->insert(file);
  return file;
}

void Store::commit_all(ControlRequest::Kind kind, ControlRequest::Unfinished unfinished,
                       std::function<void(const CommitOutcome&)> done) {
  struct Job {
    std::vector<ControlRequest> requests;
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
      store->impl_->post([this] {
        std::unique_ptr<Job> self(this);
        for (size_t i = 0; i < files.size(); ++i)
          if (requests[i].was_left_alone) outcome.unfinished.push_back(files[i]->path());
        if (!store->array_->read_only()) {
          const Status synced = store->impl_->sync_tree();
          if (outcome.status.is_ok()) outcome.status = synced;
        }
        const Status loss = store->impl_->take_any_loss();
        if (outcome.status.is_ok()) outcome.status = loss;
        files.clear();
        done(outcome);
      });
    }
  };
  auto* job = new Job;
  job->store = this;
  job->done = std::move(done);
  job->files = impl_->files();
  job->requests.resize(job->files.size());
  job->pending = job->files.size() + 1;
  for (size_t i = 0; i < job->files.size(); ++i) {
    if (kind == ControlRequest::Kind::kClose) job->files[i]->promise();
    job->requests[i].kind = kind;
    job->requests[i].unfinished = unfinished;
    job->requests[i].owner = job;
    job->requests[i].complete = [](ControlRequest& request, const Status& status) {
      static_cast<Job*>(request.owner)->arrive(status);
    };
    job->files[i]->control(job->requests[i]);
  }
  job->arrive(Status::ok());
}

StoreStatus Store::status() const {
  StoreStatus status;
  for (MemberIndex m = 0; m < array_->member_count(); ++m) {
    const Member& member = array_->member(m);
    const MemberCounters& counters = impl_->counters[m];
    MemberStatus entry;
    entry.path = member.path;
    entry.present = member.present;
    entry.outdated = member.outdated;
    entry.stalled = impl_->is_stalled(m);
    if (member.present)
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
  for (const std::shared_ptr<File>& file : impl_->files()) {
    ++status.open_files;
    if (file->is_dirty()) ++status.dirty_files;
  }
  status.commits = impl_->commits.load();
  status.pending_frees = impl_->pending_frees();
  if (impl_->watch != nullptr) {
    status.metadata_errors = impl_->watch->errors(StallWatch::kTree);
    status.metadata_stalled = names_stalled();
  }
  const Status failure = impl_->array_failure();
  status.read_only = array_->read_only() || !failure.is_ok();
  if (!failure.is_ok()) status.read_only_reason = failure.message();
  return status;
}

// --- synchronous forms -----------------------------------------------------------------------------------------------

namespace {

Status control_and_wait(File& file, ControlRequest::Kind kind, uint64_t offset, uint64_t length) {
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
  return control_and_wait(file, ControlRequest::Kind::kCommit, 0, 0);
}

Status Store::truncate_sync(File& file, uint64_t size) {
  return control_and_wait(file, ControlRequest::Kind::kTruncate, size, 0);
}

Status Store::punch_sync(File& file, uint64_t offset, uint64_t length) {
  return control_and_wait(file, ControlRequest::Kind::kPunchHole, offset, length);
}

Status Store::write_sync(File& file, uint64_t offset, std::span<const std::byte> data) {
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

Result<size_t> Store::read_sync(File& file, uint64_t offset, std::span<std::byte> buffer, ReadCursor* cursor) {
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
