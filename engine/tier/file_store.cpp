#include "engine/tier/file_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <fmt/format.h>

#include "engine/tier/file_listing.h"
#include "engine/tier/object_key.h"
#include "engine/tier/tier_marker.h"

namespace fpfs {
namespace {

constexpr const char* kAttributePrefix = "user.fastpersistfs.meta.";
constexpr const char* kKeySuffix = ".key";
constexpr time_t kLeftoverAge_s = 24 * 3600;
constexpr int kAttemptsMax = 100;
constexpr uint64_t kCopyBytes = 1 << 20;
constexpr size_t kIdentityBytesMax = 4096;
// What is copied may be for its owner only, and who can write here can have an array show anything.
constexpr mode_t kFileMode = 0600, kDirectoryMode = 0700;

// A network filesystem that has gone away: what it says is not about the object.
Status translated(const Status& status) {
  switch (status.errno_value()) {
    case ENOTCONN:
    case ESTALE:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
      return Status::error(StatusCode::kUnreachable, status.message());
    default:
      return status;
  }
}

bool is_not_there(const Status& status) {
  return status.code() == StatusCode::kNotFound;
}
// A file is where a directory should be, or a symbolic link, which nobody follows.
bool is_no_directory(const Status& status) {
  return status.errno_value() == ENOTDIR || status.errno_value() == ELOOP;
}

std::string gives_errors(const std::string& path, const Status& failure) {
  return fmt::format("{}: its filesystem gives I/O errors, its drive fails or is gone (dmesg says more): {}", path,
                     failure.message());
}

Status not_mounted(const Status& status) {
  return Status::error(StatusCode::kWrongStore, fmt::format("tier: {}; is it mounted?", status.message()));
}

std::string last_component(const std::string& key) {
  return key.substr(key.rfind('/') + 1);  // npos + 1 is 0
}

// "up-" and 16 digits: what begin_upload() made, and nothing that leads elsewhere.
bool is_upload_id(const std::string& id) {
  return id.size() == 19 && id.starts_with("up-") && id.find_first_not_of("0123456789abcdef", 3) == std::string::npos;
}

Status no_upload(const Upload& upload) {
  return Status::error(StatusCode::kNotFound, fmt::format("there is no upload {} of {}", upload.id, upload.key));
}

}  // namespace

struct FileStore::Directory {
  ScopedHandle handle;
  std::vector<ScopedHandle> above;  // the root first; those that lead to `handle`
  std::vector<std::string> names;   // from each to the next
};

// What the file beside an upload's content says.
struct FileStore::Unfinished {
  std::string key;
  ObjectMetadata metadata;
};

Result<std::unique_ptr<FileStore>> FileStore::open(Storage& storage, Executor& executor, const std::string& path,
                                                   Random random) {
  Result<Handle> opened = storage.open_directory(path);
  if (!opened.is_ok() && (is_not_there(opened.status()) || is_no_directory(opened.status())))
    return not_mounted(opened.status());
  if (opened.status().code() == StatusCode::kIoError)
    return Status::error(StatusCode::kUnreachable, "tier: " + gives_errors(path, opened.status()));
  if (!opened.is_ok()) return translated(opened.status()).with_context("tier");
  return std::unique_ptr<FileStore>(
      new FileStore(storage, executor, path, ScopedHandle(storage, *opened), std::move(random)));
}

Result<std::unique_ptr<FileStore>> FileStore::open(Storage& storage, std::unique_ptr<Executor> executor,
                                                   const std::string& path, Random random,
                                                   std::shared_ptr<TierLease> lease) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<FileStore> store, open(storage, *executor, path, std::move(random)));
  store->own_executor_ = std::move(executor);
  store->lease_ = std::move(lease);
  return store;
}

FileStore::FileStore(Storage& storage, Executor& executor, std::string path, ScopedHandle root, Random random)
    : storage_(storage),
      executor_(executor),
      path_(std::move(path)),
      random_(std::move(random)),
      root_(std::make_shared<const ScopedHandle>(std::move(root))) {}

