// The steps of one copy:
//
//   1. find      the file by its path, and the version that its last commit made durable, which is held
//   2. content   read, summed up and stored (tier_upload.h); the version is let go of
//   3. manifest  stored: from here on there is a copy
//   4. note      in the sidecar: from here on the array knows
//
// A crash between two of them leaves a file without its note, which is copied again.
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {
namespace {

constexpr const char* kMarkName = "fastpersistfs";  // of a manifest's metadata: whose it is

// What the record knows each chunk by; see TierManifest.
std::vector<uint64_t> stored_checksums_of(const FileImage& image, const StripeMap& stripes) {
  std::vector<uint64_t> checksums(stripes.chunks_end(FileOffset(image.size)).value());
  image.extents.for_each(ChunkIndex(0), [&checksums](ChunkIndex chunk, const Extent& extent) {
    if (chunk.value() < checksums.size()) checksums[chunk.value()] = extent.checksum;
    return chunk.value() < checksums.size();
  });
  return checksums;
}

bool is_of_every_file(StatusCode code) {
  return code == StatusCode::kUnreachable || code == StatusCode::kPermission || code == StatusCode::kWrongStore ||
         code == StatusCode::kClockSkew || code == StatusCode::kNoSpace || code == StatusCode::kReadOnly;
}

}  // namespace

void TierCopier::Impl::end_with(const std::shared_ptr<Job>& job, const Status& status, bool is_of_store) {
  if (status.code() == StatusCode::kCancelled || is_stopping()) return end_job(job, Ending::kCancelled, status);
  const Ending of_store = is_of_every_file(status.code()) ? Ending::kStoreFails : Ending::kRefused;
  const Ending ending = is_of_store ? of_store : Ending::kFails;
  end_job(job, ending, status.with_context(job->file.path));
}

// --- find ------------------------------------------------------------------------------------------------------------

Result<TierCopier::Impl::Found> TierCopier::Impl::find(const std::string& path) {
  Storage& storage = store_.storage();
  FPFS_ASSIGN_OR_RETURN(const Handle root, storage.reopen(store_.root(), O_RDONLY | O_DIRECTORY));
  Found found{{}, {}, ScopedHandle(storage, root)};
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    FPFS_ASSIGN_OR_RETURN(const Handle next, storage.open_at(found.directory.get(), path.substr(begin, slash - begin),
                                                             O_RDONLY | O_DIRECTORY));
    found.directory = ScopedHandle(storage, next);
    begin = slash + 1;
  }
  found.name = path.substr(begin);
  Result<Store::Node> node = store_.lookup(found.directory.get(), found.name);
  if (node.is_ok()) found.node = std::move(*node);
  if (!node.is_ok() && node.status().code() != StatusCode::kNotFound) return node.status();
  return found;
}

bool TierCopier::Impl::is_at(const Result<Found>& found, uint64_t inode) {
  if (!found.is_ok() || !found.value().node.handle.is_open()) return false;
  const struct stat& attributes = found.value().node.attributes;
  return S_ISREG(attributes.st_mode) && attributes.st_ino == inode;
}

// Savers rename what they have written: within a directory, most of them.
TierCopier::Impl::Ending TierCopier::Impl::find_again(Job& job, const Result<Found>& found) {
  TierWaiting& file = job.file;
  if (const std::optional<Store::OpenFile> open = store_.find_open(file.inode); open.has_value()) {
    if (open->path == file.path) return Ending::kLost;  // it is being renamed
    file.path = open->path;
    return is_reserved(file.path) ? Ending::kGone : Ending::kMoved;
  }
  if (!found.is_ok()) return Ending::kLost;
  std::string name;
  const Status listed = store_.storage().list(found.value().directory.get(), [&](const DirectoryEntry& entry) {
    if (entry.inode == file.inode) name = entry.name;
    return name.empty();
  });
  if (!listed.is_ok() || name.empty() || name == found.value().name) return Ending::kLost;
  const size_t slash = file.path.rfind('/');
  file.path = file.path.substr(0, slash == std::string::npos ? 0 : slash + 1) + name;
  return is_reserved(file.path) ? Ending::kGone : Ending::kMoved;
}

