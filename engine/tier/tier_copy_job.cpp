// The steps of one copy, of a file with a new content:
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

constexpr size_t kManifestBytes = 64 * 1024;  // most have less
constexpr size_t kManifestBytesMax = 1024 * 1024 * 1024;

// What the record knows each chunk by; see TierManifest.
std::vector<uint64_t> stored_checksums_of(const FileImage& image, const StripeMap& stripes) {
  std::vector<uint64_t> checksums(stripes.chunks_end(FileOffset(image.size)).value());
  image.extents.for_each(ChunkIndex(0), [&checksums](ChunkIndex chunk, const Extent& extent) {
    if (chunk.value() < checksums.size()) checksums[chunk.value()] = ChunkSource::mark_of(extent);
    return chunk.value() < checksums.size();
  });
  return checksums;
}

// Of a small file: what its last record has, and zeros up to its end.
std::vector<std::byte> content_of(const FileImage& image) {
  if (image.inline_data.empty() || image.size > TierManifest::kContentMax) return {};
  std::vector<std::byte> content = image.inline_data;
  content.resize(image.size);
  return content;
}

bool is_of_every_file(StatusCode code) {
  return code == StatusCode::kUnreachable || code == StatusCode::kPermission || code == StatusCode::kWrongStore ||
         code == StatusCode::kClockSkew || code == StatusCode::kNoSpace || code == StatusCode::kReadOnly;
}

// No matter which object was asked for.
bool is_of_store(StatusCode code) {
  return is_of_every_file(code) || code == StatusCode::kCancelled;
}

}  // namespace

void TierCopier::Impl::end_with(const std::shared_ptr<Job>& job, const Status& status, bool is_of_store) {
  if (status.code() == StatusCode::kCancelled || is_stopping()) return end_job(job, Ending::kCancelled, status);
  const Ending of_store = is_of_every_file(status.code()) ? Ending::kStoreFails : Ending::kRefused;
  const Ending ending = is_of_store ? of_store : Ending::kFails;
  end_job(job, ending, status.with_context(job->file.path));
}

// --- find ------------------------------------------------------------------------------------------------------------

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

void TierCopier::Impl::begin(const std::shared_ptr<Job>& job) {
  if (is_stopping()) return end_job(job, Ending::kCancelled);
  if (options_.shares && !job->is_compared && !is_reserved(job->file.path)) return compare(job);
  TierUpload::Source source;
  Ending ending = Ending::kGone;
  Status failure;
  const Plan plan = prepare(*job, source, ending, failure);
  if (plan != Plan::kCopy || job->file.comes_back) source = {};
  if (job->file.comes_back && job->opened != nullptr) return bring_back(job);
  const bool replaces =
      plan == Plan::kCopy || plan == Plan::kRemove || (plan == Plan::kDescribe && job->from != job->file.path);
  if (replaces && !may_replace(job->file.path, job->file.inode)) return end_job(job, Ending::kBlocked);
  switch (plan) {
    case Plan::kCopy:
      break;
    case Plan::kLook:
      return look_whether_stored(job, false);
    case Plan::kDescribe:
      return begin_description(job);
    case Plan::kRemove:
      return begin_removal(job);
    case Plan::kEnd:
      return ending == Ending::kFails ? end_with(job, failure, false) : end_job(job, ending);
  }
  job->sends_content = true;
  TierUpload::start(tools(), std::move(source), [self = shared_from_this(), job](TierUpload::Outcome outcome) {
    self->content_sent(job, std::move(outcome));
  });
}

// The store has not what it should have: all of it is stored again. But what another array has stored, that one
// replaces or stores again.
void TierCopier::Impl::begin_anew(const std::shared_ptr<Job>& job) {
  if (job->is_theirs) {
    job->note.manifest_tag = 0;
    return end_job(job, Ending::kIsCopied);
  }
  job->file.is_missing = true;
  job->opened = nullptr;
  environment_.executor().post([self = shared_from_this(), job] { self->begin(job); });
}