FileStore::~FileStore() {
  close();
}

// The caller counts, too, until it has come back from the executor: its task may be over by then, and the store be about
// to be destroyed because of that.
bool FileStore::enter() {
  const MutexLock lock(mutex_);
  running_ += closed_ ? 1 : 2;
  return !closed_;
}

void FileStore::leave() {
  const MutexLock lock(mutex_);
  if (--running_ == 0) ended_.notify_all();
}

bool FileStore::is_closed() {
  const MutexLock lock(mutex_);
  return closed_;
}

void FileStore::close() {
  if (lease_ != nullptr) lease_->close();
  const MutexLock lock(mutex_);
  closed_ = true;
  while (running_ != 0) ended_.wait(mutex_);
}

template <typename Answer, typename Work>
void FileStore::run(std::function<void(Answer)> done, Work work, bool changes) {
  const bool entered = enter();
  executor_.post([this, entered, changes, done = std::move(done), work = std::move(work)] {
    if (!entered) {
      done(Status::error(StatusCode::kCancelled, "the store was closed"));
      return;
    }
    done(judged(work(), changes));
    leave();
  });
  leave();
}

template <typename Answer, typename Work>
void FileStore::change(std::function<void(Answer)> done, Work work) {
  run(
      std::move(done),
      [this, work = std::move(work)]() -> Answer {
        FPFS_RETURN_IF_ERROR(may_change());
        return work();
      },
      true);
}

Status FileStore::judge(const Status& failure, bool changes) {
  if (failure.code() != StatusCode::kIoError || probe(changes).is_ok()) return translated(failure);
  return Status::error(StatusCode::kUnreachable, gives_errors(path_, failure));
}

Status FileStore::probe(bool changes) {
  FPFS_ASSIGN_OR_RETURN(const Handle opened, storage_.open_directory(path_));
  const ScopedHandle root(storage_, opened);
  FPFS_RETURN_IF_ERROR(storage_.list(root.get(), [](const DirectoryEntry&) { return false; }));
  if (!changes) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  const std::string name = fmt::format("put-{:016x}", random_());
  FPFS_ASSIGN_OR_RETURN(const Handle made,
                        storage_.open_at(unfinished.get(), name, O_RDWR | O_CREAT | O_EXCL, kFileMode));
  const ScopedHandle file(storage_, made);
  Status written = storage_.pwrite(file.get(), std::as_bytes(std::span(name)), 0);
  if (written.is_ok()) written = sync_file(file.get());
  const Status removed = storage_.unlink(unfinished.get(), name);
  return written.is_ok() ? removed : written;
}

// --- what is asked for ----------------------------------------------------------------------------------------------

void FileStore::check(DoneStatus done) {
  run(std::move(done), [this] { return do_check(); });
}

void FileStore::put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
                    Done<StoredObject> done) {
  change(std::move(done), [this, key, content, metadata] { return do_put(key, content, metadata); });
}

void FileStore::begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) {
  change(std::move(done), [this, key, metadata] { return do_begin(key, metadata); });
}

void FileStore::put_part(const Upload& upload, uint32_t number, uint64_t offset, std::span<const std::byte> content,
                         Done<StoredPart> done) {
  change(std::move(done),
         [this, upload, number, offset, content] { return do_put_part(upload, number, offset, content); });
}

void FileStore::parts(const Upload& upload, Done<std::vector<StoredPart>> done) {
  run(std::move(done), [this, upload]() -> Result<std::vector<StoredPart>> {
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
    const Result<Unfinished> known = read_unfinished(unfinished.get(), upload.id);
    if (!known.is_ok()) return is_not_there(known.status()) ? no_upload(upload) : known.status();
    return std::vector<StoredPart>();
  });
}

void FileStore::finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) {
  change(std::move(done), [this, upload, parts = std::move(parts)] { return do_finish(upload, parts); });
}

