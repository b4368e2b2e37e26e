#include "engine/file/file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/log.h"
#include "engine/index/sidecar_file.h"
#include "engine/io/awaited_thread.h"

namespace fpfs {

Result<std::shared_ptr<File>> File::open(FileContext& context, std::shared_ptr<const ScopedHandle> sidecar,
                                         const struct stat& attributes, bool writable, NewName new_name) {
  auto file =
      std::shared_ptr<File>(new File(context, std::move(sidecar), writable, std::move(new_name), attributes.st_ino));
  {
    MutexLock lock(file->mutex_);
    file->content_.set_mtime(attributes.st_mtim);
    file->content_.set_change_time(context.change_times.recall(file->inode_));
    // An earlier, lazy commit may not be durable, nor the name: the next commit sees to it, whoever opened the file
    // first. (Clocks of filesystems are coarse.)
    const bool may_be_lazy = context.closes_lazily.load() && attributes.st_ctim.tv_sec + 1 >= context.opened_at.tv_sec;
    file->unsynced_ = may_be_lazy && attributes.st_size > 0;
    if (may_be_lazy && !context.files_sync_names) file->names_.may_be_new();
    FPFS_RETURN_IF_ERROR(file->load_image(attributes));
    if (!file->unsynced_) file->durable_ = file->log_.sequence;
    file->content_since_ = file->log_.sequence;
  }
  return file;
}

File::File(FileContext& context, std::shared_ptr<const ScopedHandle> sidecar, bool writable, NewName new_name,
           uint64_t inode)
    : context_(context),
      member_count_(context.array.member_count()),
      inode_(inode),
      message_handle_(sidecar->get()),
      sidecar_(std::move(sidecar)),
      writable_(writable),
      names_(std::move(new_name)),
      compression_(context.options.compression),
      stripes_(context.array.stripes_among(member_count_).value_or(context.stripes)),
      content_(context.stripes),
      placement_(member_count_),
      reserved_(*context.room, stripes_),
      cache_(*context.pool, context.chunks.get()),
      verifier_({context.storage(), context.array, *context.pool, *context.io, context.tasks, context.counters},
                *this) {}

// Nobody else can reach the file any more: no lock is needed, none of the lists can change.
File::~File() FPFS_NO_THREAD_SAFETY_ANALYSIS {
  {
    // The lock excludes an eviction that found one of the buffers before it leaves the pool's list.
    MutexLock lock(mutex_);
    cache_.for_each_dirty([this](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS { mark_clean(chunk); });
    cache_.clear();
    reserved_.remove(content_.file_id(), ChunkIndex(0), kChunksEnd);
  }
  // Objects that nothing names any more: those of a file without a name (once the removal of the name is durable), and
  // those of a generation that no commit recorded.
  std::vector<DoomedObjects> doomed;
  const bool nameless = names_.is_nameless();
  if (!abandoned_) {
    const auto doom = [&](const std::shared_ptr<ObjectSet>& objects) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      doomed.push_back(DoomedObjects::of(objects, error_.is_ok()));
    };
    const std::shared_ptr<ObjectSet>& current = placement_.objects();
    if (current != nullptr && (nameless || !current->is_recorded())) doom(current);
    for (const std::shared_ptr<ObjectSet>& objects : placement_.retired().objects)
      if (nameless || !objects->is_recorded()) doom(objects);
    if (nameless) context_.generations.end_claim(content_.file_id(), content_.generation());
  }
  if (!doomed.empty()) context_.reclaimer->reclaim(std::move(doomed), names_.take_removed_from());
  if (nameless) context_.reclaimer->note_released(inode_);
  if (!nameless && !abandoned_) context_.change_times.remember(inode_, content_.change_time());
}

namespace {

// Reading an index takes several times the memory that it takes when it was read: one large one at a time.
Result<FileImage> read_index(FileContext& context, uint16_t member_count, StorageSidecarReader& reader,
                             SidecarFindings& findings) {
  const auto fold = [&] {
    return fold_sidecar(reader, context.array.id(), member_count, context.stripes.chunk_size, &findings);
  };
  constexpr SidecarOffset kSmall(kMiB);
  if (reader.end() <= kSmall) return fold();
  MutexLock lock(context.indexes.large_one());
  return fold();
}

}  // namespace

Status File::load_image(const struct stat& attributes) {
  const SidecarOffset end(static_cast<uint64_t>(attributes.st_size));
  StorageSidecarReader reader(context_.storage(), sidecar_->get(), end);
  SidecarFindings findings;
  Result<FileImage> image = read_index(context_, member_count_, reader, findings);
  if (!image.is_ok()) return image.status();
  if (findings.torn_tail && !context_.array.may_be_torn(context_.storage(), sidecar_->get(), attributes))
    return damaged_tail(image->end, findings);
  if (image->sequence > kSequenceMax / 2)
    return Status::error(StatusCode::kCorruption,
                         fmt::format("sidecar record {}: nobody commits as often", image->sequence));
  const uint64_t entries = image->extents.count();
  if (!context_.indexes.fits(entries)) return context_.indexes.refuse(entries).with_context(path());
  cache_inline(image->inline_data);
  log_ = {image->sequence, image->end, image->snapshot_offset};
  content_.load(std::move(*image), context_.indexes.entries());
  FPFS_RETURN_IF_ERROR(take_slots());
  if (log_.sequence > 0 && !content_.is_inline())
    placement_.set_objects(std::make_shared<ObjectSet>(context_.storage(), context_.array, nullptr, member_count_,
                                                       content_.file_id(), content_.generation(), true));
  return Status::ok();
}

// Two chunks in one slot: at most one of them is right, and giving back the other's would free it. Where nothing is
// changed, that one can be read.
Status File::take_slots() {
  Status contradiction;
  content_.extents().for_each(
      ChunkIndex(0), [&](ChunkIndex chunk, const Extent& extent) FPFS_NO_THREAD_SAFETY_ANALYSIS {
        if (extent.is_here() && !placement_.take(extent.member, extent.slot) && !context_.array.read_only())
          contradiction = Status::error(StatusCode::kCorruption,
                                        fmt::format("chunk {} is said to lie in slot {} of member {}, as another chunk",
                                                    chunk, extent.slot, extent.member));
        return contradiction.is_ok();
      });
  return contradiction;
}

// --- after the lock -------------------------------------------------------------------------------------------------

void File::run(Deferred& deferred) {
  while (ControlRequest* request = deferred.controls.pop_front()) {
    const Status result = std::move(request->result);
    request->complete(*request, result);
  }
  start_loads(deferred.submits);
  start_loads(deferred.ahead);
  if (deferred.commit != nullptr) post_object_syncs(deferred.commit);
  while (ReadRequest* request = deferred.reads.pop_front()) {
    const AwaitedThread::Scope awaited(AwaitedThread::is_this() || !deferred.reads.is_empty());
    request->file->go_on(*request);
  }
  while (WriteRequest* request = deferred.writes.pop_front()) {
    const AwaitedThread::Scope awaited(AwaitedThread::is_this() || !deferred.writes.is_empty());
    request->file->go_on(*request);
  }
  context_.pool->run_waiters();
}

// What goes on copies, out of the buffers or into them. Many copies go side by side.

void File::go_on(ReadRequest& request) {
  if (request.length < kHandedOverMin || !AwaitedThread::is_this()) return continue_read(request);
  context_.tasks.post_work([&request] { request.file->continue_read(request); });
}

void File::go_on(WriteRequest& request) {
  if (request.length < kHandedOverMin || !AwaitedThread::is_this()) return continue_write(request);
  context_.tasks.post_work([&request] { request.file->continue_write(request); });
}

// --- chunks ---------------------------------------------------------------------------------------------------------

// It is no part of the content any more; its buffer is freed when its last user is gone.
void File::detach(CachedChunk& chunk, Deferred& deferred) {
  if (chunk.dirty) mark_clean(chunk);
  cache_.detach(chunk, deferred);
}

bool File::try_evict(Buffer& buffer) FPFS_NO_THREAD_SAFETY_ANALYSIS {
  if (!mutex_.try_lock()) return false;
  evict_locked(buffer);
  mutex_.unlock();
  return true;
}

void File::evict_locked(Buffer& buffer) FPFS_NO_THREAD_SAFETY_ANALYSIS {
  cache_.evict(buffer);
}

void File::fail(const Status& status) {
  if (error_.is_ok()) {
    log(LogLevel::kError, "{}; the file keeps its last committed content, writers get the error",
        status.with_context(path()).message());
    error_ = status;
    // What has no name replaces nothing, and its inode may soon be another file's.
    context_.health.note_file_failure(inode_, path(), names_.is_nameless() ? Status::ok() : status);
    if (promised_) context_.health.note_loss(inode_, path(), status);
    leave(names_.leave_new());
  }
}

void File::leave(NewName name) {
  if (!name.exists || names_.is_nameless()) return;
  if (!name.directory.is_open()) {
    if (!context_.files_sync_names) return;  // it is the next opener's, see open()
    const Result<Handle> own = context_.storage().duplicate(sidecar_->get());
    if (!own.is_ok()) return;  // nobody was told that it is durable
    name.directory = ScopedHandle(context_.storage(), *own);
  }
  context_.new_names->keep(inode_, std::move(name.directory));
}

// --- state ----------------------------------------------------------------------------------------------------------

uint64_t File::size() const {
  MutexLock lock(mutex_);
  return content_.size();
}

FileId File::id() const {
  MutexLock lock(mutex_);
  return content_.file_id();
}

bool File::is_dirty() const {
  MutexLock lock(mutex_);
  return needs_commit() || commit_ != nullptr;
}

uint64_t File::content_since() const {
  MutexLock lock(mutex_);
  const bool is_changing = content_.is_changed() || (commit_ != nullptr && commit_->has_record && !commit_->is_moved);
  return is_changing || !writers_.is_empty() || !error_.is_ok() ? UINT64_MAX : content_since_;
}

Status File::error() const {
  MutexLock lock(mutex_);
  return error_;
}

bool File::is_given_up() const {
  MutexLock lock(mutex_);
  return !error_.is_ok() && !writers_.is_unfinished(false);
}

uint64_t File::clean_commit() const {
  MutexLock lock(mutex_);
  return needs_commit() || commit_ != nullptr || !error_.is_ok() ? 0 : log_.sequence;
}

bool File::is_writable() const {
  MutexLock lock(mutex_);
  return writable_;
}

void File::overlay(struct stat& attributes) {
  MutexLock lock(mutex_);
  uint64_t allocated = content_.allocated_bytes();
  cache_.for_each_dirty([&](const CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (!content_.extent(chunk.index).is_here()) allocated += round_up(chunk.length, 512);
  });
  attributes.st_size = static_cast<off_t>(content_.size());
  attributes.st_blocks = static_cast<blkcnt_t>(allocated / 512);
  attributes.st_mtim = content_.mtime();
  content_.tell_mtime();
  attributes.st_ctim = content_.change_time().show(attributes.st_ctim);
}

Result<FileOffset> File::seek(FileOffset offset, bool hole) const {
  MutexLock lock(mutex_);
  const FileOffset end = content_.end();
  if (offset >= end) return Status::from_errno(ENXIO, "seek past the end of the file");
  const uint32_t chunk_size = context_.stripes.chunk_size;
  const ChunkIndex first = context_.stripes.chunk_of(offset);
  const bool in_data = context_.stripes.offset_in_chunk(offset) < data_end(first);
  if (in_data != hole) return offset;
  if (hole) {
    ChunkIndex chunk = first;
    while (data_end(chunk) == chunk_size && offset_of(chunk + 1, chunk_size) < end) ++chunk;
    return std::min(offset_of(chunk, chunk_size) + data_end(chunk), end);
  }
  ChunkIndex next = kChunksEnd;
  content_.extents().for_each(first + 1, [&next](ChunkIndex found, const Extent&) {
    next = found;
    return false;
  });
  cache_.for_each([&next, first](const CachedChunk& cached) {
    if (cached.index > first && cached.length > 0) next = std::min(next, cached.index);
  });
  if (next >= context_.stripes.chunks_end(end)) return Status::from_errno(ENXIO, "no data after this offset");
  return offset_of(next, chunk_size);
}

bool File::has_data(ChunkIndex chunk) const {
  return content_.is_stored(chunk) || cache_.find(chunk) != nullptr;
}

std::optional<ChunkIndex> File::next_stored(ChunkIndex first) const {
  MutexLock lock(mutex_);
  if (first == ChunkIndex(0) && content_.is_inline()) return first;
  std::optional<ChunkIndex> next;
  content_.extents().for_each(first, [&next](ChunkIndex chunk, const Extent& extent) {
    if (extent.is_here()) next = chunk;
    return !next.has_value();
  });
  return next;
}

ChunkVerifier::Source::Place File::place_of(ChunkIndex chunk) const {
  MutexLock lock(mutex_);
  return {.extent = content_.extent(chunk),
          .objects = placement_.objects(),
          .is_inline = chunk == ChunkIndex(0) && content_.is_inline() && log_.sequence > 0,
          .sidecar = sidecar_,
          .log = log_};
}

std::vector<File::MappedExtent> File::map(ChunkIndex first, size_t limit, Mapped which) const {
  MutexLock lock(mutex_);
  std::vector<MappedExtent> result;
  content_.extents().for_each(first, [&](ChunkIndex chunk, const Extent& extent) {
    if (result.size() == limit) return false;
    if (extent.is_here() || which == Mapped::kEverywhere) result.push_back({chunk, extent});
    return true;
  });
  return result;
}

File::Info File::info() const {
  MutexLock lock(mutex_);
  Info info;
  info.file_id = content_.file_id();
  info.generation = content_.generation();
  info.size = content_.size();
  info.committed_size = content_.committed_size();
  info.sequence = log_.sequence;
  info.is_inline = content_.is_inline();
  info.chunks = content_.extents().count();
  info.members.assign(member_count_, false);
  info.stored_bytes = content_.inline_length();
  content_.extents().for_each(ChunkIndex(0), [&info](ChunkIndex, const Extent& extent) {
    info.stored_bytes += extent.stored_length;
    ++info.codec_chunks[static_cast<size_t>(extent.codec)];
    if (extent.is_here()) info.members[extent.member] = true;
    return true;
  });
  return info;
}

std::string File::path() const {
  return context_.array.path_in_mount(message_handle_.load());
}

std::optional<std::string> File::path_below_tree() const {
  return context_.array.path_below_tree(message_handle_.load());
}

// --- Store's side ---------------------------------------------------------------------------------------------------

void File::set_previous(std::shared_ptr<PreviousContent> previous) {
  MutexLock lock(mutex_);
  previous_ = std::move(previous);
}

void File::previous_found() {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (previous_ != nullptr && placement_.objects() == nullptr && error_.is_ok() && may_flush())
      flush_dirty(true, deferred);
  }
  run(deferred);
}