TierCopier::Impl::Plan TierCopier::Impl::prepare(Job& job, TierUpload::Source& source, Ending& ending,
                                                 Status& failure) {
  TierWaiting& file = job.file;
  const Result<Found> found = find(file.path);
  if (!found.is_ok() && !is_vacant(found, file.path)) {
    failure = found.status();
    ending = Ending::kFails;
    return Plan::kEnd;
  }
  if (file.inode != 0 && !is_at(found, file.inode)) {
    ending = find_again(job, found);
    return Plan::kEnd;
  }
  if (is_vacant(found, file.path)) {
    ending = Ending::kIsCopied;  // what is not there has no copy to be made
    return follows() ? Plan::kRemove : Plan::kEnd;
  }
  job.manifest = {};
  job.manifest.array_id = store_.array().id();
  job.manifest.path = file.path;
  job.note = {};
  job.note.place = place_of(file.path);
  if (found.value().is_file()) return prepare_file(job, found.value(), source, ending, failure);
  if (file.path.ends_with('/')) job.manifest.path.pop_back();
  job.has_other_names = !found.value().is_directory() && found.value().node.attributes.st_nlink > 1;
  failure = describe(found.value().node.handle.get(), job.manifest);
  job.note.attributes = attributes_of(job.manifest);
  job.from = file.path;
  ending = failure.code() == StatusCode::kNotFound ? Ending::kGone : Ending::kFails;
  return failure.is_ok() ? Plan::kDescribe : Plan::kEnd;
}

TierCopier::Impl::Plan TierCopier::Impl::prepare_file(Job& job, const Found& found, TierUpload::Source& source,
                                                      Ending& ending, Status& failure) {
  const auto fails = [&](const Status& status) {
    failure = status;
    ending = status.errno_value() == ESTALE || status.code() == StatusCode::kNotFound ? Ending::kGone : Ending::kFails;
    return Plan::kEnd;
  };
  const Handle node = found.node.handle.get();
  job.has_other_names = found.node.attributes.st_nlink > 1;
  job.file.is_link |= job.file.inode == 0 && job.has_other_names;
  job.file.inode = found.node.attributes.st_ino;
  const std::string copied_at = this->copied_at(node);
  job.has_path = !copied_at.empty();
  if (job.has_path && copied_at != job.file.path) job.file.from = copied_at;
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
    ending = Ending::kGone;  // not durable yet
    return Plan::kEnd;
  }
  const FileImage& image = source.image;
  TierManifest& manifest = job.manifest;
  manifest.file_id = image.file_id;
  manifest.generation = image.generation;
  manifest.sequence = image.sequence;
  manifest.size = image.size;
  manifest.chunk_size = image.size > 0 ? store_.array().stripes().chunk_size : 0;
  manifest.stored_checksums = stored_checksums_of(image, store_.array().stripes());
  image.extents.for_each(ChunkIndex(0), [&job](ChunkIndex, const Extent& extent) {
    job.has_away |= extent.is_away();
    job.is_cut |= extent.visible_length != extent.raw_length;
    return !job.has_away || !job.is_cut;
  });
  manifest.content = content_of(image);
  if (const Status status = describe(node, manifest); !status.is_ok()) return fails(status);
  job.note.file_id = image.file_id;
  job.note.sequence = image.sequence;
  job.note.size = image.size;
  job.note.attributes = attributes_hash(manifest);
  source.key = job.file.path;
  source.mark = fmt::format("{}.{:016x}.{}.{:016x}", to_string(manifest.array_id), manifest.file_id.value(),
                            manifest.sequence, environment_.random_u64());
  // Before the note is read: what was told by now is in one of the two.
  const uint64_t same_since = this->same_since(job.file, image.file_id, image.sequence);
  const std::optional<TierNote> note = note_of(node, job.file.path);
  if (note.has_value() && note->place != job.note.place && !job.has_other_names) note_lost(*note);
  return plan_of(job, note, same_since);
}