std::optional<TierNote> TierCopier::Impl::note_of(Handle node, uint64_t inode) const {
  std::array<std::byte, TierNote::kBytes> bytes;
  const Result<size_t> length = store_.storage().get_xattr(node, TierNote::kAttribute, bytes);
  if (!length.is_ok()) {
    const MutexLock lock(mutex_);
    const auto kept = notes_.find(inode);
    return kept != notes_.end() ? std::optional<TierNote>(kept->second) : std::nullopt;
  }
  const Result<TierNote> note = decode_note(std::span(bytes).first(std::min(*length, bytes.size())));
  return note.is_ok() ? std::optional<TierNote>(*note) : std::nullopt;
}

bool TierCopier::Impl::is_copied(const TierNote& note, const SidecarSummary& record, const std::string& path,
                                 bool has_other_names) const {
  return note.file_id == record.file_id && note.sequence == record.sequence && note.size == record.size &&
         (has_other_names || note.place == TierNote::place_of(place_, path));
}

// Owner, mode, times and extended attributes. Those of the sidecar: the time of changes that are not committed is not
// there yet.
Status TierCopier::Impl::describe(Handle sidecar, TierManifest& manifest) {
  Storage& storage = store_.storage();
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(sidecar));
  manifest.mode = attributes.st_mode;
  manifest.uid = attributes.st_uid;
  manifest.gid = attributes.st_gid;
  manifest.mtime_seconds = attributes.st_mtim.tv_sec;
  manifest.mtime_nanoseconds = static_cast<uint32_t>(attributes.st_mtim.tv_nsec);
  constexpr size_t kListBytesMax = 65536;  // XATTR_LIST_MAX
  std::string names(kListBytesMax, '\0');
  const Result<size_t> listed = storage.list_xattr(sidecar, std::as_writable_bytes(std::span(names)));
  if (!listed.is_ok()) return listed.status().errno_value() == EOPNOTSUPP ? Status::ok() : listed.status();
  names.resize(*listed);
  std::string value(TierManifest::kXattrValueBytesMax, '\0');
  for (size_t begin = 0; begin < names.size();) {
    const std::string name = names.substr(begin, names.find('\0', begin) - begin);
    begin += name.size() + 1;
    if (name.starts_with("user.fastpersistfs.") && name != Store::kCompressAttribute) continue;
    const Result<size_t> length = storage.get_xattr(sidecar, name, std::as_writable_bytes(std::span(value)));
    if (length.is_ok()) manifest.xattrs[name] = value.substr(0, *length);
    // Removed meanwhile, or not for a daemon that is not root.
    const int reason = length.status().errno_value();
    if (!length.is_ok() && reason != ENODATA && reason != EACCES && reason != EPERM) return length.status();
  }
  return Status::ok();
}

void TierCopier::Impl::begin(const std::shared_ptr<Job>& job) {
  if (is_stopping()) return end_job(job, Ending::kCancelled);
  TierUpload::Source source;
  Status failure;
  const Ending ending = prepare(*job, source, failure);
  if (ending == Ending::kFails) return end_with(job, failure, false);
  if (ending != Ending::kCopied) {
    source = {};
    if (ending == Ending::kIsCopied) return look_whether_stored(job, false);
    return end_job(job, ending);
  }
  TierUpload::start(tools(), std::move(source), [self = shared_from_this(), job](TierUpload::Outcome outcome) {
    self->content_sent(job, std::move(outcome));
  });
}

