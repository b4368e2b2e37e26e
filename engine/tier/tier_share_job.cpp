// Where several arrays copy to one store: before a path is copied, described or removed there, what others have there
// is compared with what this array has seen of it.
//
//   what the store has            what the array has                     what becomes of it
//   nothing, or its own           anything                               as without others
//   nothing                       unchanged, and another array's         it goes here, too
//   another's, which was seen     changed, or removed since              this array's goes there, or nothing
//   another's, not seen           nothing                                it is shown here
//                                 unchanged, and replaced by that        it is shown here instead
//                                 changed, or not known to that array    a conflict: both are kept
//   removed by another            unchanged, and known to that array     it goes here, too
//                                 changed                                this array's goes there
//
// Seen: the note of the file names the manifest; or what had the path before did, which was removed or replaced here
// (TierLost). Known to another array: its manifest says that it took the place of this array's last one
// (TierManifest::replaced). What was changed last (mtime) keeps the name in a conflict.
//
// What is shown has its content in the store, under the path where the other array has it, until it is read. A name
// that is replaced or goes is first moved aside, looked at once more, and only then removed: so nobody who has written
// to it in between loses that.
//
// What is removed though another array has made it leaves a manifest that says so. That array, once its own is gone for
// good, removes it.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {
namespace {

constexpr int kToList = O_RDONLY | O_DIRECTORY;

// The commit of a file that is to be shown.
struct ShownCommit {
  ControlRequest request;
  std::function<void(const Status&)> done;
};

constexpr std::string_view kConflict = ".conflict-";
constexpr const char* kAside = "user.fastpersistfs.tier-aside";

// Where a version goes that cannot keep its name.
std::string conflict_path(const std::string& path, int64_t mtime_s, uint64_t version) {
  const size_t begin = path.rfind('/') + 1;
  const std::string ending = fmt::format("{}{:%Y%m%dT%H%M%S}-{:08x}", kConflict,
                                         fmt::gmtime(static_cast<time_t>(mtime_s)), static_cast<uint32_t>(version));
  const size_t room = std::min(ObjectStore::kComponentBytesMax, size_t{255}) - ending.size();
  return path.substr(0, begin) + path.substr(begin, room) + ending;
}

}  // namespace