void FileStore::abort_upload(const Upload& upload, DoneStatus done) {
  change(std::move(done), [this, upload] { return do_abort(upload); });
}

void FileStore::uploads(const std::string& prefix, Done<std::vector<Upload>> done) {
  run(std::move(done), [this, prefix] { return do_uploads(prefix); });
}

void FileStore::get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
                    Done<ReadRange> done) {
  run(std::move(done), [this, key, offset, into, tag] { return do_get(key, offset, into, tag); });
}

void FileStore::head(const std::string& key, Done<ObjectInfo> done) {
  run(std::move(done), [this, key] { return do_head(key); });
}

void FileStore::list(const ListRequest& request, Done<ListPage> done) {
  run(std::move(done), [this, request] { return do_list(request); });
}

void FileStore::copy(const std::string& from, const std::string& tag, const std::string& to,
                     const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) {
  change(std::move(done), [this, from, tag, to, metadata] { return do_copy(from, tag, to, metadata); });
}

void FileStore::remove(const std::string& key, DoneStatus done) {
  change(std::move(done), [this, key] { return do_remove(key); });
}

void FileStore::remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) {
  run(std::move(done), [this, keys = std::move(keys)]() -> Result<std::vector<RemoveFailure>> {
    std::vector<RemoveFailure> failures;
    for (const std::string& key : keys) {
      Status removed = may_change();
      if (removed.is_ok()) removed = translated(do_remove(key));
      if (!removed.is_ok()) failures.push_back({key, removed});
    }
    if (!keys.empty() && failures.size() == keys.size()) return failures.front().status;
    return failures;
  });
}

// --- directories ----------------------------------------------------------------------------------------------------

Result<ScopedHandle> FileStore::root_again() {
  std::shared_ptr<const ScopedHandle> root;
  {
    const MutexLock lock(mutex_);
    root = root_;
  }
  const Result<Handle> handle = storage_.open_at(root->get(), ".", O_RDONLY | O_DIRECTORY);
  if (handle.is_ok()) return ScopedHandle(storage_, *handle);
  return root_of_new_mount(handle.status());
}

Result<ScopedHandle> FileStore::root_of_new_mount(const Status& failure) {
  std::string identity;
  {
    const MutexLock lock(mutex_);
    identity = identity_;
  }
  if (identity.empty() || translated(failure).code() != StatusCode::kUnreachable) return failure;
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage_.open_directory(path_));
  auto root = std::make_shared<const ScopedHandle>(storage_, handle);
  FPFS_ASSIGN_OR_RETURN(const std::string found, identity_below(root->get()));
  if (found != identity)
    return Status::error(StatusCode::kUnreachable,
                         fmt::format("{} is no longer the store that it was; is it mounted?", path_));
  FPFS_ASSIGN_OR_RETURN(const Handle again, storage_.open_at(root->get(), ".", O_RDONLY | O_DIRECTORY));
  const MutexLock lock(mutex_);
  root_ = std::move(root);
  return ScopedHandle(storage_, again);
}

Result<std::string> FileStore::identity_below(Handle root) {
  const std::string key = tier_identity_key();
  const size_t slash = key.find('/');
  const Result<Handle> above = storage_.open_at(root, key.substr(0, slash), O_RDONLY | O_DIRECTORY);
  if (!above.is_ok()) return is_not_there(above.status()) ? Result<std::string>("") : above.status();
  const ScopedHandle directory(storage_, *above);
  const Result<Handle> opened = storage_.open_at(directory.get(), key.substr(slash + 1), O_RDONLY);
  if (!opened.is_ok()) return is_not_there(opened.status()) ? Result<std::string>("") : opened.status();
  const ScopedHandle file(storage_, *opened);
  std::string text(kIdentityBytesMax, '\0');
  FPFS_ASSIGN_OR_RETURN(const size_t length, storage_.pread(file.get(), std::as_writable_bytes(std::span(text)), 0));
  const Result<std::string> id = parse_tier_identity(text.substr(0, length));
  return id.is_ok() ? id : id.status().with_context(path_ + "/" + key);
}