void File::make_writable(ScopedHandle sidecar) {
  MutexLock lock(mutex_);
  if (writable_) return;
  message_handle_.store(sidecar.get());
  sidecar_ = std::make_shared<const ScopedHandle>(std::move(sidecar));
  writable_ = true;
}

void File::set_mtime(const struct timespec& mtime) {
  MutexLock lock(mutex_);
  content_.set_mtime(mtime);
}

void File::hold(HandleShares::Lease sidecar, HandleShares::Lease directory) {
  MutexLock lock(mutex_);
  if (!directory_lease_.is_of_user()) std::swap(sidecar_lease_, sidecar);
  if (!directory_lease_.is_of_user() || directory_lease_.count() < directory.count())
    std::swap(directory_lease_, directory);
  count_removed_from();
}

void File::count_removed_from() {
  if (!names_.holds_removed_from() || directory_lease_.count() > 0 || directory_lease_.grow()) return;
  names_.take_removed_from().reset();
  context_.reclaimer->note_name_removed();
}

void File::name_moved_to(ScopedHandle directory) {
  MutexLock lock(mutex_);
  names_.moved_to(std::move(directory));
}

void File::name_removed(ScopedHandle directory) {
  MutexLock lock(mutex_);
  names_.removed_from(std::move(directory));
  count_removed_from();
  context_.new_names->forget(inode_);
  drop_if_clean();
}

bool File::is_nameless() const {
  MutexLock lock(mutex_);
  return names_.is_nameless();
}

void File::set_compression(const std::optional<Compression>& compression) {
  MutexLock lock(mutex_);
  compression_ = compression.value_or(context_.options.compression);
}

void File::set_unnamed() {
  MutexLock lock(mutex_);
  names_.set_unnamed();
}

void File::name_given(ScopedHandle directory) {
  MutexLock lock(mutex_);
  names_.given_in(std::move(directory));
  if (content_.is_edited()) keep_alive();
}

void File::flush_for_pressure() {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (!error_.is_ok())
      discard_dirty(deferred);
    else if (may_flush())
      flush_dirty(false, deferred);
  }
  run(deferred);
}

void File::abandon() {
  std::shared_ptr<File> self;  // may be the last reference: released after the lock
  std::shared_ptr<PreviousContent> previous;
  MutexLock lock(mutex_);
  abandoned_ = true;
  previous.swap(previous_);
  self.swap(self_);
}

}  // namespace fpfs
