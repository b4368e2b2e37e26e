// Names: what lives in tree/ and what happens to a file's content when its names change.
//
// Whoever removes or replaces a name holds the file's name lock from before the change until it is known whether
// content must be freed, and openers hold it while they open: so a file without a name is open (its File frees the
// objects after the last use), or kept by somebody who may open it (Removed), or cannot be opened any more.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "engine/base/log.h"
#include "engine/check/scan.h"
#include "engine/index/sidecar.h"
#include "engine/index/sidecar_file.h"
#include "engine/io/scoped_handle.h"
#include "engine/store/store_impl.h"

namespace fpfs {

namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY;
constexpr off_t kUnknownSize = 1;

// A handle by which the directory can be synced.
Result<ScopedHandle> reopen_directory(Storage& storage, Handle directory) {
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.reopen(directory, kDirectoryFlags));
  return ScopedHandle(storage, handle);
}

// What the end of a sidecar tells without reading it all; a torn tail costs reading it all.
// `is_removed`: of a file that has no name any more; what is readable of its index says what can be freed, whatever
// came behind that.
Result<SidecarSummary> summarize(Storage& storage, const Array& array, Handle sidecar, const struct stat& attributes,
                                 bool is_removed) {
  const auto size = static_cast<uint64_t>(attributes.st_size);
  if (size == 0) {
    SidecarSummary empty;
    empty.is_inline = true;
    return empty;
  }
  if (size >= kSidecarTrailerSize) {
    std::byte bytes[kSidecarTrailerSize];
    FPFS_ASSIGN_OR_RETURN(const size_t length, storage.pread(sidecar, bytes, size - kSidecarTrailerSize));
    if (length == kSidecarTrailerSize) {
      Result<SidecarSummary> summary = decode_sidecar_trailer(bytes, SidecarOffset(size));
      if (summary.is_ok()) return summary;
    }
  }
  StorageSidecarReader reader(storage, sidecar, SidecarOffset(size));
  SidecarFindings findings;
  FPFS_ASSIGN_OR_RETURN(const FileImage image, fold_sidecar(reader, array.id(), array.member_count(),
                                                            array.superblock().chunk_size, &findings));
  if (findings.torn_tail && !is_removed && !array.may_be_torn(storage, sidecar, attributes))
    return damaged_tail(image.end, findings);
  SidecarSummary summary;
  summary.file_id = image.file_id;
  summary.generation = image.generation;
  summary.sequence = image.sequence;
  summary.size = image.size;
  summary.allocated = image.extents.allocated_bytes() + round_up(image.inline_data.size(), 512);
  summary.is_inline = image.is_inline || image.sequence == 0;
  return summary;
}

}  // namespace

// --- attributes -----------------------------------------------------------------------------------------------------

// Of a node of any kind of handle. Of a file that is not open, or it may change meanwhile.
Result<SidecarSummary> Store::summarize_node(Handle node, const struct stat& sidecar, bool is_removed) {
  Result<SidecarSummary> summary = summarize(storage(), *array_, node, sidecar, is_removed);
  if (summary.is_ok() || summary.status().errno_value() != EBADF) return summary;  // EBADF: made with O_PATH
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage().reopen(node, O_RDONLY));
  const ScopedHandle readable(storage(), handle);
  return summarize(storage(), *array_, readable.get(), sidecar, is_removed);
}

Result<SidecarSummary> Store::last_record(Handle node) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
  return summarize_node(node, attributes);
}

bool Store::is_size_unknown(const struct stat& attributes) {
  return S_ISREG(attributes.st_mode) && attributes.st_size == kUnknownSize && attributes.st_blocks == 0;
}

// The same, and what the sidecar said is kept.
Result<SidecarSummary> Store::summarize_closed(Handle node, const struct stat& sidecar) {
  if (const std::optional<SidecarSummary> known = impl_->summaries.recall(sidecar)) return *known;
  Result<SidecarSummary> summary = summarize_node(node, sidecar);
  if (!summary.is_ok()) return summary;
  impl_->summaries.remember(sidecar, *summary);
  if (impl_->files.find(sidecar.st_ino) != nullptr) impl_->summaries.forget(sidecar.st_ino);  // opened meanwhile
  return summary;
}