// As long as it lives, changes of these names by this thread are not told.
class TierCopier::Impl::Silence {
 public:
  Silence(Impl& impl, std::vector<std::string> paths) : impl_(impl), paths_(std::move(paths)) {
    const MutexLock lock(impl_.mutex_);
    for (const std::string& path : paths_) impl_.silent_.emplace(path, std::this_thread::get_id());
  }
  ~Silence() {
    const MutexLock lock(impl_.mutex_);
    for (const std::string& path : paths_)
      impl_.silent_.erase(impl_.silent_.find(std::pair(path, std::this_thread::get_id())));
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  Impl& impl_;
  const std::vector<std::string> paths_;
};

bool TierCopier::Impl::is_silent(const Store::NameEvent& event) const {
  const std::thread::id self = std::this_thread::get_id();
  return silent_.contains({event.path, self}) || (!event.from.empty() && silent_.contains({event.from, self}));
}

// --- what was seen ---------------------------------------------------------------------------------------------------

// The file is where the note says no more.
void TierCopier::Impl::note_lost(const TierNote& note) {
  lost_->add(note.place, note.manifest_tag);
  const MutexLock lock(mutex_);
  seen_.erase(note.place);
}

bool TierCopier::Impl::is_known(const std::string& path, const std::optional<TierNote>& note, uint64_t tag) const {
  if (note.has_value() && note->manifest_tag == tag) return true;
  const uint64_t lost = lost_->manifest_at(place_of(path));
  return lost == tag || lost == TierLost::kAnyManifest;
}

uint64_t TierCopier::Impl::attributes_of(const TierManifest& manifest) const {
  if (!options_.shares || !S_ISDIR(manifest.mode)) return attributes_hash(manifest);
  TierManifest timeless;
  take_attributes(timeless, manifest);
  timeless.mtime_seconds = 0;
  timeless.mtime_nanoseconds = 0;
  return attributes_hash(timeless);
}

TierCopier::Impl::Local TierCopier::Impl::local_of(const Found& found, const std::string& path) {
  Local local;
  const Handle node = found.node.handle.get();
  local.note = note_of(node, path);
  if (local.note.has_value() && local.note->place != place_of(path)) local.note.reset();
  if (found.is_file()) {
    Result<std::shared_ptr<File>> file = store_.open_file(node, false);
    if (!file.is_ok()) return local;
    local.file = std::move(*file);
    local.content_since = local.file->content_since();
    const File::Info info = local.file->info();
    // Commits since then may have moved the content; of another array's also such that nobody has noted.
    std::array<std::byte, 1> none;
    const bool is_as_theirs = local.note.has_value() && local.note->is_others &&
                              store_.storage().get_xattr(node, ChunkSource::kOthersAttribute, none).is_ok();
    const bool is_noted = local.note.has_value() && local.note->file_id == info.file_id &&
                          local.note->size == info.size && local.note->sequence >= local.content_since;
    local.is_unchanged = local.content_since != UINT64_MAX && (is_as_theirs || is_noted);
    return local;
  }
  TierManifest manifest;
  local.is_unchanged =
      local.note.has_value() && describe(node, manifest).is_ok() && local.note->attributes == attributes_of(manifest);
  return local;
}

// --- comparing -------------------------------------------------------------------------------------------------------

void TierCopier::Impl::compare(const std::shared_ptr<Job>& job) {
  read_manifest(job, manifest_key(job->file.path), [self = shared_from_this(), job](Result<StoredManifest> stored) {
    const auto kept = std::make_shared<Result<StoredManifest>>(std::move(stored));
    self->post([job, kept](Impl& impl) { impl.compared(job, *kept); });
  });
}

void TierCopier::Impl::compared(const std::shared_ptr<Job>& job, const Result<StoredManifest>& stored) {
  job->is_compared = true;
  const std::string& path = job->file.path;
  job->lost = lost_->manifest_at(place_of(path));
  const bool is_damaged = stored.status().code() == StatusCode::kCorruption ||
                          (stored.is_ok() && (stored.value().manifest.path != without_slash(path) ||
                                              S_ISDIR(stored.value().manifest.mode) != path.ends_with('/')));
  const bool is_there = stored.is_ok() && !is_damaged;
  if (!stored.is_ok() && !is_damaged && stored.status().code() != StatusCode::kNotFound)
    return end_with(job, stored.status(), false);
  const bool is_theirs = is_there && stored.value().manifest.array_id != store_.array().id();
  if (is_there) {
    job->replaced = stored.value().manifest.replaced;
    if (is_theirs) job->replaced[array_key(stored.value().manifest.array_id)] = stored.value().tag;
    job->replaced.erase(own_key());
    while (job->replaced.size() > TierManifest::kReplacedMax) job->replaced.erase(job->replaced.begin());
  }
  const Result<Found> found = find(path);
  const bool is_vacant_here = is_vacant(found, path);
  if ((!found.is_ok() && !is_vacant_here) || (job->file.inode != 0 && !is_at(found, job->file.inode)))
    return begin(job);
  if (is_vacant_here) return is_theirs ? find_theirs(job, stored.value()) : begin(job);
  if (is_left_aside(found.value(), path)) return remove_left(job, found.value());
  if (is_theirs) return compare_with_theirs(job, found.value(), stored.value());
  const Local local = local_of(found.value(), path);
  const bool went = !is_there && !is_damaged && local.is_unchanged && local.note->is_others;
  went ? withdraw(job, found.value(), local, 0) : begin(job);
}

void TierCopier::Impl::compare_with_theirs(const std::shared_ptr<Job>& job, const Found& found,
                                           const StoredManifest& stored) {
  const std::string& path = job->file.path;
  const Local local = local_of(found, path);
  if (is_known(path, local.note, stored.tag)) return note_moved(job, local);
  const auto own = stored.manifest.replaced.find(own_key());
  const bool knows_ours =
      local.is_unchanged &&
      (local.note->is_others || (own != stored.manifest.replaced.end() && own->second == local.note->manifest_tag));
  if (stored.manifest.is_removed())
    return knows_ours ? withdraw(job, found, local, stored.manifest.removed_of) : begin(job);
  if (found.is_directory()) return adopt_directory(job, found, local, stored);
  if (found.is_file() && local.content_since == UINT64_MAX) return when_written(job);
  if (adopt_if_same(job, found, local, stored)) return;
  if (!knows_ours) return settle_conflict(job, found, stored);
  const auto shown = std::make_shared<Shown>();
  shown->stored = stored;
  shown->as = path;
  shown->replaces = true;
  shown->over = local;
  shown->aside = conflict_path(path, found.node.attributes.st_mtim.tv_sec, environment_.random_u64());
  show(job, shown);
}

// What was at a name aside when the power went, to be removed or to be given its own: as another array has it.
bool TierCopier::Impl::is_left_aside(const Found& found, const std::string& path) {
  std::array<std::byte, 2 * sizeof(uint64_t)> said;
  const Handle node = found.node.handle.get();
  if (!found.is_file() || found.name.find(kConflict) == std::string::npos) return false;
  const Result<size_t> length = store_.storage().get_xattr(node, kAside, said);
  if (!length.is_ok() || *length != said.size() || store_.is_in_use(found.node.attributes.st_ino)) return false;
  if (get_u64(&said[sizeof(uint64_t)]) != place_of(path)) return false;
  std::array<std::byte, 1> none;
  if (store_.storage().get_xattr(node, ChunkSource::kOthersAttribute, none).is_ok()) return true;  // perhaps moved
  const Result<SidecarSummary> record = store_.last_record(node);
  return record.is_ok() && record.value().sequence == get_u64(said.data());
}

// A file says that it is to be removed where it is found at `aside` with the commit that it has. Elsewhere that says
// nothing, so it may stay: whether a name is durable is not known here.
Status TierCopier::Impl::goes(File& file, const std::string& aside) {
  std::array<std::byte, 2 * sizeof(uint64_t)> said;
  put_u64(said.data(), file.info().sequence);
  put_u64(&said[sizeof(uint64_t)], place_of(aside));
  return file.set_note(kAside, said, true);
}

// A file that was to be removed says so no more.
Status TierCopier::Impl::stays(Handle node) {
  const Status removed = store_.storage().remove_xattr(node, kAside);
  return removed.errno_value() == ENODATA ? Status::ok() : removed;
}

// The other version has the content that is here already (or is no file, and the same), or both are empty: only what
// is known of it is another.
bool TierCopier::Impl::adopt_if_same(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                     const StoredManifest& stored) {
  const TierManifest& theirs = stored.manifest;
  const Handle node = found.node.handle.get();
  if (theirs.is_file() != found.is_file()) return false;
  TierManifest ours;
  if (!describe(node, ours).is_ok()) return false;
  const bool has_content = local.is_unchanged && theirs.size > 0 && local.note->size == theirs.size &&
                           local.note->content_tag == TierNote::tag_of(theirs.content_tag);
  const bool is_empty = found.is_file() && theirs.size == 0 && local.file != nullptr && local.file->info().size == 0;
  const bool is_same_node = !found.is_file() && attributes_of(ours) == attributes_of(theirs);
  if (!has_content && !is_empty && !is_same_node) return false;
  const auto adopt = [&]() -> Status {
    const Silence silence(*this, {job->file.path});
    if (attributes_of(ours) != attributes_of(theirs)) FPFS_RETURN_IF_ERROR(shown_.describe(node, theirs));
    FPFS_RETURN_IF_ERROR(describe(node, ours));
    job->note = note_of_theirs(stored, job->file.path, attributes_of(ours));
    if (!found.is_file()) return note_on(node, job->note);
    const File::Info info = local.file->info();
    job->note.file_id = info.file_id;
    job->note.sequence = info.sequence;
    return local.file->set_note(TierNote::kAttribute, encode_note(job->note));
  };
  const Status adopted = adopt();
  if (adopted.is_ok()) shown_.tell(found.directory.get(), found.name);
  adopted.is_ok() ? end_job(job, Ending::kIsCopied) : end_with(job, adopted, false);
  return true;
}

// Somebody writes to it: what becomes of it is seen when that is committed, or in a moment.
void TierCopier::Impl::when_written(const std::shared_ptr<Job>& job) {
  after(options_.pause_first, [self = shared_from_this(), job] { self->end_job(job, Ending::kMoved); });
}

void TierCopier::Impl::remove_left(const std::shared_ptr<Job>& job, const Found& found) {
  const Silence silence(*this, {job->file.path});
  const Status removed = store_.unlink(found.directory.get(), found.name);
  shown_.tell(found.directory.get(), found.name);
  removed.is_ok() ? end_job(job, Ending::kGone) : end_with(job, removed, false);
}

// What is there was seen. When nothing but the place of its content has changed since, that is all.
void TierCopier::Impl::note_moved(const std::shared_ptr<Job>& job, const Local& local) {
  job->is_theirs = local.is_unchanged && local.file != nullptr && local.note->is_others;
  if (!job->is_theirs || local.note->sequence >= local.file->info().sequence) return begin(job);
  job->note = *local.note;
  job->note.sequence = local.file->info().sequence;
  const Status noted = local.file->set_note(TierNote::kAttribute, encode_note(job->note));
  noted.is_ok() ? begin(job) : end_with(job, noted, false);
}

// Where the array has nothing.
void TierCopier::Impl::find_theirs(const std::shared_ptr<Job>& job, const StoredManifest& stored) {
  const std::string& path = job->file.path;
  if (stored.manifest.is_removed()) {
    if (stored.manifest.removed_of != own_key()) {
      job->note.place = place_of(path);
      job->note.manifest_tag = stored.tag;
      note_foreign(manifest_key(path), stored.tag);
      return end_job(job, Ending::kIsCopied);
    }
    const Result<bool> vacant = is_vacant_for_good(path);
    if (!vacant.is_ok()) return end_with(job, vacant.status(), false);
    if (!vacant.value()) return end_job(job, Ending::kMoved);
    return ask_remove(job, manifest_key(path),
                      [self = shared_from_this(), job] { self->end_job(job, Ending::kRemoved); });
  }
  if (is_known(path, std::nullopt, stored.tag) && follows()) return bury(job, stored);
  if (!job->file.is_looked_at) {
    note_foreign(manifest_key(path), stored.tag);
    return end_job(job, Ending::kIsCopied);
  }
  const auto shown = std::make_shared<Shown>();
  shown->stored = stored;
  shown->as = path;
  show(job, shown);
}

// --- what is removed -------------------------------------------------------------------------------------------------

// Another array's was removed here: that is said in its place, and the content goes.
void TierCopier::Impl::bury(const std::shared_ptr<Job>& job, const StoredManifest& stored) {
  const std::string path = job->file.path;
  if (!may_remove(job)) return;
  if (!may_replace(path, 0)) return end_job(job, Ending::kBlocked);
  if (path.ends_with('/') && is_emptied(path)) return when_written(job);
  TierManifest removed;
  removed.array_id = store_.array().id();
  removed.path = std::string(without_slash(path));
  removed.mode = stored.manifest.mode & S_IFMT;
  if (!S_ISDIR(removed.mode)) removed.mode = S_IFREG;
  removed.replaced = job->replaced;
  removed.removed_of = array_key(stored.manifest.array_id);
  job->encoded = encode_manifest(removed);
  ask<StoredObject>(
      job,
      [this, job](Asked<StoredObject> done) {
        const ObjectMetadata metadata = {{kMark, to_string(store_.array().id())}};
        objects_.put(manifest_key(job->file.path), job->encoded, metadata, std::move(done));
      },
      [self = shared_from_this(), job, tag = stored.manifest.content_tag](const Result<StoredObject>& put) {
        if (!put.is_ok()) return self->end_with(job, put.status(), true);
        const auto removed_all = [self, job](bool) {
          {
            const MutexLock lock(self->mutex_);
            ++self->counted_.copies_removed;
          }
          self->end_job(job, Ending::kRemoved);
        };
        if (tag.empty()) return removed_all(true);
        self->remove_content(job, tag, removed_all);
      });
}

// What was in the directory is said to be removed before: others keep a directory that they have something in.
bool TierCopier::Impl::is_emptied(const std::string& path) const {
  const MutexLock lock(mutex_);
  return queue_.has_below(path) || std::ranges::any_of(copying_, [&path](const auto& copying) {
           return copying.first.size() > path.size() && copying.first.starts_with(path);
         });
}

// False: it was changed in between, and is kept.
Result<bool> TierCopier::Impl::withdraw_file(const Found& found, const Local& local, const std::string& path) {
  const std::string aside = conflict_path(path, found.node.attributes.st_mtim.tv_sec, environment_.random_u64());
  const std::string name = aside.substr(aside.rfind('/') + 1);
  const Silence silence(*this, {path, aside});
  FPFS_RETURN_IF_ERROR(goes(*local.file, aside));
  const Status moved = store_.rename(found.directory.get(), found.name, found.directory.get(), name, RENAME_NOREPLACE);
  if (!moved.is_ok()) {
    static_cast<void>(stays(found.node.handle.get()));
    return moved;
  }
  if (local.file->content_since() != local.content_since) {
    FPFS_RETURN_IF_ERROR(stays(found.node.handle.get()));
    FPFS_RETURN_IF_ERROR(
        store_.rename(found.directory.get(), name, found.directory.get(), found.name, RENAME_NOREPLACE));
    return false;
  }
  FPFS_RETURN_IF_ERROR(store_.unlink(found.directory.get(), name));
  return true;
}

// Another array has removed it. `removed_of`: whose it was, when that is said in the store; 0: nothing is there.
void TierCopier::Impl::withdraw(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                uint64_t removed_of) {
  const std::string path = job->file.path;
  if (found.is_file()) {
    const Result<bool> went = withdraw_file(found, local, path);
    if (!went.is_ok()) return end_with(job, went.status(), false);
    if (!went.value()) return when_written(job);
  } else {
    const Silence silence(*this, {std::string(without_slash(path))});
    const Status removed = found.is_directory() ? store_.remove_directory(found.directory.get(), found.name)
                                                : store_.unlink(found.directory.get(), found.name);
    // It has names in it that the others have not seen; or such that are gone there, too, which who looks into it finds.
    if (found.is_directory() && removed.errno_value() == ENOTEMPTY) {
      if (job->file.has_looked_below || !look_below(path)) return begin(job);
      return end_job(job, Ending::kLooksBelow);
    }
    if (!removed.is_ok()) return end_with(job, removed, false);
  }
  {
    const MutexLock lock(mutex_);
    notes_.erase(place_of(path));
    if (job->file.inode != 0 && strays_.settle(job->file.inode, "")) unblock();
  }
  shown_.tell(found.directory.get(), found.name);
  if (removed_of != own_key()) return end_job(job, Ending::kRemoved);
  const Result<bool> vacant = is_vacant_for_good(path);
  if (!vacant.is_ok()) return end_with(job, vacant.status(), false);
  if (!vacant.value()) return end_job(job, Ending::kMoved);
  ask_remove(job, manifest_key(path), [self = shared_from_this(), job] { self->end_job(job, Ending::kRemoved); });
}

// --- conflicts -------------------------------------------------------------------------------------------------------

void TierCopier::Impl::settle_conflict(const std::shared_ptr<Job>& job, const Found& found,
                                       const StoredManifest& stored) {
  const std::string& path = job->file.path;
  const TierManifest& theirs = stored.manifest;
  const struct timespec ours = found.node.attributes.st_mtim;
  const std::tuple our_time(int64_t{ours.tv_sec}, static_cast<uint32_t>(ours.tv_nsec), store_.array().id());
  const std::tuple their_time(theirs.mtime_seconds, theirs.mtime_nanoseconds, theirs.array_id);
  const auto shown = std::make_shared<Shown>();
  shown->stored = stored;
  if (our_time > their_time) {
    // The same however often it is found, so that it is kept once; and no other array's, which may find it, too.
    shown->as = conflict_path(path, theirs.mtime_seconds, stored.tag ^ own_key());
    const Result<Found> kept = find(shown->as);
    if (kept.is_ok() && kept.value().has_node()) return begin(job);
  } else {
    shown->as = path;
    shown->replaces = true;
    shown->keeps = true;
    shown->aside = conflict_path(path, ours.tv_sec, environment_.random_u64());
  }
  log(LogLevel::kWarning,
      "tier: {} was changed here and by array {}, neither knowing of the other: {} was changed last, {} is kept as {}",
      path, to_string(theirs.array_id), shown->replaces ? "theirs" : "ours", shown->replaces ? "ours" : "theirs",
      shown->replaces ? shown->aside : shown->as);
  {
    const MutexLock lock(mutex_);
    ++counted_.conflicts;
  }
  show(job, shown);
}

// --- showing ---------------------------------------------------------------------------------------------------------

TierNote TierCopier::Impl::note_of_theirs(const StoredManifest& stored, const std::string& path,
                                          uint64_t attributes) const {
  TierNote note;
  note.place = place_of(path);
  note.size = stored.manifest.size;
  note.content_tag = stored.manifest.content_tag.empty() ? 0 : TierNote::tag_of(stored.manifest.content_tag);
  note.manifest_tag = stored.tag;
  note.attributes = attributes;
  note.is_others = true;
  return note;
}

// Of what is no file. A node that takes no attribute has its note in memory only.
Status TierCopier::Impl::note_on(Handle node, const TierNote& note) {
  keep_note(note);
  const Status set = store_.storage().set_xattr(node, TierNote::kAttribute, encode_note(note), 0);
  const bool takes_none = set.errno_value() == EPERM || set.errno_value() == EOPNOTSUPP || set.errno_value() == EBADF ||
                          set.code() == StatusCode::kPermission || set.code() == StatusCode::kUnsupported;
  return takes_none ? Status::ok() : set;
}

// Names in it are shown one by one; of itself, owner, mode and attributes are what was changed last.
void TierCopier::Impl::adopt_directory(const std::shared_ptr<Job>& job, const Found& found, const Local& local,
                                       const StoredManifest& stored) {
  TierManifest ours;
  if (const Status described = describe(found.node.handle.get(), ours); !described.is_ok())
    return end_with(job, described, false);
  const bool differs = attributes_of(ours) != attributes_of(stored.manifest);
  if (differs && local.note.has_value() && !local.is_unchanged) return begin(job);
  const auto adopt = [&]() -> Status {
    const Silence silence(*this, {std::string(without_slash(job->file.path))});
    FPFS_ASSIGN_OR_RETURN(const Handle opened, store_.storage().open_at(found.directory.get(), found.name, kToList));
    const ScopedHandle directory(store_.storage(), opened);
    if (differs) FPFS_RETURN_IF_ERROR(shown_.describe(directory.get(), stored.manifest));
    TierManifest now;
    FPFS_RETURN_IF_ERROR(describe(directory.get(), now));
    job->note = note_of_theirs(stored, job->file.path, attributes_of(now));
    if (differs) shown_.tell(directory.get(), "");
    return note_on(directory.get(), job->note);
  };
  const Status adopted = adopt();
  adopted.is_ok() ? end_job(job, Ending::kIsCopied) : end_with(job, adopted, false);
}

void TierCopier::Impl::show(const std::shared_ptr<Job>& job, std::shared_ptr<Shown> shown) {
  job->shown = std::move(shown);
  const Status begun = begin_to_show(*job);
  if (!begun.is_ok()) return end_with(job, begun, false);
  if (!job->shown->stored.manifest.is_file()) return show_name(job, Status::ok());
  job->shown->as == job->file.path ? commit_shown(job) : copy_aside(job);
}

// Of a content that another array has stored, so that it does not take the copy for its own.
std::optional<ObjectMetadata> TierCopier::Impl::mark_of_copy() {
  if (!options_.shares) return std::nullopt;
  const std::string array = to_string(store_.array().id());
  return ObjectMetadata{{kMark, fmt::format("{}.{:016x}", array, environment_.random_u64())}};
}

// What is kept beside its path gets a copy there, which is this array's: the one that it has is to be replaced.
void TierCopier::Impl::copy_aside(const std::shared_ptr<Job>& job) {
  Shown& shown = *job->shown;
  {
    // Nobody else writes there meanwhile.
    const MutexLock lock(mutex_);
    TierWaiting& copying = copying_.at(job->begun_at);
    const auto is_there = [&shown](const auto& other) { return other.second.path == shown.as; };
    shown.is_alone = std::ranges::none_of(copying_, is_there);
    if (shown.is_alone) copying.from = shown.as;
  }
  if (!shown.is_alone)
    return after(options_.pause_first, [self = shared_from_this(), job] { self->end_job(job, Ending::kMoved); });
  const TierManifest& theirs = shown.stored.manifest;
  const File::Info info = shown.created.file->info();
  job->manifest = theirs;
  job->manifest.array_id = store_.array().id();
  job->manifest.path = shown.as;
  job->manifest.file_id = info.file_id;
  job->manifest.generation = info.generation;
  job->manifest.sequence = 1;
  job->manifest.stored_checksums.clear();
  job->manifest.replaced.clear();
  const auto fails = [self = shared_from_this(), job](const Status& status) { self->end_with(job, status, true); };
  ask<StoredObject>(
      job,
      [this, job](Asked<StoredObject> done) {
        objects_.copy(job->file.path, job->shown->stored.manifest.content_tag, job->shown->as, mark_of_copy(),
                      std::move(done));
      },
      [self = shared_from_this(), job, fails](const Result<StoredObject>& copied) {
        // Its content is gone: somebody who may have seen it, or not, is about to replace it. That array keeps what it
        // has, as nobody says that it was seen.
        if (copied.status().code() == StatusCode::kNotFound)
          return self->environment_.executor().post([self, job] {
            job->replaced.erase(array_key(job->shown->stored.manifest.array_id));
            job->shown = nullptr;
            job->manifest = {};
            self->begin(job);
          });
        if (!copied.is_ok()) return fails(copied.status());
        job->manifest.content_tag = copied.value().tag;
        job->note.content_tag = TierNote::tag_of(copied.value().tag);
        job->note.verified = false;
        job->encoded = encode_manifest(job->manifest);
        self->ask<StoredObject>(
            job,
            [self, job](Asked<StoredObject> done) {
              const ObjectMetadata metadata = {{kMark, to_string(self->store_.array().id())}};
              self->objects_.put(manifest_key(job->shown->as), job->encoded, metadata, std::move(done));
            },
            [self, job, fails](const Result<StoredObject>& put) {
              if (!put.is_ok()) return fails(put.status());
              job->note.manifest_tag = TierNote::tag_of(put.value().tag);
              self->environment_.executor().post([self, job] {
                const Status noted = job->shown->created.file->set_note(TierNote::kAttribute, encode_note(job->note));
                noted.is_ok() ? self->commit_shown(job) : self->end_with(job, noted, false);
              });
            });
      });
}

void TierCopier::Impl::commit_shown(const std::shared_ptr<Job>& job) {
  auto commit = std::make_unique<ShownCommit>();
  commit->done = [self = shared_from_this(), job](const Status& status) {
    // Not on the thread of the commit, which must not be made to wait.
    self->post([job, status](Impl& impl) { impl.show_name(job, status); });
  };
  commit->request.kind = ControlRequest::Kind::kCommit;
  commit->request.owner = commit.get();
  commit->request.complete = [](ControlRequest& request, const Status& status) {
    const std::unique_ptr<ShownCommit> ended(static_cast<ShownCommit*>(request.owner));
    ended->done(status);
  };
  File& file = *job->shown->created.file;
  file.control(commit.release()->request);
}

Status TierCopier::Impl::begin_to_show(Job& job) {
  Shown& shown = *job.shown;
  TierManifest manifest = shown.stored.manifest;
  const std::string as(without_slash(shown.as));
  FPFS_RETURN_IF_ERROR(RestoredTree::check_path(as));
  FPFS_ASSIGN_OR_RETURN(shown.directory, shown_.open_parent(as, shown.name));
  shown.aside_name = shown.aside.substr(shown.aside.rfind('/') + 1);
  if (!manifest.is_file()) return Status::ok();
  manifest.path = as;
  FPFS_ASSIGN_OR_RETURN(shown.created, shown_.begin_file(shown.directory.get(), manifest));
  TierManifest described;
  FPFS_RETURN_IF_ERROR(describe(shown.created.node.handle.get(), described));
  // What is kept beside its own path is this array's from then on.
  TierNote note = note_of_theirs(shown.stored, shown.as, attributes_of(described));
  note.file_id = shown.created.file->info().file_id;
  note.sequence = 1;
  note.is_others = shown.as == job.file.path;
  job.note = note;
  if (note.is_others) FPFS_RETURN_IF_ERROR(shown.created.file->set_note(ChunkSource::kOthersAttribute, {}));
  if (shown.replaces) FPFS_RETURN_IF_ERROR(goes(*shown.created.file, shown.aside));
  return shown.created.file->set_note(TierNote::kAttribute, encode_note(note));
}

void TierCopier::Impl::show_name(const std::shared_ptr<Job>& job, const Status& committed) {
  const Status named = committed.is_ok() ? give_name(job) : committed;
  const std::shared_ptr<Shown> shown = std::move(job->shown);
  if (named.code() == StatusCode::kExists || named.code() == StatusCode::kBusy)
    return end_job(job, is_vacant(find(job->file.path), job->file.path) ? Ending::kFails : Ending::kMoved, named);
  if (!named.is_ok()) return end_with(job, named, false);
  shown_.tell(shown->directory.get(), shown->name);
  {
    const MutexLock lock(mutex_);
    if (shown->stored.manifest.is_file()) ++counted_.files_shared;
  }
  if (shown->as == job->file.path) {
    job->file.inode = 0;
    job->file.sequence = 0;
    return end_job(job, Ending::kIsCopied);
  }
  job->note = {};
  // Before what it was a copy of is replaced.
  if (const Status synced = store_.sync_directory(shown->directory.get()); !synced.is_ok())
    return end_with(job, synced, false);
  if (!shown->stored.manifest.is_file()) {
    const MutexLock lock(mutex_);
    if (!add({0, shown->as, 0, 0, now_ns()})) scan_is_due_ = true;
  }
  end_job(job, Ending::kMoved);
}

// kExists, kBusy: somebody was faster.
Status TierCopier::Impl::give_name(const std::shared_ptr<Job>& job) {
  Shown& shown = *job->shown;
  const TierManifest& manifest = shown.stored.manifest;
  const Handle directory = shown.directory.get();
  const Silence silence(*this, {std::string(without_slash(shown.as)), shown.aside});
  const std::string& name = shown.replaces ? shown.aside_name : shown.name;
  if (S_ISDIR(manifest.mode)) {
    FPFS_RETURN_IF_ERROR(shown_.make_directory(directory, name));
    FPFS_ASSIGN_OR_RETURN(const Handle opened, store_.storage().open_at(directory, name, kToList));
    const ScopedHandle made(store_.storage(), opened);
    FPFS_RETURN_IF_ERROR(shown_.describe(made.get(), manifest));
    TierManifest described;
    FPFS_RETURN_IF_ERROR(describe(made.get(), described));
    job->note = note_of_theirs(shown.stored, job->file.path, attributes_of(described));
    return note_on(made.get(), job->note);
  }
  if (manifest.is_file()) {
    FPFS_RETURN_IF_ERROR(store_.link(shown.created.node.handle.get(), directory, name));
  } else {
    FPFS_RETURN_IF_ERROR(shown_.make_node(directory, name, manifest));
    FPFS_ASSIGN_OR_RETURN(const Store::Node node, store_.lookup(directory, name));
    TierManifest described;
    FPFS_RETURN_IF_ERROR(describe(node.handle.get(), described));
    job->note = note_of_theirs(shown.stored, job->file.path, attributes_of(described));
    if (shown.as == job->file.path) FPFS_RETURN_IF_ERROR(note_on(node.handle.get(), job->note));
  }
  if (!shown.replaces) return Status::ok();
  const bool goes = !shown.keeps && shown.over.file != nullptr;
  if (goes) FPFS_RETURN_IF_ERROR(this->goes(*shown.over.file, shown.aside));
  const Status exchanged = store_.rename(directory, name, directory, shown.name, RENAME_EXCHANGE);
  if (!exchanged.is_ok()) {
    static_cast<void>(store_.unlink(directory, name));
    return exchanged.code() == StatusCode::kNotFound ? Status::error(StatusCode::kBusy, exchanged.message())
                                                     : exchanged;
  }
  // What had the name has the other one now.
  const Result<Store::Node> old = store_.lookup(directory, name);
  if (!old.is_ok()) return old.status();
  const bool is_file = S_ISREG(old->attributes.st_mode);
  const bool is_same = shown.over.file != nullptr && shown.over.file->inode() == old->attributes.st_ino &&
                       shown.over.file->content_since() == shown.over.content_since;
  shown.over.file = nullptr;
  const bool is_kept = shown.keeps || (is_file && !is_same);
  if (is_kept && goes) FPFS_RETURN_IF_ERROR(stays(old->handle.get()));
  if (!is_kept) return store_.unlink(directory, name);
  shown_.tell(directory, name);
  TierWaiting kept{is_file ? old->attributes.st_ino : 0, shown.aside, 0, 0, now_ns()};
  if (!shown.keeps)
    log(LogLevel::kWarning, "tier: {} was changed here while another node's came: ours is kept as {}", shown.as,
        shown.aside);
  const MutexLock lock(mutex_);
  if (!shown.keeps) ++counted_.conflicts;
  if (!add(std::move(kept))) scan_is_due_ = true;
  return Status::ok();
}

}  // namespace fpfs
