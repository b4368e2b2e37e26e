// What the array is asked for a copy: where a path leads, what is known of a node besides its content, and the notes of
// copies.
#include <fcntl.h>

#include <utility>

#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"
#include "engine/tier/tree_path.h"

namespace fpfs {
namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY;

bool is_elsewhere(const Status& status) {
  const int reason = status.errno_value();
  return status.code() == StatusCode::kNotFound || reason == ENOTDIR || reason == ELOOP;  // a file or link in between
}

}  // namespace

std::string_view TierCopier::Impl::without_slash(std::string_view path) {
  return path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

// --- paths -----------------------------------------------------------------------------------------------------------

Result<TierCopier::Impl::Found> TierCopier::Impl::find(const std::string& given) const {
  Found found;
  FPFS_ASSIGN_OR_RETURN(found.directory,
                        open_parent(store_.storage(), store_.root(), std::string(without_slash(given)), found.name));
  Result<Store::Node> node = store_.lookup(found.directory.get(), found.name);
  if (node.is_ok()) found.node = std::move(*node);
  if (!node.is_ok() && node.status().code() != StatusCode::kNotFound) return node.status();
  return found;
}

bool TierCopier::Impl::is_at(const Result<Found>& found, uint64_t inode) {
  return found.is_ok() && found.value().is_file() && found.value().node.attributes.st_ino == inode;
}

bool TierCopier::Impl::is_vacant(const Result<Found>& found, const std::string& path) {
  if (!found.is_ok()) return is_elsewhere(found.status());
  return !found.value().has_node() || found.value().is_directory() != path.ends_with('/');
}

// Every directory on the way to the name, as the move of one of them can bring a name back, too.
Status TierCopier::Impl::sync_way_to(const std::string& path) {
  Storage& storage = store_.storage();
  FPFS_ASSIGN_OR_RETURN(const Handle root, storage.reopen(store_.root(), kDirectoryFlags));
  ScopedHandle directory(storage, root);
  size_t begin = 0;
  while (true) {
    FPFS_RETURN_IF_ERROR(store_.sync_directory(directory.get()));
    const size_t slash = path.find('/', begin);
    if (slash == std::string::npos || slash + 1 == path.size()) return Status::ok();
    const Result<Handle> next = storage.open_at(directory.get(), path.substr(begin, slash - begin), kDirectoryFlags);
    if (!next.is_ok()) return is_elsewhere(next.status()) ? Status::ok() : next.status();
    directory = ScopedHandle(storage, *next);
    begin = slash + 1;
  }
}

// What is vacant before and behind such a sync is vacant after a power cut.
Result<bool> TierCopier::Impl::is_vacant_for_good(const std::string& path) {
  for (const bool is_synced : {false, true}) {
    if (is_synced) FPFS_RETURN_IF_ERROR(sync_way_to(path));
    const Result<Found> found = find(path);
    if (!found.is_ok() && !is_elsewhere(found.status())) return found.status();
    if (!is_vacant(found, path)) return false;
  }
  return true;
}

// --- attributes ------------------------------------------------------------------------------------------------------

// Owner, mode, times and extended attributes. Those of the sidecar: the time of changes that are not committed is not
// there yet.
Status TierCopier::Impl::describe(Handle node, TierManifest& manifest) {
  Storage& storage = store_.storage();
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(node));
  manifest.mode = attributes.st_mode;
  manifest.uid = attributes.st_uid;
  manifest.gid = attributes.st_gid;
  manifest.mtime_seconds = attributes.st_mtim.tv_sec;
  manifest.mtime_nanoseconds = static_cast<uint32_t>(attributes.st_mtim.tv_nsec);
  if (S_ISCHR(attributes.st_mode) || S_ISBLK(attributes.st_mode)) manifest.device = attributes.st_rdev;
  if (S_ISLNK(attributes.st_mode)) {
    FPFS_ASSIGN_OR_RETURN(manifest.target, storage.read_link(node));
  }
  constexpr size_t kListBytesMax = 65536;  // XATTR_LIST_MAX
  const Result<size_t> length = storage.list_xattr(node, {});
  if (!length.is_ok()) return length.status().errno_value() == EOPNOTSUPP ? Status::ok() : length.status();
  if (*length == 0) return Status::ok();
  std::string names(kListBytesMax, '\0'), value;
  FPFS_ASSIGN_OR_RETURN(const size_t listed, storage.list_xattr(node, std::as_writable_bytes(std::span(names))));
  names.resize(listed);
  for (size_t begin = 0; begin < names.size();) {
    const std::string name = names.substr(begin, names.find('\0', begin) - begin);
    begin += name.size() + 1;
    if (name.starts_with("user.fastpersistfs.") && !Store::is_setting(name)) continue;
    if (name == TierNote::kNodeAttribute) continue;
    value.resize(TierManifest::kXattrValueBytesMax);
    const Result<size_t> got = storage.get_xattr(node, name, std::as_writable_bytes(std::span(value)));
    if (got.is_ok()) manifest.xattrs[name] = value.substr(0, *got);
    // Removed meanwhile, or not for a daemon that is not root.
    const int reason = got.status().errno_value();
    if (!got.is_ok() && reason != ENODATA && reason != EACCES && reason != EPERM) return got.status();
  }
  return Status::ok();
}