Result<FileStore::Directory> FileStore::directory_of(const std::string& key, bool make) {
  Directory directory;
  FPFS_ASSIGN_OR_RETURN(directory.handle, root_again());
  for (size_t begin = 0, slash; (slash = key.find('/', begin)) != std::string::npos; begin = slash + 1) {
    const std::string name = key.substr(begin, slash - begin);
    const Handle above = directory.handle.get();
    Result<Handle> opened = storage_.open_at(above, name, O_RDONLY | O_DIRECTORY);
    if (make && !opened.is_ok() && is_not_there(opened.status())) {
      const Status made = storage_.make_directory(above, name, kDirectoryMode);
      if (!made.is_ok() && made.code() != StatusCode::kExists) return made;
      FPFS_RETURN_IF_ERROR(storage_.fsync(above));
      opened = storage_.open_at(above, name, O_RDONLY | O_DIRECTORY);
    }
    if (!opened.is_ok() && is_no_directory(opened.status()))
      return Status::error(make ? StatusCode::kExists : StatusCode::kNotFound,
                           fmt::format("{}/{} is no directory", path_, key.substr(0, slash)));
    if (!opened.is_ok()) return opened.status();
    directory.above.push_back(std::move(directory.handle));
    directory.names.push_back(name);
    directory.handle = ScopedHandle(storage_, *opened);
  }
  return directory;
}

Result<ScopedHandle> FileStore::unfinished_directory() {
  const std::string name = std::string(kUnfinishedPrefix) + "objects";
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle root, root_again());
  for (int attempt = 0;; ++attempt) {
    Result<Handle> opened = storage_.open_at(root.get(), name, O_RDONLY | O_DIRECTORY);
    if (opened.is_ok()) return ScopedHandle(storage_, *opened);
    if (!is_not_there(opened.status()) || attempt == 1) return opened.status();
    const Status made = storage_.make_directory(root.get(), name, kDirectoryMode);
    if (!made.is_ok() && made.code() != StatusCode::kExists) return made;
  }
}

Status FileStore::do_check() {
  // By its path: the filesystem may have been mounted since open(). "unfinished" is made when something is written: a
  // store that one may only read passes.
  const Result<Handle> opened = storage_.open_directory(path_);
  if (!opened.is_ok() && (is_not_there(opened.status()) || is_no_directory(opened.status())))
    return not_mounted(opened.status());
  if (!opened.is_ok()) return opened.status();
  auto root = std::make_shared<const ScopedHandle>(storage_, *opened);
  FPFS_RETURN_IF_ERROR(storage_.list(root->get(), [](const DirectoryEntry&) { return false; }));
  FPFS_ASSIGN_OR_RETURN(const std::string found, identity_below(root->get()));
  const MutexLock lock(mutex_);
  if (!identity_.empty() && found != identity_)
    return Status::error(StatusCode::kWrongStore,
                         fmt::format("tier: {} was store {}, and {}; is it mounted?", path_, identity_,
                                     found.empty() ? "is none now" : "is " + found));
  identity_ = found;
  root_ = std::move(root);
  return Status::ok();
}

// --- writing --------------------------------------------------------------------------------------------------------

Status FileStore::set_metadata(Handle file, const ObjectMetadata& metadata) {
  for (const auto& [name, value] : metadata) {
    const Status set = storage_.set_xattr(file, kAttributePrefix + name, std::as_bytes(std::span(value)), 0);
    // The file is this store's own: the filesystem takes no such attributes, or not these, as another array's mount.
    if (set.code() == StatusCode::kUnsupported || set.errno_value() == EPERM)
      return Status::error(StatusCode::kWrongStore,
                           fmt::format("tier: {} is on a filesystem that does not take the attributes that copies need "
                                       "({}*: {}), as NFS before 4.2, or a mount of another array; name a directory of "
                                       "one that does",
                                       path_, kAttributePrefix, std::strerror(set.errno_value())));
    FPFS_RETURN_IF_ERROR(set);
  }
  return Status::ok();
}