TierCopier::Impl::Plan TierCopier::Impl::plan_of(Job& job, const std::optional<TierNote>& note,
                                                 uint64_t same_since) const {
  SidecarSummary record;
  record.file_id = job.note.file_id;
  record.sequence = job.note.sequence;
  record.size = job.note.size;
  if (job.file.is_missing) return Plan::kCopy;
  const bool is_file = note.has_value() && note->file_id == record.file_id && note->size == record.size;
  const bool is_told = is_file && same_since < record.sequence && note->sequence >= same_since;
  // A scan may have come before note_move(). Asked behind the version that is held: it may only have become later.
  const bool is_moved = is_told || (is_file && job.opened != nullptr && note->sequence >= job.opened->content_since());
  const bool is_current = note.has_value() && is_of_commit(*note, record);
  job.is_noted = is_current || is_moved;
  // Of a content that lies there in part, what is known of it there says whether it is the same.
  const bool is_copied = job.is_noted || (is_file && job.has_away);
  const bool is_here = is_copied && note->place == job.note.place;
  if (is_current && is_here && note->attributes == job.note.attributes) {
    job.note = *note;
    return Plan::kLook;
  }
  const bool is_elsewhere = note.has_value() && note->place != job.note.place;
  job.was_others = is_elsewhere && note->is_others;
  job.was_somewhere = is_elsewhere && job.file.from.empty() && !job.has_other_names;
  const bool was_there = is_copied && !job.file.from.empty() && note->place == place_of(job.file.from);
  job.from = is_here ? job.file.path : was_there ? job.file.from : "";
  job.from_tag = is_here || was_there ? note->content_tag : 0;
  job.from_verified = (is_here || was_there) && note->verified;
  // A sidecar has room for the note of one name: there may be a copy at this one, too.
  if (job.from.empty() && (job.has_other_names || is_copied)) job.from = job.file.path;
  return job.from.empty() ? Plan::kCopy : Plan::kDescribe;
}

// As the note says: see tier_scan.cpp.
void TierCopier::Impl::look_whether_stored(const std::shared_ptr<Job>& job, bool is_manifest) {
  const std::string key = is_manifest ? manifest_key(job->file.path) : job->file.path;
  const uint64_t tag = is_manifest ? job->note.manifest_tag : job->note.content_tag;
  ask_head(job, key, [self = shared_from_this(), job, is_manifest, tag](const Result<ObjectInfo>& found) {
    const bool is_stored = found.is_ok() && TierNote::tag_of(found.value().tag) == tag;
    if (is_stored && !is_manifest) return self->look_whether_stored(job, true);
    is_stored ? self->end_job(job, Ending::kIsCopied) : self->begin_anew(job);
  });
}

// --- content, manifest, note -----------------------------------------------------------------------------------------

void TierCopier::Impl::content_sent(const std::shared_ptr<Job>& job, TierUpload::Outcome outcome) {
  if (!outcome.failure.status.is_ok()) return end_with(job, outcome.failure.status, outcome.failure.is_of_store);
  job->manifest.content_tag = std::move(outcome.content.tag);
  job->manifest.checksums = std::move(outcome.content.checksums);
  job->note.content_tag = TierNote::tag_of(job->manifest.content_tag);
  job->note.verified = outcome.content.verified;
  environment_.workers().post([self = shared_from_this(), job] { self->store_manifest(job); });
}

void TierCopier::Impl::store_manifest(const std::shared_ptr<Job>& job) {
  job->manifest.replaced = job->replaced;
  // Of a copy that the store has already it is known by other things that it is the same.
  if (!job->manifest.is_content_right()) job->manifest.content.clear();
  const Status valid = validate_manifest(job->manifest);
  if (!valid.is_ok()) return end_with(job, valid, false);
  job->encoded = encode_manifest(job->manifest);
  ask<StoredObject>(
      job,
      [this, job](Asked<StoredObject> done) {
        const ObjectMetadata metadata = {{kMark, to_string(job->manifest.array_id)}};
        objects_.put(manifest_key(job->file.path), job->encoded, metadata, std::move(done));
      },
      [self = shared_from_this(), job](const Result<StoredObject>& stored) {
        if (!stored.is_ok()) return self->end_with(job, stored.status(), true);
        job->note.manifest_tag = TierNote::tag_of(stored.value().tag);
        self->environment_.executor().post([self, job] { self->write_note(job); });
      });
}