// --- notes -----------------------------------------------------------------------------------------------------------

bool TierCopier::Impl::is_of_commit(const TierNote& note, const SidecarSummary& record) {
  return note.file_id == record.file_id && note.sequence == record.sequence && note.size == record.size;
}

std::optional<TierNote> TierCopier::Impl::kept_note(const std::string& path) const {
  const MutexLock lock(mutex_);
  const auto kept = notes_.find(place_of(path));
  return kept != notes_.end() ? std::optional<TierNote>(kept->second) : std::nullopt;
}

void TierCopier::Impl::keep_note(const TierNote& note) {
  const MutexLock lock(mutex_);
  if (notes_.size() < options_.waiting_max || notes_.contains(note.place)) notes_[note.place] = note;
}

// Of what is no file. One that takes no attribute has its note in memory only.
Status TierCopier::Impl::note_on(Handle node, const TierNote& note) {
  keep_note(note);
  Status set;
  for (const char* const attribute : {TierNote::kAttribute, TierNote::kNodeAttribute}) {
    set = store_.storage().set_xattr(node, attribute, encode_note(note), 0);
    const bool takes_none = set.errno_value() == EPERM || set.errno_value() == EOPNOTSUPP ||
                            set.errno_value() == EBADF || set.code() == StatusCode::kPermission ||
                            set.code() == StatusCode::kUnsupported;
    if (!takes_none) return set;
  }
  return Status::ok();
}

// A directory that is this array's own needs none that outlives the mount.
void TierCopier::Impl::note_node(const Job& job) {
  keep_note(job.note);
  if (!options_.shares || job.has_other_names || job.file.path.ends_with('/')) return;
  const Result<Found> found = find(job.file.path);
  const bool is_node = found.is_ok() && found.value().has_node() && !found.value().is_file();
  if (!is_node || found.value().is_directory()) return;
  if (const Status noted = note_on(found.value().node.handle.get(), job.note); !noted.is_ok())
    log(LogLevel::kWarning, "tier: {} is copied, which cannot be noted: {}", job.file.path, noted.message());
}

std::string TierCopier::Impl::copied_at(Handle node) const {
  std::string path(ObjectStore::kKeyBytesMax, '\0');
  const Result<size_t> length =
      store_.storage().get_xattr(node, ChunkSource::kPathAttribute, std::as_writable_bytes(std::span(path)));
  path.resize(length.is_ok() ? *length : 0);
  return path;
}

// The one that speaks for this path, or else the one that the sidecar has.
std::optional<TierNote> TierCopier::Impl::note_of(Handle node, const std::string& path) const {
  const std::optional<TierNote> noted = read_note(store_.storage(), node);
  if (noted.has_value() && noted->place == place_of(path)) return noted;
  std::optional<TierNote> kept = kept_note(path);
  return kept.has_value() ? kept : noted;
}

}  // namespace fpfs