Status FileStore::sync_file(Handle file) {
  FPFS_RETURN_IF_ERROR(storage_.fsync(file));
  return storage_.check_running(file);
}

Result<StoredObject> FileStore::publish(Handle unfinished, const std::string& name, Handle file,
                                        const std::string& key) {
  for (int attempt = 1;; ++attempt) {
    const Result<Directory> made = directory_of(key, true);
    FPFS_RETURN_IF_ERROR(may_change());
    const Status renamed =
        made.is_ok() ? storage_.rename(unfinished, name, made->handle.get(), last_component(key), 0) : made.status();
    // Somebody removed the last object of a directory on the way, and the directory with it.
    if (is_not_there(renamed) && attempt < kAttemptsMax) continue;
    if (!renamed.is_ok() && renamed.errno_value() == EISDIR)
      return Status::error(StatusCode::kExists, fmt::format("{}/{} is a directory", path_, key));
    FPFS_RETURN_IF_ERROR(renamed);
    FPFS_RETURN_IF_ERROR(storage_.fsync(made->handle.get()));
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(file));
    return StoredObject{tag_of_file(attributes), false};
  }
}

Result<StoredObject> FileStore::write_object(const std::string& key, const ObjectMetadata& metadata,
                                             const std::function<Status(Handle file)>& fill) {
  FPFS_RETURN_IF_ERROR(check_key(key, 0));
  FPFS_RETURN_IF_ERROR(check_metadata(metadata));
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  const std::string name = fmt::format("put-{:016x}", random_());
  FPFS_ASSIGN_OR_RETURN(const Handle handle,
                        storage_.open_at(unfinished.get(), name, O_RDWR | O_CREAT | O_EXCL, kFileMode));
  const ScopedHandle file(storage_, handle);
  const auto write = [&]() -> Result<StoredObject> {
    FPFS_RETURN_IF_ERROR(fill(file.get()));
    FPFS_RETURN_IF_ERROR(set_metadata(file.get(), metadata));
    FPFS_RETURN_IF_ERROR(sync_file(file.get()));
    return publish(unfinished.get(), name, file.get(), key);
  };
  Result<StoredObject> written = write();
  // Not there any more where the rename was done. Otherwise uploads() removes it some day.
  if (!written.is_ok()) static_cast<void>(storage_.unlink(unfinished.get(), name).is_ok());
  return written;
}

Result<StoredObject> FileStore::do_put(const std::string& key, std::span<const std::byte> content,
                                       const ObjectMetadata& metadata) {
  return write_object(key, metadata, [&](Handle file) { return storage_.pwrite(file, content, 0); });
}

Result<StoredObject> FileStore::do_copy(const std::string& from, const std::string& tag, const std::string& to,
                                        const std::optional<ObjectMetadata>& metadata) {
  if (from == to) return Status::error(StatusCode::kInvalidArgument, fmt::format("copy {} to itself", from));
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle source, open_object(from));
  FPFS_ASSIGN_OR_RETURN(const struct stat before, storage_.fstat(source.get()));
  const auto another_version = [&] {
    return Status::error(StatusCode::kNotFound, fmt::format("{}/{} is another version by now", path_, from));
  };
  if (!tag.empty() && tag_of_file(before) != tag) return another_version();
  ObjectMetadata kept;
  if (metadata) {
    kept = *metadata;
  } else {
    FPFS_ASSIGN_OR_RETURN(kept, metadata_of(source.get()));
  }
  return write_object(to, kept, [&](Handle file) -> Status {
    FPFS_RETURN_IF_ERROR(copy_content(source.get(), static_cast<uint64_t>(before.st_size), file));
    // Objects are replaced, but anybody may write to a file.
    FPFS_ASSIGN_OR_RETURN(const struct stat after, storage_.fstat(source.get()));
    return tag_of_file(after) == tag_of_file(before) ? Status::ok() : another_version();
  });
}