// Size and blocks of a regular file that is not open, from its sidecar. One whose sidecar cannot be read shows with one
// byte: it can be listed and removed, opening it reports the damage, and no program takes it for an empty file, which
// need not be opened (GNU tar).
Status Store::fill_logical(Handle node, struct stat& attributes) {
  if (std::shared_ptr<File> file = impl_->files.find(attributes.st_ino)) {
    file->overlay(attributes);
    return Status::ok();
  }
  const struct stat sidecar = attributes;
  attributes.st_ctim = impl_->change_times.recall(attributes.st_ino).show(attributes.st_ctim);
  attributes.st_size = 0;
  attributes.st_blocks = 0;
  if (sidecar.st_size == 0) return Status::ok();
  const Result<SidecarSummary> summary = summarize_closed(node, sidecar);
  if (!summary.is_ok()) {
    // Committed and compacted meanwhile: what was its end may be punched out.
    FPFS_ASSIGN_OR_RETURN(const struct stat now, storage().fstat(node));
    if (now.st_size != sidecar.st_size) return fill_logical(node, attributes = now);
  }
  if (summary.status().errno_value() == EMFILE || summary.status().errno_value() == ENFILE) return summary.status();
  if (!summary.is_ok()) {
    // EACCES: a daemon that is not root, and a file that its owner may not read. Nothing is damaged.
    if (summary.status().errno_value() != EACCES)
      log_line(LogLevel::kError, index_failure(summary.status(), node).message());
    attributes.st_size = kUnknownSize;
    return Status::ok();
  }
  attributes.st_size = static_cast<off_t>(summary->size);
  attributes.st_blocks = static_cast<blkcnt_t>(round_up(summary->allocated, 512) / 512);
  return Status::ok();
}

// Readable where there is a size to be read. Nothing but a regular file is opened for that: a device might notice.
// Without attributes.
Result<Store::Node> Store::open_node(Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(const struct stat named, storage().stat_at(directory, name));
  Node node;
  if (S_ISREG(named.st_mode) && named.st_size > 0) {
    const Result<Handle> readable = storage().open_at(directory, name, O_RDONLY);
    if (readable.is_ok()) node.handle = ScopedHandle(storage(), *readable);
    node.readable = readable.is_ok();
  }
  if (node.readable) return node;
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage().open_at(directory, name, O_PATH));
  node.handle = ScopedHandle(storage(), handle);
  return node;
}

// The same for an entry of a listing, which says what is a regular file. With the attributes of the sidecar, whose end
// the drive is asked for.
Result<Store::Node> Store::open_listed(Handle directory, const DirectoryEntry& entry) {
  Node node;
  if (entry.type == DT_REG) {
    const Result<Handle> readable = storage().open_at(directory, entry.name, O_RDONLY);
    if (readable.is_ok()) node.handle = ScopedHandle(storage(), *readable);
    node.readable = readable.is_ok();
  }
  if (!node.readable) {
    FPFS_ASSIGN_OR_RETURN(node, open_node(directory, entry.name));
  }
  FPFS_ASSIGN_OR_RETURN(node.attributes, storage().fstat(node.handle.get()));
  const auto size = static_cast<uint64_t>(node.attributes.st_size);
  const uint64_t end = std::min<uint64_t>(size, kSidecarTrailerSize);
  if (node.readable && end > 0 && !impl_->summaries.recall(node.attributes).has_value())
    storage().read_ahead(node.handle.get(), size - end, end);
  return node;
}

// A node that has the attributes of its entry gets the logical ones.
Result<Store::Node> Store::complete_node(Node node) {
  FPFS_ASSIGN_OR_RETURN(node.attributes, logical(node.handle.get(), node.attributes));
  return node;
}

Result<Store::Node> Store::lookup(Handle directory, const std::string& name) {
  FPFS_ASSIGN_OR_RETURN(Node node, open_node(directory, name));
  FPFS_ASSIGN_OR_RETURN(node.attributes, storage().fstat(node.handle.get()));
  return complete_node(std::move(node));
}

std::vector<std::optional<Store::Node>> Store::lookup_all(Handle directory, std::span<const DirectoryEntry> entries) {
  std::vector<std::optional<Node>> nodes(entries.size());
  for (size_t i = 0; i < entries.size(); ++i)
    if (Result<Node> node = open_listed(directory, entries[i]); node.is_ok()) nodes[i] = std::move(*node);
  for (std::optional<Node>& node : nodes) {
    if (!node.has_value()) continue;
    Result<Node> complete = complete_node(std::move(*node));
    node.reset();
    if (complete.is_ok()) node = std::move(*complete);
  }
  return nodes;
}

Result<struct stat> Store::attributes(Handle node) {
  FPFS_ASSIGN_OR_RETURN(const struct stat sidecar, storage().fstat(node));
  return logical(node, sidecar);
}