// kCopied: it can be.
TierCopier::Impl::Ending TierCopier::Impl::prepare(Job& job, TierUpload::Source& source, Status& failure) {
  const auto fails = [&failure](const Status& status) {
    failure = status;
    return status.errno_value() == ESTALE || status.code() == StatusCode::kNotFound ? Ending::kGone : Ending::kFails;
  };
  Result<Found> found = find(job.file.path);
  if (!is_at(found, job.file.inode)) {
    const Status& status = found.status();
    const bool is_elsewhere =
        status.is_ok() || status.code() == StatusCode::kNotFound || status.errno_value() == ENOTDIR;
    return is_elsewhere ? find_again(job, found) : fails(status);
  }
  const Handle node = found->node.handle.get();
  Result<std::shared_ptr<File>> opened = store_.open_file(node, false);
  if (!opened.is_ok()) return fails(opened.status());
  job.opened = std::move(*opened);
  Result<std::unique_ptr<CommittedVersion>> version = job.opened->hold_version();
  if (version.is_ok()) {
    source.version = std::move(*version);
    Result<FileImage> image = source.version->image();
    if (!image.is_ok()) return fails(image.status());
    source.image = std::move(*image);
  } else if (version.status().code() != StatusCode::kNotFound) {
    return fails(version.status());
  } else if (job.opened->info().sequence > 0 || job.opened->is_dirty()) {
    return Ending::kGone;  // not durable yet
  }
  const FileImage& image = source.image;
  SidecarSummary record;
  record.file_id = image.file_id;
  record.sequence = image.sequence;
  record.size = image.size;
  job.note.sequence = image.sequence;
  const std::optional<TierNote> note = note_of(node, job.file.inode);
  if (!job.file.is_missing && note.has_value() &&
      is_copied(*note, record, job.file.path, found->node.attributes.st_nlink > 1)) {
    job.note = *note;
    return Ending::kIsCopied;
  }
  job.note = {TierNote::place_of(place_, job.file.path), image.file_id, image.sequence, image.size, 0, 0, false};

  TierManifest& manifest = job.manifest;
  manifest.array_id = store_.array().id();
  manifest.path = job.file.path;
  manifest.file_id = image.file_id;
  manifest.generation = image.generation;
  manifest.sequence = image.sequence;
  manifest.size = image.size;
  manifest.chunk_size = image.size > 0 ? store_.array().stripes().chunk_size : 0;
  manifest.stored_checksums = stored_checksums_of(image, store_.array().stripes());
  if (const Status status = describe(node, manifest); !status.is_ok()) return fails(status);
  source.key = job.file.path;
  source.mark = fmt::format("{}.{:016x}.{}.{:016x}", to_string(manifest.array_id), manifest.file_id.value(),
                            manifest.sequence, environment_.random_u64());
  return Ending::kCopied;
}

// As the note says: see tier_scan.cpp.
void TierCopier::Impl::look_whether_stored(const std::shared_ptr<Job>& job, bool is_manifest) {
  const TierNote& note = job->note;
  // A file with several names has its copy at one of them.
  if (note.place != TierNote::place_of(place_, job->file.path)) return end_job(job, Ending::kIsCopied);
  const std::string key = is_manifest ? manifest_key(job->file.path) : job->file.path;
  const uint64_t tag = is_manifest ? note.manifest_tag : note.content_tag;
  objects_.head(key, [self = shared_from_this(), job, is_manifest, tag](const Result<ObjectInfo>& found) {
    if (!found.is_ok() && found.status().code() != StatusCode::kNotFound)
      return self->end_with(job, found.status(), true);
    const bool is_stored = found.is_ok() && TierNote::tag_of(found.value().tag) == tag;
    if (is_stored && !is_manifest) return self->look_whether_stored(job, true);
    if (is_stored) return self->end_job(job, Ending::kIsCopied);
    job->file.is_missing = true;
    job->opened = nullptr;
    self->environment_.executor().post([self, job] { self->begin(job); });
  });
}

// --- content, manifest, note -----------------------------------------------------------------------------------------

void TierCopier::Impl::content_sent(const std::shared_ptr<Job>& job, TierUpload::Outcome outcome) {
  if (!outcome.failure.status.is_ok()) return end_with(job, outcome.failure.status, outcome.failure.is_of_store);
  job->manifest.content_tag = std::move(outcome.content.tag);
  job->manifest.checksums = std::move(outcome.content.checksums);
  job->note.content_tag = TierNote::tag_of(job->manifest.content_tag);
  job->note.verified = outcome.content.verified;
  environment_.workers().post([self = shared_from_this(), job] {
    const Status valid = validate_manifest(job->manifest);
    if (!valid.is_ok()) return self->end_with(job, valid, false);
    job->encoded = encode_manifest(job->manifest);
    self->send_manifest(job, 0);
  });
}