Status FileStore::copy_content(Handle from, uint64_t size, Handle to) {
  uint64_t done = 0;
  FPFS_ASSIGN_OR_RETURN(const struct statvfs filesystem, storage_.fstatvfs(from));
  const uint64_t whole = size - size % std::max<uint64_t>(filesystem.f_frsize, 1);
  if (whole > 0 && storage_.clone_range(from, 0, whole, to, 0).is_ok()) done = whole;
  // What cannot be copied is read and written, which says why where that fails, too.
  const Status closed = Status::error(StatusCode::kCancelled, "the store was closed");
  while (done < size) {
    if (is_closed()) return closed;
    const Result<uint64_t> copied = storage_.copy_range(from, done, size - done, to, done);
    if (!copied.is_ok() || *copied == 0) break;
    done += *copied;
  }
  if (done == size) return Status::ok();
  std::vector<std::byte> buffer(std::min(size - done, kCopyBytes));
  while (done < size) {
    if (is_closed()) return closed;
    const std::span<std::byte> wanted = std::span(buffer).first(std::min<uint64_t>(size - done, buffer.size()));
    FPFS_ASSIGN_OR_RETURN(const size_t length, storage_.pread(from, wanted, done));
    if (length == 0) return Status::error(StatusCode::kNotFound, "an object became shorter while it was copied");
    FPFS_RETURN_IF_ERROR(storage_.pwrite(to, wanted.first(length), done));
    done += length;
  }
  return Status::ok();
}

Result<Upload> FileStore::do_begin(const std::string& key, const ObjectMetadata& metadata) {
  FPFS_RETURN_IF_ERROR(check_key(key, 0));
  FPFS_RETURN_IF_ERROR(check_metadata(metadata));
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  const std::string id = fmt::format("up-{:016x}", random_());
  std::string text = percent_encode(key, true) + "\n";
  for (const auto& [name, value] : metadata) text += name + "=" + percent_encode(value, false) + "\n";
  for (const std::string& name : {id, id + kKeySuffix}) {
    FPFS_ASSIGN_OR_RETURN(const Handle handle,
                          storage_.open_at(unfinished.get(), name, O_RDWR | O_CREAT | O_EXCL, kFileMode));
    const ScopedHandle file(storage_, handle);
    if (name == id) continue;
    FPFS_RETURN_IF_ERROR(storage_.pwrite(file.get(), std::as_bytes(std::span(text)), 0));
    FPFS_RETURN_IF_ERROR(sync_file(file.get()));
  }
  FPFS_RETURN_IF_ERROR(storage_.fsync(unfinished.get()));
  return Upload{key, id};
}

Result<FileStore::Unfinished> FileStore::read_unfinished(Handle unfinished, const std::string& id) {
  if (!is_upload_id(id)) return Status::error(StatusCode::kNotFound, "no upload has this id");
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage_.open_at(unfinished, id + kKeySuffix, O_RDONLY));
  const ScopedHandle file(storage_, handle);
  std::string text(3 * (kKeyBytesMax + kMetadataBytesMax) + 1024, '\0');
  FPFS_ASSIGN_OR_RETURN(const size_t length, storage_.pread(file.get(), std::as_writable_bytes(std::span(text)), 0));
  text.resize(length);
  Unfinished found;
  size_t end = text.find('\n');
  if (end == std::string::npos) return Status::error(StatusCode::kNotFound, "an upload that was not begun");
  FPFS_ASSIGN_OR_RETURN(found.key, percent_decode(text.substr(0, end)));
  while (++end < text.size()) {
    const size_t begin = end;
    end = text.find('\n', begin);
    const size_t equals = text.find('=', begin);
    if (end == std::string::npos || equals > end)
      return Status::error(StatusCode::kCorruption, fmt::format("{}: what describes upload {} is damaged", path_, id));
    FPFS_ASSIGN_OR_RETURN(found.metadata[text.substr(begin, equals - begin)],
                          percent_decode(text.substr(equals + 1, end - equals - 1)));
  }
  return found;
}