Result<struct stat> Store::logical(Handle node, const struct stat& sidecar) {
  struct stat attributes = sidecar;
  impl_->clock.note(attributes.st_ctim);
  if (S_ISREG(attributes.st_mode)) FPFS_RETURN_IF_ERROR(fill_logical(node, attributes));
  return attributes;
}

Status Store::chmod(Handle node, mode_t mode) {
  FPFS_RETURN_IF_ERROR(storage().chmod(node, mode));
  tell_attributes(node);
  return Status::ok();
}

Status Store::chown(Handle node, uid_t uid, gid_t gid) {
  FPFS_RETURN_IF_ERROR(storage().chown(node, uid, gid));
  tell_attributes(node);
  return Status::ok();
}

Result<struct stat> Store::set_times(Handle node, const struct timespec times[2]) {
  FPFS_RETURN_IF_ERROR(storage().set_times(node, times));
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
  if (times[1].tv_nsec != UTIME_OMIT)
    if (std::shared_ptr<File> file = impl_->files.find(attributes.st_ino)) file->set_mtime(attributes.st_mtim);
  tell_attributes(node);
  return logical(node, attributes);
}

// Space that was given up counts as free; it is not worth a long wait, though.
Result<struct statvfs> Store::space() {
  impl_->reclaimer->wait(std::chrono::milliseconds(200));
  FPFS_ASSIGN_OR_RETURN(struct statvfs space, array_->space(impl_->room->changes()));
  // Content goes to the members in turn, in whole chunks.
  const uint64_t round = uint64_t{impl_->stripes.chunk_size} * array_->stripes().width();
  space.f_bavail = round_down(space.f_bavail * space.f_frsize, round) / space.f_frsize;
  return space;
}

bool Store::finish_frees() {
  return impl_->reclaimer->finish();
}

// --- making names ---------------------------------------------------------------------------------------------------

template <typename Call>
auto Store::make_name(Handle directory, const std::string& name, Call call) {
  auto made = impl_->reclaimer->with_space(std::move(call));
  if (const Status& status = status_of(made); status.code() == StatusCode::kNoSpace) {
    const std::string path = "/" + path_below_root(directory, name).value_or(name);
    log_about(
        "no room for a name", LogLevel::kWarning,
        "{}: {}, which has the names, has no room for another, or no inodes left (df, df -i); it fails with ENOSPC",
        path, array_->metadata_path());
  }
  return made;
}

Result<ScopedHandle> Store::directory_to_sync(Handle directory) {
  if (impl_->names_need_no_directory) return ScopedHandle();
  return reopen_directory(storage(), directory);
}

bool Store::syncs_exchanges() const {
  return impl_->names_need_no_directory;
}

size_t Store::handles_of_file() const {
  return impl_->names_need_no_directory ? 1 : 2;
}

Result<Store::Created> Store::create(Handle directory, const std::string& name, mode_t mode,
                                     HandleShares::Lease handles) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  // The file's first commit makes its name durable too. Had beforehand: what can fail, fails before there is a name.
  NewName made{true, {}};
  FPFS_ASSIGN_OR_RETURN(made.directory, directory_to_sync(directory));
  if (impl_->commit_log != nullptr) made.made = impl_->commit_log->about_to_make(directory, name);
  FPFS_ASSIGN_OR_RETURN(const Handle sidecar, make_name(directory, name, [&] {
                          return storage().open_at(directory, name, O_CREAT | O_EXCL | O_RDWR, mode);
                        }));
  Result<Created> created = adopt_created(ScopedHandle(storage(), sidecar), std::move(made), std::move(handles));
  if (!created.is_ok()) take_back(directory, name, false);
  if (created.is_ok() && impl_->previous_files != nullptr) impl_->previous_files->made(created->file, directory, name);
  return created;
}

Result<Store::Created> Store::create_unnamed(Handle directory, mode_t mode, HandleShares::Lease handles) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  FPFS_ASSIGN_OR_RETURN(const Handle sidecar, make_name(directory, "(unnamed)", [&] {
                          return storage().open_at(directory, ".", O_TMPFILE | O_RDWR, mode);
                        }));
  FPFS_ASSIGN_OR_RETURN(Created created, adopt_created(ScopedHandle(storage(), sidecar), {}, std::move(handles)));
  created.file->set_unnamed();
  if (keeper_ == nullptr) return created;
  created.unnamed.reset(new Removed(*this, created.node.attributes.st_ino, {}, {}));
  created.unnamed->file_ = created.file;
  return created;
}

