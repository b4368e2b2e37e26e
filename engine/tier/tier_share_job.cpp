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
//   another's directory           a file, or a link                      a conflict: the directory keeps the name
//   another's file, or link       a directory                            as before, on the node that has the file
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
#include <sys/stat.h>

#include <array>
#include <thread>
#include <utility>

#include "engine/tier/tier_copier_impl.h"
#include "engine/tier/tier_silence.h"

namespace fpfs {

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

// What is in a directory goes with it, and nobody is told of each: until its notes are of where it is now, what is made
// anew at its former path has lost what was there. From the former path to the present one; the latest last.
void TierCopier::Impl::note_moved_directory(const Store::NameEvent& event) {
  for (auto& [from, to] : moved_directories_)
    if (to.starts_with(event.from + "/")) to = event.path + to.substr(event.from.size());
  if (moved_directories_.size() >= kMovedDirectoriesMax) moved_directories_.pop_front();
  moved_directories_.emplace_back(event.from + "/", event.path + "/");
}

// The manifest that was seen there, of what the path has lost; as TierLost::manifest_at().
uint64_t TierCopier::Impl::lost_at(const std::string& path) const {
  const uint64_t place = place_of(path);
  if (const uint64_t lost = lost_->manifest_at(place); lost != 0) return lost;
  std::vector<std::string> may_be_at;
  {
    const MutexLock lock(mutex_);
    for (auto moved = moved_directories_.rbegin(); moved != moved_directories_.rend(); ++moved)
      if (path.starts_with(moved->first)) may_be_at.push_back(moved->second + path.substr(moved->first.size()));
  }
  for (const std::string& at : may_be_at) {
    const Result<Found> found = find(at);
    if (!found.is_ok() || !found.value().has_node()) continue;
    const std::optional<TierNote> note = note_of(found.value().node.handle.get(), at);
    if (note.has_value() && note->place == place) return note->manifest_tag;
  }
  return 0;
}

bool TierCopier::Impl::is_known(const std::string& path, const std::optional<TierNote>& note, uint64_t tag) const {
  if (note.has_value() && note->manifest_tag == tag) return true;
  const uint64_t lost = lost_at(path);
  return lost == tag || lost == TierLost::kAnyManifest;
}

bool TierCopier::Impl::has_replaced(const TierManifest& manifest, uint64_t array, uint64_t tag) {
  const auto is = [&](uint64_t key) {
    const auto found = manifest.replaced.find(key);
    return found != manifest.replaced.end() && found->second == tag;
  };
  return is(array) || is(edit_key(array));
}

// What was seen has this content, with other attributes.
bool TierCopier::Impl::is_edit_of_known(const std::string& path, const std::optional<TierNote>& note,
                                        const TierManifest& manifest) const {
  const uint64_t array = array_key(manifest.array_id), lost = lost_at(path);
  return manifest.is_edited() && ((note.has_value() && has_replaced(manifest, array, note->manifest_tag)) ||
                                  (lost != 0 && has_replaced(manifest, array, lost)));
}

std::map<uint64_t, uint64_t> TierCopier::Impl::replaced_by_next(const StoredManifest& stored) const {
  std::map<uint64_t, uint64_t> replaced = stored.manifest.replaced;
  const uint64_t array = array_key(stored.manifest.array_id);
  if (!stored.manifest.is_edited()) replaced.erase(edit_key(array));
  replaced[stored.manifest.is_edited() ? edit_key(array) : array] = stored.tag;
  replaced.erase(own_key());
  replaced.erase(edit_key(own_key()));
  while (replaced.size() > TierManifest::kReplacedMax) replaced.erase(replaced.begin());
  return replaced;
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
    local.sequence = local.file->info().sequence;
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
  if (is_there) job->replaced = replaced_by_next(stored.value());
  const Result<Found> found = find(path);
  const bool is_vacant_here = is_vacant(found, path);
  if ((!found.is_ok() && !is_vacant_here) || (job->file.inode != 0 && !is_at(found, job->file.inode)))
    return begin(job);
  if (is_vacant_here && !is_theirs) return begin(job);
  if (is_vacant_here)
    return found.is_ok() && found.value().has_node() ? settle_kinds(job, found.value(), stored.value())
                                                     : find_theirs(job, stored.value());
  if (is_left_aside(found.value(), path)) return remove_left(job, found.value());
  if (is_theirs) return compare_with_theirs(job, found.value(), stored.value());
  const Local local = local_of(found.value(), path);
  if (is_there && stored.value().manifest.is_edited() && adopt_edit(job, found.value(), local, stored.value())) return;
  const bool went = !is_there && !is_damaged && local.is_unchanged && local.note->is_others;
  went ? withdraw(job, found.value(), local, 0) : begin(job);
}

void TierCopier::Impl::compare_with_theirs(const std::shared_ptr<Job>& job, const Found& found,
                                           const StoredManifest& stored) {
  const std::string& path = job->file.path;
  const Local local = local_of(found, path);
  if (is_known(path, local.note, stored.tag)) return note_moved(job, local);
  const bool knows_ours = local.is_unchanged &&
                          (local.note->is_others || has_replaced(stored.manifest, own_key(), local.note->manifest_tag));
  if (stored.manifest.is_removed())
    return knows_ours ? withdraw(job, found, local, stored.manifest.removed_of) : begin(job);
  if (found.is_directory()) return adopt_directory(job, found, local, stored);
  if (found.is_file() && local.content_since == UINT64_MAX) return try_again_soon(job);
  if (adopt_if_same(job, found, local, stored)) return;
  if (!knows_ours && is_edit_of_known(path, local.note, stored.manifest)) return begin(job);
  if (!knows_ours) return settle_conflict(job, found, stored);
  const auto shown = std::make_shared<Shown>();
  shown->stored = stored;
  shown->as = path;
  shown->replaces = true;
  shown->over = local;
  shown->aside = conflict_path(path, found.node.attributes.st_mtim.tv_sec, environment_.random_u64());
  show(job, shown);
}

// Not now: somebody writes to it, or what is in a directory is to go before; or another job is in the way.
void TierCopier::Impl::try_again_soon(const std::shared_ptr<Job>& job) {
  after(options_.pause_first, [self = shared_from_this(), job] { self->end_job(job, Ending::kMoved); });
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
  const bool is_seen =
      is_known(path, std::nullopt, stored.tag) || is_edit_of_known(path, std::nullopt, stored.manifest);
  if (is_seen && follows()) return bury(job, stored);
  if (!job->file.is_looked_at) {
    note_foreign(manifest_key(path), stored.tag);
    return end_job(job, Ending::kIsCopied);
  }
  const auto shown = std::make_shared<Shown>();
  shown->stored = stored;
  shown->as = path;
  show(job, shown);
}

}  // namespace fpfs