// Without the note the file is copied once more after a restart. A file that was moved meanwhile has its copy where it
// was, and gets one where it is.
void TierCopier::Impl::write_note(const std::shared_ptr<Job>& job) {
  {
    const MutexLock lock(mutex_);
    if (job->sends_content) ++counted_.files_copied;
    if (job->sends_content) counted_.bytes_copied += job->manifest.size;
    if (!job->sends_content && !job->is_unchanged) ++counted_.manifests_stored;
    // For these; or for the copy that it had at another path.
    if ((job->has_other_names && !job->is_unchanged) || (job->was_somewhere && follows())) scan_is_due_ = true;
  }
  if (job->opened == nullptr) {
    note_node(*job);
    if (!job->removes_content) return end_job(job, Ending::kCopied);
    return remove_content(job, "", [self = shared_from_this(), job](bool) { self->end_job(job, Ending::kCopied); });
  }
  // Before what is needed no more is removed.
  if (job->has_path)
    if (const Status moved =
            job->opened->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(job->file.path)), true);
        !moved.is_ok())
      return end_with(job, moved, false);
  // Another array's copy is removed where the file was: moved back there with the note of that one, it would seem to be
  // what another array has removed.
  const Status written = job->opened->set_note(TierNote::kAttribute, encode_note(job->note), job->was_others);
  if (!written.is_ok() && job->was_others) return end_with(job, written, false);
  if (!written.is_ok()) {
    log(LogLevel::kWarning, "tier: {} is copied, which cannot be noted: {}", job->file.path, written.message());
    const MutexLock lock(mutex_);
    note_failure(written);
  }
  if (!written.is_ok() || job->has_other_names) keep_note(job->note);
  const Result<Found> found = find(job->file.path);
  if (is_at(found, job->file.inode)) return end_job(job, Ending::kCopied);
  job->left = std::exchange(job->file.from, job->begun_at);
  end_job(job, find_again(*job, found));
}

// --- calls of the store ----------------------------------------------------------------------------------------------

template <typename T>
void TierCopier::Impl::ask(const std::shared_ptr<Job>& job, std::function<void(Asked<T>)> call, Asked<T> done,
                           unsigned attempt) {
  if (is_stopping()) return end_job(job, Ending::kCancelled);
  call([self = shared_from_this(), job, call, done, attempt](Result<T> answer) {
    const Status& status = answer.status();
    if (status.is_ok() || !is_of_store(status.code())) return done(std::move(answer));
    if (status.code() != StatusCode::kUnreachable || attempt + 1 >= TierUpload::kAttempts)
      return self->end_with(job, status, true);
    self->after(self->pause(attempt + 1),
                [self, job, call, done, attempt] { self->template ask<T>(job, call, done, attempt + 1); });
  });
}

template void TierCopier::Impl::ask(const std::shared_ptr<Job>& job, std::function<void(Asked<StoredObject>)> call,
                                    Asked<StoredObject> done, unsigned attempt);

void TierCopier::Impl::ask_head(const std::shared_ptr<Job>& job, const std::string& key, Asked<ObjectInfo> done) {
  ask<ObjectInfo>(
      job, [this, key](Asked<ObjectInfo> answered) { objects_.head(key, std::move(answered)); }, std::move(done));
}

void TierCopier::Impl::ask_remove(const std::shared_ptr<Job>& job, const std::string& key, std::function<void()> done) {
  ask<bool>(
      job,
      [this, key](const Asked<bool>& answered) {
        objects_.remove(key, [answered](const Status& status) {
          answered(status.is_ok() ? Result<bool>(true) : Result<bool>(status));
        });
      },
      [self = shared_from_this(), job, done = std::move(done)](const Result<bool>& removed) {
        removed.is_ok() ? done() : self->end_with(job, removed.status(), true);
      });
}

void TierCopier::Impl::read_manifest(const std::shared_ptr<Job>& job, const std::string& key,
                                     Asked<StoredManifest> done) {
  get_manifest(job, key, kManifestBytes, std::move(done));
}

void TierCopier::Impl::get_manifest(const std::shared_ptr<Job>& job, const std::string& key, size_t bytes,
                                    Asked<StoredManifest> done) {
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  ask<ReadRange>(
      job, [this, key, memory](Asked<ReadRange> answered) { objects_.get(key, 0, *memory, "", std::move(answered)); },
      [self = shared_from_this(), job, key, memory, done = std::move(done)](const Result<ReadRange>& read) {
        if (!read.is_ok()) return done(read.status());
        const ReadRange& range = read.value();
        if (range.object_size > memory->size() && range.object_size <= kManifestBytesMax)
          return self->get_manifest(job, key, range.object_size, done);
        self->environment_.workers().post([memory, range, done] {
          Result<TierManifest> manifest = decode_manifest(std::span(*memory).first(range.length));
          if (!manifest.is_ok()) return done(manifest.status());
          done(StoredManifest{*std::move(manifest), TierNote::tag_of(range.tag)});
        });
      });
}

}  // namespace fpfs