Result<Store::Created> Store::adopt_created(ScopedHandle opened, NewName name, HandleShares::Lease handles) {
  HandleShares::Lease counted = handles.count() > 0 ? handles.split(1) : HandleShares::Lease();
  // The node's, too, which is not looked up by its name: the caller becomes the owner of this file and of no other.
  const std::shared_ptr<const ScopedHandle> sidecar = share(std::move(opened), std::move(counted));
  FPFS_ASSIGN_OR_RETURN(struct stat attributes, storage().fstat(sidecar->get()));
  FPFS_ASSIGN_OR_RETURN(std::shared_ptr<File> file, File::open(*impl_, sidecar, attributes, true, std::move(name)));
  file->hold({}, std::move(handles));
  // Of a file that had this inode before.
  static_cast<void>(impl_->health.take_loss(file->inode()));
  impl_->health.forget_file_failure(file->inode());
  impl_->new_names->forget(file->inode());
  impl_->insert(file);
  file->follow_members();
  FPFS_ASSIGN_OR_RETURN(attributes, logical(sidecar->get(), attributes));
  return Created{{sidecar, attributes, true, true}, std::move(file), nullptr};
}

void Store::take_back(Handle directory, const std::string& name, bool is_directory) {
  const CommitLog::Change change(impl_->commit_log.get());
  const Status removed = is_directory ? storage().remove_directory(directory, name) : storage().unlink(directory, name);
  if (!removed.is_ok())
    log(LogLevel::kWarning, "a call failed and what it had made stays: {}; remove it", removed.message());
}

Status Store::make_directory(Handle directory, const std::string& name, mode_t mode) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  FPFS_RETURN_IF_ERROR(make_name(directory, name, [&] { return storage().make_directory(directory, name, mode); }));
  tell_made(directory, name, true);
  return Status::ok();
}

Status Store::make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  FPFS_RETURN_IF_ERROR(make_name(directory, name, [&] { return storage().make_node(directory, name, mode, device); }));
  tell_made(directory, name, false);
  return Status::ok();
}

Status Store::symlink(const std::string& target, Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  FPFS_RETURN_IF_ERROR(make_name(directory, name, [&] { return storage().symlink(target, directory, name); }));
  tell_made(directory, name, false);
  return Status::ok();
}

Status Store::link(Handle node, Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
  {
    MutexLock lock(impl_->files.name_lock(attributes.st_ino));
    if (const auto unnamed = attributes.st_nlink == 0 ? impl_->files.find(attributes.st_ino) : nullptr) {
      // It has its first name now, which its next commit makes durable.
      FPFS_ASSIGN_OR_RETURN(ScopedHandle parent, directory_to_sync(directory));
      FPFS_RETURN_IF_ERROR(storage().link(node, directory, name));
      unnamed->name_given(std::move(parent));
      return Status::ok();
    }
    FPFS_RETURN_IF_ERROR(storage().link(node, directory, name));
  }
  tell_made(directory, name, false, node);
  return Status::ok();
}

Status Store::sync_directory(Handle directory) {
  FPFS_RETURN_IF_ERROR(impl_->check_names());
  FPFS_RETURN_IF_ERROR(impl_->health.failure());  // of a sync before: this one could succeed and would say nothing
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle handle, reopen_directory(storage(), directory));
  return sync_opened_directory(handle.get());
}

Status Store::sync_opened_directory(Handle directory) {
  Status status = storage().fsync(directory);
  if (status.is_ok()) status = array_->check_tree_running();
  if (!status.is_ok()) impl_->fail_tree(status.with_context(array_->path_in_mount(directory)));
  return status;
}

// --- removing names -------------------------------------------------------------------------------------------------

// A file whose name is about to go: holds what is needed to free its content if that was the last one.
class Store::NameHolder {
 public:
  // `name` may not exist or be no regular file: then release() does nothing. When that cannot be told, status() says
  // why, and the name must stay.
  NameHolder(Store& store, Handle directory, const std::string& name) : store_(store) {
    // Readable when there is something to read: to free content its id must be known.
    Result<Node> node = store.open_node(directory, name);
    if (!node.is_ok()) {
      if (node.status().code() != StatusCode::kNotFound) status_ = node.status();
      return;
    }
    own_ = std::move(node->handle);
    const Result<struct stat> attributes = store.storage().fstat(own_.get());
    status_ = attributes.status();
    if (attributes.is_ok()) hold(own_.get(), *attributes);
  }
  // With a handle of the node, which is borrowed, and its attributes.
  NameHolder(Store& store, Handle node, const struct stat& attributes) : store_(store) { hold(node, attributes); }
  NameHolder(const NameHolder&) = delete;
  NameHolder& operator=(const NameHolder&) = delete;