Result<StoredPart> FileStore::do_put_part(const Upload& upload, uint32_t number, uint64_t offset,
                                          std::span<const std::byte> content) {
  if (!is_upload_id(upload.id)) return no_upload(upload);
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  const Result<Handle> opened = storage_.open_at(unfinished.get(), upload.id, O_RDWR);
  if (!opened.is_ok()) return is_not_there(opened.status()) ? no_upload(upload) : opened.status();
  const ScopedHandle file(storage_, *opened);
  FPFS_RETURN_IF_ERROR(storage_.pwrite(file.get(), content, offset));
  FPFS_RETURN_IF_ERROR(storage_.fdatasync(file.get()));  // an error of closing would be lost
  return StoredPart{number, content.size(), ""};
}

Result<StoredObject> FileStore::do_finish(const Upload& upload, const std::vector<StoredPart>& parts) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  const Result<Unfinished> known = read_unfinished(unfinished.get(), upload.id);
  if (!known.is_ok()) return is_not_there(known.status()) ? no_upload(upload) : known.status();
  const Result<Handle> opened = storage_.open_at(unfinished.get(), upload.id, O_RDWR);
  if (!opened.is_ok()) return is_not_there(opened.status()) ? no_upload(upload) : opened.status();
  const ScopedHandle file(storage_, *opened);
  uint64_t size = 0;
  for (const StoredPart& part : parts) size += part.size;
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(file.get()));
  if (size != static_cast<uint64_t>(attributes.st_size) || known->key != upload.key)
    return Status::error(StatusCode::kInvalidArgument, fmt::format("upload {} of {} has {} bytes, not {}", upload.id,
                                                                   known->key, attributes.st_size, size));
  FPFS_RETURN_IF_ERROR(set_metadata(file.get(), known->metadata));
  FPFS_RETURN_IF_ERROR(sync_file(file.get()));
  FPFS_ASSIGN_OR_RETURN(const StoredObject stored, publish(unfinished.get(), upload.id, file.get(), upload.key));
  // When this fails, uploads() shows an upload that can be aborted.
  static_cast<void>(storage_.unlink(unfinished.get(), upload.id + kKeySuffix).is_ok());
  return stored;
}

Status FileStore::do_abort(const Upload& upload) {
  if (!is_upload_id(upload.id)) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  for (const std::string& name : {upload.id, upload.id + kKeySuffix}) {
    const Status removed = storage_.unlink(unfinished.get(), name);
    if (!removed.is_ok() && !is_not_there(removed)) return removed;
  }
  return storage_.fsync(unfinished.get());
}

Result<std::vector<Upload>> FileStore::do_uploads(const std::string& prefix) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle unfinished, unfinished_directory());
  std::vector<std::string> ids, leftovers;
  FPFS_RETURN_IF_ERROR(storage_.list(unfinished.get(), [&](const DirectoryEntry& entry) {
    if (is_upload_id(entry.name)) ids.push_back(entry.name);
    if (entry.name.starts_with("put-")) leftovers.push_back(entry.name);
    return true;
  }));
  for (const std::string& name : leftovers) {
    const Result<struct stat> attributes = storage_.stat_at(unfinished.get(), name);
    if (attributes.is_ok() && attributes->st_mtim.tv_sec + kLeftoverAge_s < std::time(nullptr))
      static_cast<void>(storage_.unlink(unfinished.get(), name).is_ok());
  }
  std::vector<Upload> found;
  for (const std::string& id : ids) {
    const Result<Unfinished> known = read_unfinished(unfinished.get(), id);
    if (known.is_ok() && known->key.starts_with(prefix)) found.push_back({known->key, id});
    if (!known.is_ok() && !is_not_there(known.status())) return known.status();
  }
  return found;
}

// --- reading and removing -------------------------------------------------------------------------------------------

