#include "engine/file/commit_log.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/array/member_directory.h"
#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {
namespace {

struct AlignedBytes {
  explicit AlignedBytes(size_t wanted)
      : size(wanted), bytes(static_cast<std::byte*>(std::aligned_alloc(kCommitBlock, wanted))) {
    FPFS_CHECK(bytes != nullptr, "some memory is there");
  }
  ~AlignedBytes() { std::free(bytes); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::span<std::byte> span() const { return {bytes, size}; }
  const size_t size;
  std::byte* const bytes;
};

// As long as a log is, and written: what is written over it later needs no place.
Status make_file(Storage& storage, const Array& array, bool anew) {
  FPFS_ASSIGN_OR_RETURN(const Handle handle,
                        storage.open_at(array.metadata_directory(), kCommitsName, O_RDWR | O_CREAT | O_NONBLOCK, 0600));
  const ScopedHandle file(storage, handle);
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(handle));
  if (!anew && static_cast<uint64_t>(attributes.st_size) == kCommitLogBytes) return Status::ok();
  FPFS_RETURN_IF_ERROR(storage.ftruncate(handle, 0));
  FPFS_RETURN_IF_ERROR(storage.pwrite(handle, std::vector<std::byte>(kCommitLogBytes), 0));
  FPFS_RETURN_IF_ERROR(storage.fsync(handle));
  return storage.fsync(array.metadata_directory());
}

}  // namespace

Result<std::unique_ptr<CommitLog>> CommitLog::open(Storage& storage, const Array& array, TaskCounter& tasks,
                                                   Hooks hooks) {
  FPFS_RETURN_IF_ERROR(make_file(storage, array, false));
  FPFS_ASSIGN_OR_RETURN(const auto bytes,
                        read_small_file(storage, array.metadata_directory(), kCommitsName, kCommitLogBytes));
  Result<CommitLogImage> known = decode_commit_log(array.id(), bytes);
  if (known.status().code() == StatusCode::kCorruption) {
    // After a crash recovery has said so.
    FPFS_RETURN_IF_ERROR(make_file(storage, array, true));
    known = CommitLogImage();
  }
  FPFS_ASSIGN_OR_RETURN(const CommitLogImage image, std::move(known));
  FPFS_ASSIGN_OR_RETURN(const Handle handle,
                        storage.open_at(array.metadata_directory(), kCommitsName, O_RDWR | O_DIRECT | O_DSYNC));
  std::unique_ptr<CommitLog> log(
      new CommitLog(storage, array, tasks, std::move(hooks), ScopedHandle(storage, handle), image.next));
  FPFS_RETURN_IF_ERROR(log->write(0, encode_commit_header(array.id(), image.next)));
  return log;
}

CommitLog::CommitLog(Storage& storage, const Array& array, TaskCounter& tasks, Hooks hooks, ScopedHandle file,
                     uint64_t next)
    : storage_(storage), array_(array), tasks_(tasks), hooks_(std::move(hooks)), file_(std::move(file)), next_(next) {
  storage_.assign_domain(file_.get(), kTreeDomain);
}

MadeName CommitLog::about_to_make(Handle directory, const std::string& name) const {
  const uint64_t at = clock_.load();
  Result<std::string> identity = storage_.identity(directory);
  if (!identity.is_ok()) return {};
  return {at, *std::move(identity), name};
}

Status CommitLog::write(uint64_t offset, std::span<const std::byte> bytes) {
  FPFS_RETURN_IF_ERROR(hooks_.check());
  const AlignedBytes aligned(bytes.size());
  std::memcpy(aligned.bytes, bytes.data(), bytes.size());
  FPFS_RETURN_IF_ERROR(storage_.pwrite(file_.get(), aligned.span(), offset));
  return array_.check_tree_running();
}

bool CommitLog::may_append(const Commit& commit) const {
  const Half& half = halves_[filling_];
  return !is_closed_ && changing_ == 0 && last_change_ <= forced_ && last_change_ <= commit.since &&
         half.used < kHalfSlots;
}

bool CommitLog::is_open(const Commit& commit) {
  bool tries_again = false, may = false;
  {
    const MutexLock lock(mutex_);
    may = may_append(commit);
    if (is_closed_) tries_again = !std::exchange(is_task_posted_, true);
  }
  if (tries_again) retire_later(std::chrono::milliseconds(0));
  return may;
}

Result<bool> CommitLog::append(const Commit& commit) {
  if (commit.made.name.empty()) return false;
  if (!is_open(commit)) return false;
  // Attributes beyond these are the drive's filesystem's alone.
  const Result<size_t> others = storage_.list_xattr(commit.sidecar->get(), {});
  if (!others.is_ok() || *others > 0) return false;
  Result<std::string> identity = storage_.identity(commit.sidecar->get());
  if (!identity.is_ok()) return false;
  CommitEntry entry;
  entry.directory = commit.made.directory;
  entry.name = commit.made.name;
  entry.file = *std::move(identity);
  entry.inode = commit.attributes.st_ino;
  entry.mode = commit.attributes.st_mode & 07777;
  entry.owner = commit.attributes.st_uid;
  entry.group = commit.attributes.st_gid;
  entry.mtime = commit.mtime;
  entry.sidecar = std::move(commit.bytes);
  if (!fits_commit_entry(entry)) return false;
  unsigned which = 0, slot = 0;
  bool posts = false, are_many = false;
  {
    const MutexLock lock(mutex_);
    if (!may_append(commit)) return false;
    which = filling_;
    Half& half = halves_[which];
    slot = which * kHalfSlots + half.used++;
    ++half.writing;
    are_many = half.used == kRetiredAt;
    posts = !std::exchange(is_task_posted_, true) || are_many;
    entry.number = next_++;
    half.files.push_back({entry.inode, commit.sidecar});
    ++live_[entry.inode];
    live_count_.store(static_cast<unsigned>(live_.size()));
  }
  std::vector<std::byte> bytes;
  encode_commit_entry(array_.id(), entry, bytes);
  const Status written = write(commit_slot_offset(slot), bytes);
  {
    const MutexLock lock(mutex_);
    --halves_[which].writing;
    is_closed_ |= !written.is_ok();
  }
  written_.notify_all();
  if (posts) retire_later(are_many ? std::chrono::milliseconds(0) : kLiveMax);
  if (!written.is_ok()) return written;
  return true;
}