  const Status& status() const { return status_; }
  bool is_file() const { return handle_ != kNoHandle; }
  bool is_directory() const { return is_directory_; }
  bool is_there() const { return node_inode_ != 0; }
  bool has_content() const { return has_content_; }  // something was committed
  uint64_t inode() const { return inode_; }
  Handle handle() const { return handle_; }
  Handle node() const { return node_; }  // of whatever is no directory
  bool is_same(const NameHolder& other) const { return node_ != kNoHandle && node_inode_ == other.node_inode_; }

  // After the name was removed from `directory`, with the name lock held. Null when the file has other names.
  std::unique_ptr<Removed> release(Handle directory) {
    if (!is_file()) return nullptr;
    Storage& storage = store_.storage();
    // First: once nobody has the file open, its index does not change any more.
    std::shared_ptr<File> file = store_.impl_->files.find(inode_);
    const Result<struct stat> now = storage.fstat(handle_);
    if (!now.is_ok()) return left_over(now.status());
    if (now->st_nlink > 0) {
      store_.impl_->reclaimer->note_name_removed();
      return nullptr;
    }
    store_.impl_->health.forget_file_failure(inode_);
    store_.impl_->new_names->forget(inode_);
    std::vector<DoomedObjects> doomed;
    if (file == nullptr && now->st_size > 0) {
      const Result<SidecarSummary> summary = summarize(*now);
      if (!summary.is_ok()) return left_over(summary.status(), static_cast<uint64_t>(now->st_size));
      if (!summary->is_inline) doomed.push_back({summary->file_id, summary->generation, {}, true});
    }
    if (file == nullptr && doomed.empty() && store_.keeper_ == nullptr) return nullptr;
    // Objects are freed when the name is gone for good: its directory is synced before. A file that has none needs no
    // handle of it: what somebody may still write to it is never committed.
    ScopedHandle synced;
    if (file != nullptr || !doomed.empty()) {
      const Result<Handle> parent = storage.reopen(directory, kDirectoryFlags);
      if (!parent.is_ok()) return left_over(parent.status());
      synced = ScopedHandle(storage, *parent);
    }
    std::unique_ptr<Removed> removed(new Removed(store_, inode_, std::move(synced), std::move(doomed)));
    if (file != nullptr) removed->adopt(file);
    return removed;
  }

 private:
  // Of a file that has no name any more and that nobody has open. Its change time is that of the removal; what was known
  // of it before holds as long as nothing was appended.
  Result<SidecarSummary> summarize(const struct stat& now) {
    const std::optional<SidecarSummary> known = store_.impl_->summaries.recall(before_);
    if (known.has_value() && now.st_size == before_.st_size) return *known;
    return store_.summarize_node(handle_, now, true);
  }

  void hold(Handle node, const struct stat& attributes) {
    is_directory_ = S_ISDIR(attributes.st_mode);
    if (!is_directory_) node_ = node;
    node_inode_ = attributes.st_ino;
    if (!S_ISREG(attributes.st_mode)) return;
    inode_ = attributes.st_ino;
    before_ = attributes;
    has_content_ = attributes.st_size > 0;
    handle_ = node;
  }

  // The name is gone, and what it had on the members stays: nothing, where somebody had put a file into tree/ behind the
  // mount's back, or one of another array.
  std::unique_ptr<Removed> left_over(const Status& failure, uint64_t sidecar_bytes = 0) {
    // Somebody waits, and the name lock is held: of a large one the next mount finds that nothing was left.
    constexpr uint64_t kLookedThroughMax = 16 * kMiB;
    if (failure.code() == StatusCode::kCorruption && sidecar_bytes > 0 && sidecar_bytes <= kLookedThroughMax) {
      Storage& storage = store_.storage();
      const Result<Handle> reopened = storage.reopen(handle_, O_RDONLY);  // it may be made with O_PATH
      if (!reopened.is_ok()) return left_over(reopened.status());
      const ScopedHandle sidecar(storage, *reopened);
      StorageSidecarReader reader(storage, sidecar.get(), SidecarOffset(sidecar_bytes));
      if (names_nothing_here(reader, store_.array().id())) return nullptr;
    }
    log(LogLevel::kWarning, "cannot free what a removed file had: {}; the next mount or fsck -p will",
        failure.message());
    store_.impl_->health.note_not_freed();
    return nullptr;
  }