Result<ScopedHandle> FileStore::open_object(const std::string& key) {
  FPFS_RETURN_IF_ERROR(check_key(key, 0));
  FPFS_ASSIGN_OR_RETURN(const Directory directory, directory_of(key, false));
  const Result<Handle> opened = storage_.open_at(directory.handle.get(), last_component(key), O_RDONLY);
  const auto no_object = [&] {
    return Status::error(StatusCode::kNotFound, fmt::format("{}/{} is no regular file", path_, key));
  };
  if (!opened.is_ok()) return is_no_directory(opened.status()) ? no_object() : opened.status();
  ScopedHandle file(storage_, *opened);
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(file.get()));
  if (!S_ISREG(attributes.st_mode)) return no_object();
  return file;
}

Result<ReadRange> FileStore::do_get(const std::string& key, uint64_t offset, std::span<std::byte> into,
                                    const std::string& tag) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle file, open_object(key));
  ReadRange range;
  FPFS_ASSIGN_OR_RETURN(range.length, storage_.pread(file.get(), into, offset));
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(file.get()));
  range.object_size = static_cast<uint64_t>(attributes.st_size);
  range.tag = tag_of_file(attributes);
  if (!tag.empty() && range.tag != tag)
    return Status::error(StatusCode::kNotFound, fmt::format("{}/{} is another version by now", path_, key));
  return range;
}

Result<ObjectMetadata> FileStore::metadata_of(Handle file) {
  ObjectMetadata metadata;
  std::string names(65536, '\0');
  const Result<size_t> listed = storage_.list_xattr(file, std::as_writable_bytes(std::span(names)));
  if (!listed.is_ok()) {
    if (listed.status().code() == StatusCode::kUnsupported) return metadata;
    return listed.status();
  }
  names.resize(*listed);
  const std::string_view prefix = kAttributePrefix;
  for (size_t begin = 0, end; begin < names.size(); begin = end + 1) {
    end = std::min(names.find('\0', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    if (!name.starts_with(prefix)) continue;
    std::string value(kMetadataBytesMax, '\0');
    FPFS_ASSIGN_OR_RETURN(const size_t length,
                          storage_.get_xattr(file, name, std::as_writable_bytes(std::span(value))));
    value.resize(length);
    metadata[name.substr(prefix.size())] = value;
  }
  return metadata;
}

Result<ObjectInfo> FileStore::do_head(const std::string& key) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle file, open_object(key));
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(file.get()));
  ObjectInfo info{
      key, static_cast<uint64_t>(attributes.st_size), tag_of_file(attributes), attributes.st_mtim.tv_sec, {}};
  FPFS_ASSIGN_OR_RETURN(info.metadata, metadata_of(file.get()));
  return info;
}

Result<ListPage> FileStore::do_list(const ListRequest& request) {
  FPFS_RETURN_IF_ERROR(check_key_prefix(request.prefix, 0));
  if (request.keys_max == 0 || request.keys_max > 1000)
    return Status::error(StatusCode::kInvalidArgument, "a page has 1 to 1000 keys");
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle root, root_again());
  return list_files(storage_, root.get(), request);
}

Status FileStore::do_remove(const std::string& key) {
  FPFS_RETURN_IF_ERROR(check_key(key, 0));
  Result<Directory> found = directory_of(key, false);
  if (!found.is_ok()) return is_not_there(found.status()) ? Status::ok() : found.status();
  const Status removed = storage_.unlink(found->handle.get(), last_component(key));
  // A directory is no object.
  if (!removed.is_ok() && !is_not_there(removed) && removed.errno_value() != EISDIR) return removed;
  FPFS_RETURN_IF_ERROR(storage_.fsync(found->handle.get()));
  // Directories go with their last object. Whoever needs one meanwhile makes it again (publish).
  for (size_t i = found->above.size(); i-- > 0;) {
    const Handle above = found->above[i].get();
    if (!storage_.remove_directory(above, found->names[i]).is_ok()) break;
    FPFS_RETURN_IF_ERROR(storage_.fsync(above));
  }
  return Status::ok();
}

}  // namespace fpfs