void TierCopier::Impl::send_manifest(const std::shared_ptr<Job>& job, unsigned attempt) {
  if (is_stopping()) return end_job(job, Ending::kCancelled);
  const ObjectMetadata metadata = {{kMarkName, to_string(job->manifest.array_id)}};
  objects_.put(manifest_key(job->file.path), job->encoded, metadata,
               [self = shared_from_this(), job, attempt](const Result<StoredObject>& stored) {
                 self->manifest_sent(job, attempt, stored);
               });
}

void TierCopier::Impl::manifest_sent(const std::shared_ptr<Job>& job, unsigned attempt,
                                     const Result<StoredObject>& stored) {
  if (stored.is_ok()) {
    job->note.manifest_tag = TierNote::tag_of(stored.value().tag);
    return environment_.executor().post([self = shared_from_this(), job] { self->write_note(job); });
  }
  if (stored.status().code() != StatusCode::kUnreachable || attempt + 1 >= TierUpload::kAttempts)
    return end_with(job, stored.status(), true);
  after(pause(attempt + 1), [self = shared_from_this(), job, attempt] { self->send_manifest(job, attempt + 1); });
}

// Without the note the file is copied once more after a restart. A file that was moved meanwhile has its copy where it
// was, and gets one where it is.
void TierCopier::Impl::write_note(const std::shared_ptr<Job>& job) {
  const auto bytes = encode_note(job->note);
  const Status written = job->opened->set_note(TierNote::kAttribute, bytes);
  if (!written.is_ok()) {
    log(LogLevel::kWarning, "tier: {} is copied, which cannot be noted: {}", job->file.path, written.message());
    const MutexLock lock(mutex_);
    note_failure(written);
    if (notes_.size() < options_.waiting_max) notes_[job->file.inode] = job->note;
  }
  const Result<Found> found = find(job->file.path);
  const Ending ending = is_at(found, job->file.inode) ? Ending::kCopied : find_again(*job, found);
  {
    const MutexLock lock(mutex_);
    ++counted_.files_copied;
    counted_.bytes_copied += job->manifest.size;
  }
  end_job(job, ending);
}

// --- somebody waits for one ------------------------------------------------------------------------------------------

void TierCopier::Impl::wait_for(const std::string& path, Done done) {
  post([path, done = std::move(done)](Impl& self) {
    if (self.is_stopping()) return done(Status::error(StatusCode::kCancelled, "copying has ended"));
    if (is_reserved(path))
      return done(
          Status::error(StatusCode::kInvalidArgument, fmt::format("{} has a reserved name and is not copied", path)));
    Result<Found> found = self.find(path);
    if (!found.is_ok()) return done(found.status());
    if (!found->node.handle.is_open()) return done(Status::error(StatusCode::kNotFound, "there is no " + path));
    const struct stat attributes = found->node.attributes;
    if (!S_ISREG(attributes.st_mode))
      return done(Status::error(StatusCode::kInvalidArgument, path + " is not a regular file"));
    Result<std::shared_ptr<File>> opened = self.store_.open_file(found->node.handle.get(), false);
    if (!opened.is_ok()) return done(opened.status());
    uint64_t sequence = 0;
    {
      const auto version = (*opened)->hold_version();
      if (!version.is_ok() && version.status().code() != StatusCode::kNotFound) return done(version.status());
      if (version.is_ok()) sequence = version.value()->sequence();
    }
    bool is_over = false;
    {
      const MutexLock lock(self.mutex_);
      is_over = self.stopping_.load();
      if (!is_over) self.waiters_.emplace(attributes.st_ino, Waiter{sequence, done});
      // A job finds out whether it is copied already.
      const auto copying = self.copying_.find(attributes.st_ino);
      if (copying == self.copying_.end() || copying->second.sequence < sequence)
        self.queue_.add({attributes.st_ino, path, sequence, static_cast<uint64_t>(attributes.st_size), self.now_ns()});
    }
    opened->reset();
    if (is_over) return done(Status::error(StatusCode::kCancelled, "copying has ended"));
    self.pump();
  });
}

}  // namespace fpfs