  Store& store_;
  Status status_;
  uint64_t inode_ = 0, node_inode_ = 0;
  bool has_content_ = false, is_directory_ = false;
  struct stat before_ {};
  NodeHandle own_;
  Handle node_ = kNoHandle;
  Handle handle_ = kNoHandle;  // of a regular file
};

Store::Removed::Removed(Store& store, uint64_t inode, ScopedHandle directory, std::vector<DoomedObjects> objects)
    : store_(store), inode_(inode), directory_(std::move(directory)), objects_(std::move(objects)) {
  store_.impl_->insert_removed(inode_, *this);
}

void Store::Removed::count_in(HandleShares::Lease of_user) {
  if (!of_user.is_of_user()) return;
  MutexLock lock(store_.impl_->files.name_lock(inode_));
  if (file_ != nullptr) {
    HandleShares::Lease sidecar = of_user.split(0);
    static_cast<void>(sidecar.grow());  // it is open already
    return file_->hold(std::move(sidecar), std::move(of_user));
  }
  if (!directory_.is_open()) return;
  if (of_user.grow()) {
    directory_lease_ = std::move(of_user);
    return;
  }
  directory_.reset();
  store_.impl_->reclaimer->note_name_removed();
}

void Store::Removed::adopt(const std::shared_ptr<File>& file) {
  file_ = file;
  file_->name_removed(std::move(directory_));
  directory_lease_ = {};
  objects_.clear();
}

bool Store::Removed::has_content() const {
  MutexLock lock(store_.impl_->files.name_lock(inode_));
  return file_ != nullptr || !objects_.empty() || directory_.is_open();
}

Store::Removed::~Removed() {
  Impl& impl = *store_.impl_;
  MutexLock lock(impl.files.name_lock(inode_));
  impl.erase_removed(inode_, *this);
  // A File frees what it has when the last one lets go of it, which may be a commit that has just answered.
  const bool is_freed_by_file = file_ != nullptr && file_->is_nameless();
  file_ = nullptr;
  if (is_freed_by_file) return;
  if (!objects_.empty()) impl.reclaimer->reclaim(std::move(objects_), std::move(directory_));
  impl.reclaimer->note_released(inode_);
}

void Store::give_away(uint64_t inode, std::unique_ptr<Removed> removed) {
  if (removed != nullptr && keeper_ != nullptr) keeper_(inode, std::move(removed));
}

std::optional<Store::NameEvent> Store::move_of(Handle from, const std::string& from_name, Handle to,
                                               const std::string& to_name, const NameHolder& moved,
                                               const Lost& lost) const {
  if (!tells_names_.load(std::memory_order_acquire) || !moved.is_there()) return std::nullopt;
  std::optional<std::string> before = path_below_root(from, from_name), path = path_below_root(to, to_name);
  if (!before.has_value() || !path.has_value()) return std::nullopt;
  NameEvent event;
  event.kind = NameEvent::Kind::kMoved;
  event.path = *std::move(path);
  event.from = *std::move(before);
  event.is_directory = moved.is_directory();
  event.inode = moved.inode();
  event.lost_inode = lost.inode;
  event.lost = lost.node;
  return event;
}

// Before a name goes that may be the last one.
Status Store::settle(const NameHolder& holder) {
  if (impl_->commit_log == nullptr || !holder.is_file()) return Status::ok();
  return impl_->commit_log->settle(holder.inode());
}

Status Store::unlink(Handle directory, const std::string& name, Handle node, const struct stat& attributes) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  NameHolder holder = node != kNoHandle ? NameHolder(*this, node, attributes) : NameHolder(*this, directory, name);
  FPFS_RETURN_IF_ERROR(holder.status());
  FPFS_RETURN_IF_ERROR(settle(holder));
  std::optional<NameEvent> event = removal_of(directory, name, false, {holder.inode(), holder.node()});
  if (holder.is_there()) tell_ahead(event);
  if (!holder.is_file()) {
    FPFS_RETURN_IF_ERROR(storage().unlink(directory, name));
    tell_behind(event);
    return Status::ok();
  }
  std::unique_ptr<Removed> removed;
  {
    MutexLock lock(impl_->files.name_lock(holder.inode()));
    FPFS_RETURN_IF_ERROR(storage().unlink(directory, name));
    removed = holder.release(directory);
  }
  if (impl_->previous_files != nullptr) impl_->previous_files->removed(holder.inode());
  tell_behind(event);
  give_away(holder.inode(), std::move(removed));
  return Status::ok();
}

