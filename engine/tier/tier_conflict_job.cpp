// Names aside, beside the path that a file had: of what is replaced or removed because another array has done so, until
// it goes; and of the one of two versions in a conflict that cannot keep the name, which stays.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <tuple>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"
#include "engine/tier/tier_silence.h"

namespace fpfs {
namespace {

constexpr std::string_view kConflict = ".conflict-";
constexpr const char* kAside = "user.fastpersistfs.tier-aside";

}  // namespace

// --- names aside -----------------------------------------------------------------------------------------------------

std::string TierCopier::Impl::conflict_path(const std::string& path, int64_t mtime_s, uint64_t version) {
  const size_t begin = path.rfind('/') + 1;
  const std::string ending = fmt::format("{}{:%Y%m%dT%H%M%S}-{:08x}", kConflict,
                                         fmt::gmtime(static_cast<time_t>(mtime_s)), static_cast<uint32_t>(version));
  const size_t room = std::min(ObjectStore::kComponentBytesMax, size_t{255}) - ending.size();
  return path.substr(0, begin) + path.substr(begin, room) + ending;
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

// A file says that it is to be removed where it is found at `aside` with this commit, the one that was looked at: it may
// have another one by now. Elsewhere that says nothing, so it may stay: whether a name is durable is not known here.
Status TierCopier::Impl::goes(File& file, uint64_t sequence, const std::string& aside) {
  std::array<std::byte, 2 * sizeof(uint64_t)> said;
  put_u64(said.data(), sequence);
  put_u64(&said[sizeof(uint64_t)], place_of(aside));
  return file.set_note(kAside, said, true);
}

// A file that was to be removed says so no more.
Status TierCopier::Impl::stays(Handle node) {
  const Status removed = store_.storage().remove_xattr(node, kAside);
  return removed.errno_value() == ENODATA ? Status::ok() : removed;
}

void TierCopier::Impl::remove_left(const std::shared_ptr<Job>& job, const Found& found) {
  const Silence silence(*this, {job->file.path});
  const Status removed = store_.unlink(found.directory.get(), found.name);
  shown_.tell(found.directory.get(), found.name);
  if (removed.is_ok()) free_strays(found.node.attributes.st_ino, job->file.path);
  removed.is_ok() ? end_job(job, Ending::kGone) : end_with(job, removed, false);
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

// One of both is a directory, which keeps the name. Who has the file gives it another one; only when nobody sees the
// directory, as the store cannot have it beside the file, its node keeps the file under another one, and says that it is
// removed.
void TierCopier::Impl::settle_kinds(const std::shared_ptr<Job>& job, const Found& found, const StoredManifest& stored) {
  const std::string& path = job->file.path;
  const TierManifest& theirs = stored.manifest;
  if (theirs.is_removed() || is_known(path, std::nullopt, stored.tag)) return find_theirs(job, stored);
  if (path.ends_with('/')) return job->file.is_looked_at || job->file.is_in_way ? make_way(job, found) : begin(job);
  const std::optional<TierNote> note = note_of(found.node.handle.get(), path + "/");
  const bool is_theirs_too = note.has_value() && note->is_others && note->place == place_of(path + "/");
  if (!job->file.is_in_way || is_theirs_too || !follows()) {
    job->note.place = place_of(path);
    job->note.manifest_tag = stored.tag;
    note_foreign(manifest_key(path), stored.tag);
    return end_job(job, Ending::kIsCopied);
  }
  const auto shown = std::make_shared<Shown>();
  shown->stored = stored;
  shown->as = conflict_path(path, theirs.mtime_seconds, stored.tag ^ own_key());
  const Result<Found> kept = find(shown->as);
  if (kept.is_ok() && kept.value().has_node()) return bury(job, stored);
  log(LogLevel::kWarning, "tier: {} is a directory here and a file of array {}, which is kept as {}", path,
      to_string(theirs.array_id), shown->as);
  {
    const MutexLock lock(mutex_);
    ++counted_.conflicts;
  }
  show(job, shown);
}

// For a directory of another array. What others have made goes; they give it another name.
void TierCopier::Impl::make_way(const std::shared_ptr<Job>& job, const Found& found) {
  const std::string path(without_slash(job->file.path));
  const Local local = local_of(found, path);
  const Handle directory = found.directory.get();
  Status done;
  if (local.is_unchanged && local.note->is_others && found.is_file()) {
    done = withdraw_file(found, local, path).status();
  } else if (local.is_unchanged && local.note->is_others) {
    const Silence silence(*this, {path});
    done = store_.unlink(directory, found.name);
  } else {
    const std::string aside = conflict_path(path, found.node.attributes.st_mtim.tv_sec, environment_.random_u64());
    const std::string name = aside.substr(aside.rfind('/') + 1);
    log(LogLevel::kWarning, "tier: {} is a directory of another array, ours is kept as {}", path, aside);
    done = store_.rename(directory, found.name, directory, name, RENAME_NOREPLACE);
    if (done.is_ok()) shown_.tell(directory, name);
    const MutexLock lock(mutex_);
    ++counted_.conflicts;
  }
  shown_.tell(directory, found.name);
  done.is_ok() ? end_job(job, Ending::kMoved) : end_with(job, done, false);
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
  if (!shown.is_alone) return try_again_soon(job);
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

}  // namespace fpfs