bool CommitLog::is_live(uint64_t inode) const {
  if (live_count_.load() == 0) return false;
  const MutexLock lock(mutex_);
  return live_.contains(inode);
}

CommitLog::Change::Change(CommitLog* log) : log_(log) {
  if (log_ == nullptr) return;
  const MutexLock lock(log_->mutex_);
  ++log_->changing_;
  log_->last_change_ = log_->clock_.fetch_add(1) + 1;
}

CommitLog::Change::~Change() {
  if (log_ == nullptr) return;
  const MutexLock lock(log_->mutex_);
  --log_->changing_;
  log_->last_change_ = log_->clock_.fetch_add(1) + 1;
}

void CommitLog::forced(uint64_t until) {
  const MutexLock lock(mutex_);
  forced_ = std::max(forced_, until);
}

CommitLog::Retiring::Retiring(CommitLog& log) : log_(log) {
  const MutexLock lock(log_.mutex_);
  while (log_.is_retiring_) log_.retired_.wait(log_.mutex_);
  log_.is_retiring_ = true;
}

CommitLog::Retiring::~Retiring() {
  {
    const MutexLock lock(log_.mutex_);
    log_.is_retiring_ = false;
  }
  log_.retired_.notify_one();
}

// Who waited for others to retire may find that they have had its half.
Status CommitLog::settle(uint64_t inode) {
  if (!is_live(inode)) return Status::ok();
  FPFS_RETURN_IF_ERROR(hooks_.check());
  const Retiring retiring(*this);
  if (is_live(inode)) FPFS_RETURN_IF_ERROR(retire_half(retiring));
  return is_live(inode) ? retire_half(retiring) : Status::ok();  // it was in the other one
}

Status CommitLog::retire_all() {
  const Retiring retiring(*this);
  FPFS_RETURN_IF_ERROR(retire_half(retiring));
  return retire_half(retiring);
}

void CommitLog::retire_later(std::chrono::milliseconds delay) {
  if (delay.count() == 0) return tasks_.post([this] { retire_in_background(); });
  tasks_.post_after(delay, [this] { retire_in_background(); });
}

// What fails leaves the files live: until somebody tries again, or to recovery.
void CommitLog::retire_in_background() {
  const bool answers = hooks_.check().is_ok();
  {
    const MutexLock lock(mutex_);
    is_task_posted_ = false;
    is_closed_ |= !answers;
  }
  if (answers) static_cast<void>(retire_half(Retiring(*this)));
}

// The half that fills, and the other one from then on. When the log is closed, both.
Status CommitLog::retire_half(const Retiring& retiring) {
  std::vector<Live> files;
  std::array<bool, 2> are_retired{};
  uint64_t first = 0;
  bool is_all = false;
  {
    const MutexLock lock(mutex_);
    if (!sync_failure_.is_ok()) return sync_failure_;  // what was not synced then is not by another sync
    const unsigned filling = filling_;
    if (halves_[0].used + halves_[1].used == 0) return Status::ok();
    is_all = is_closed_;                  // as it is now: it may be closed while this waits
    if (!is_all) filling_ = 1 - filling;  // which is empty
    first = next_;
    for (unsigned i = 0; i < 2; ++i) {
      are_retired[i] = is_all || i == filling;
      while (are_retired[i] && halves_[i].writing > 0) written_.wait(mutex_);
      if (are_retired[i]) files.insert(files.end(), halves_[i].files.begin(), halves_[i].files.end());
    }
  }
  Status status = sync(retiring, files);
  if (status.is_ok()) status = write(0, encode_commit_header(array_.id(), first));
  const MutexLock lock(mutex_);
  if (!status.is_ok()) {
    is_closed_ = true;
    return status;
  }
  if (is_all) is_closed_ = false;
  for (const Live& file : files)
    if (const auto found = live_.find(file.inode); found != live_.end() && --found->second == 0) live_.erase(found);
  live_count_.store(static_cast<unsigned>(live_.size()));
  for (unsigned i = 0; i < 2; ++i)
    if (are_retired[i]) halves_[i] = {};
  return Status::ok();
}

// A drive that does not answer is not asked: nothing has failed then.
Status CommitLog::sync(const Retiring&, const std::vector<Live>& files) {
  for (const Live& file : files) storage_.start_writeback(file.sidecar->get());
  for (const Live& file : files) {
    FPFS_RETURN_IF_ERROR(hooks_.check());
    Status synced = storage_.fsync(file.sidecar->get());
    if (synced.is_ok()) synced = array_.check_tree_running();
    if (synced.is_ok()) continue;
    Status failure = synced.with_context(array_.path_in_mount(file.sidecar->get()));
    {
      const MutexLock lock(mutex_);
      sync_failure_ = failure;
    }
    hooks_.fail(failure);
    return failure;
  }
  return Status::ok();
}

}  // namespace fpfs