Status Store::remove_directory(Handle directory, const std::string& name) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  FPFS_RETURN_IF_ERROR(storage().remove_directory(directory, name));
  std::optional<NameEvent> event = removal_of(directory, name, true, {});
  tell_behind(event);
  return Status::ok();
}

Status Store::rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name, unsigned flags) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const CommitLog::Change change(impl_->commit_log.get());
  NameHolder source(*this, from, from_name);
  NameHolder target(*this, to, to_name);
  FPFS_RETURN_IF_ERROR(source.status());
  FPFS_RETURN_IF_ERROR(target.status());
  const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
  const bool replaces = target.is_file() && !exchanges && (flags & RENAME_NOREPLACE) == 0;
  ScopedHandle exchanged_from, exchanged_to;
  if (exchanges && syncs_exchanges()) {
    FPFS_ASSIGN_OR_RETURN(exchanged_from, reopen_directory(storage(), from));
    if (to != from) {
      FPFS_ASSIGN_OR_RETURN(exchanged_to, reopen_directory(storage(), to));
    }
  }
  // Whoever has a moved file open needs its new directory. Had beforehand: what fails later fails with the names
  // changed.
  ScopedHandle source_goes_to, target_goes_to;
  if (source.is_file()) {
    FPFS_ASSIGN_OR_RETURN(source_goes_to, directory_to_sync(to));
  }
  if (exchanges && target.is_file()) {
    FPFS_ASSIGN_OR_RETURN(target_goes_to, directory_to_sync(from));
  }
  const bool is_lost = flags == 0 && target.node() != kNoHandle && !target.is_same(source);
  std::optional<NameEvent> move =
      move_of(from, from_name, to, to_name, source, is_lost ? Lost{target.inode(), target.node()} : Lost{});
  std::optional<NameEvent> back;
  if (exchanges) back = move_of(to, to_name, from, from_name, target, {});
  if (replaces) FPFS_RETURN_IF_ERROR(settle(target));
  tell_ahead(move);
  tell_ahead(back);
  if (replaces) {
    std::unique_ptr<Removed> removed;
    {
      MutexLock lock(impl_->files.name_lock(target.inode()));
      FPFS_RETURN_IF_ERROR(storage().rename(from, from_name, to, to_name, flags));
      removed = target.release(to);
    }
    if (impl_->previous_files != nullptr) impl_->previous_files->removed(target.inode());
    give_away(target.inode(), std::move(removed));
  } else {
    FPFS_RETURN_IF_ERROR(storage().rename(from, from_name, to, to_name, flags));
  }
  // The names are exchanged, whatever comes of this: who is promised that they stay so is told of a failure.
  for (const ScopedHandle* directory : {&exchanged_from, &exchanged_to})
    if (directory->is_open() && !sync_opened_directory(directory->get()).is_ok()) break;
  // An open file's new name becomes durable with its next commit: who saves, renames and then closes (or calls fsync)
  // is promised the content under the name that it has then.
  auto moved = [this](const NameHolder& holder, ScopedHandle& directory) {
    if (!holder.is_file()) return;
    if (std::shared_ptr<File> file = impl_->files.find(holder.inode())) file->name_moved_to(std::move(directory));
  };
  moved(source, source_goes_to);
  if (exchanges) moved(target, target_goes_to);
  tell_behind(move);
  tell_behind(back);
  return Status::ok();
}

// A rename and what has to be durable before it.
struct Store::RenameJob {
  Store& store;
  Handle from, to;
  std::string from_name, to_name;
  unsigned flags;
  std::function<void(const Status&)> done;
  std::vector<std::shared_ptr<File>> uncommitted = {};
  size_t committed = 0;                     // of those
  std::vector<ScopedHandle> unsynced = {};  // indexes of closed files
  ControlRequest commit = {};
  std::optional<uint64_t> replacing = {};  // a file that takes the place of one with content: its sidecar's inode

  Status look() {
    if ((flags & RENAME_NOREPLACE) != 0) return Status::ok();
    const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
    const NameHolder target(store, to, to_name);
    FPFS_RETURN_IF_ERROR(target.status());
    if (!target.has_content() && !exchanges) return Status::ok();
    const NameHolder source(store, from, from_name);
    FPFS_RETURN_IF_ERROR(source.status());
    // Only content that replaces content can leave something half: a new name may be empty after a crash.
    if (target.has_content()) FPFS_RETURN_IF_ERROR(add(source));
    if (target.has_content() && !exchanges && source.is_file() && !target.is_same(source)) replacing = source.inode();
    if (exchanges && source.has_content()) FPFS_RETURN_IF_ERROR(add(target));
    return Status::ok();
  }
  Status add(const NameHolder& holder) {
    if (!holder.is_file()) return Status::ok();
    if (std::shared_ptr<File> file = store.impl_->files.find(holder.inode())) {
      if (file->is_dirty()) uncommitted.push_back(std::move(file));
      return Status::ok();
    }
    // With Durable::kFsync a closed file's record may be in the page cache only.
    if (!store.impl_->closes_lazily.load() || !holder.has_content()) return Status::ok();
    const Result<Handle> handle = store.storage().reopen(holder.handle(), O_RDONLY);
    // EACCES: a daemon that is not root, and a file that its owner may not read.
    if (!handle.is_ok()) return handle.status().errno_value() == EACCES ? Status::ok() : handle.status();
    unsynced.emplace_back(store.storage(), *handle);
    return Status::ok();
  }

  // Not every program looks at what close says (a shell does not), and what it replaces may be all there is: a file that
  // has nothing, as its only save has failed, does not take that place. One that has what was saved before may.
  Status check_saved() const {
    Status failure = replacing ? store.impl_->health.last_save(*replacing) : Status::ok();
    if (failure.is_ok()) return failure;
    const NameHolder source(store, from, from_name);
    FPFS_RETURN_IF_ERROR(source.status());
    if (!source.is_there() || source.inode() != *replacing) return Status::ok();
    const Result<SidecarSummary> saved = store.last_record(source.handle());
    if (saved.is_ok() && saved->sequence > 0) return Status::ok();
    const auto path = [this](Handle directory, const std::string& name) {
      return "/" + store.path_below_root(directory, name).value_or(name);
    };
    log(LogLevel::kWarning, "{} does not replace {}, as its only save has failed; the rename fails as that did: {}",
        path(from, from_name), path(to, to_name), failure.message());
    return failure;
  }

  // Commits one file after another, each from the end of the one before; then syncs and renames.
  static void go_on(std::unique_ptr<RenameJob> job, const Status& status) {
    if (!status.is_ok()) return answer(std::move(job), status);
    if (job->committed == job->uncommitted.size()) {
      const Status renamed = job->finish();
      return answer(std::move(job), renamed);
    }
    File& file = *job->uncommitted[job->committed++];
    job->commit = {};
    job->commit.complete = [](ControlRequest& request, const Status& result) {
      static_cast<RenameJob*>(request.owner)->post(result);
    };
    job->commit.owner = job.get();
    file.control(job.release()->commit);
  }
  void post(const Status& status) {
    store.impl_->tasks.post([this, status] { go_on(std::unique_ptr<RenameJob>(this), status); });
  }
  Status finish() {
    FPFS_RETURN_IF_ERROR(check_saved());
    for (const ScopedHandle& index : unsynced) {
      FPFS_RETURN_IF_ERROR(store.impl_->check_names());
      FPFS_RETURN_IF_ERROR(store.impl_->health.failure());
      Status synced = store.storage().fsync(index.get());
      if (synced.is_ok()) synced = store.array_->check_tree_running();
      if (!synced.is_ok()) store.impl_->fail_tree(synced);
      FPFS_RETURN_IF_ERROR(synced);
    }
    return store.rename(from, from_name, to, to_name, flags);
  }
  static void answer(std::unique_ptr<RenameJob> job, const Status& status) {
    const std::function<void(const Status&)> answered = std::move(job->done);
    job.reset();  // who is answered finds its files no longer in use
    answered(status);
  }
};

void Store::rename_async(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                         unsigned flags, std::function<void(const Status&)> done) {
  std::unique_ptr<RenameJob> job(new RenameJob{*this, from, to, from_name, to_name, flags, std::move(done)});
  const Status looked = job->look();
  if (!looked.is_ok()) return RenameJob::answer(std::move(job), looked);
  if (!job->uncommitted.empty()) return RenameJob::go_on(std::move(job), Status::ok());
  // A sync may take long: not on the caller's thread.
  const bool syncs_exchange = (flags & RENAME_EXCHANGE) != 0 && syncs_exchanges();
  if (!job->unsynced.empty() || syncs_exchange) return job.release()->post(Status::ok());
  const Status renamed = job->finish();
  RenameJob::answer(std::move(job), renamed);
}

}  // namespace fpfs
