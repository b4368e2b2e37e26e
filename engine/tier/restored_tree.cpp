#include "engine/tier/restored_tree.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/codec/hash.h"
#include "engine/tier/tier_note.h"
#include "engine/tier/tier_reader.h"

namespace fpfs {
namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY;
constexpr mode_t kPermissions = 07777;

uint64_t key_of(const TierManifest& manifest) {
  const std::array<uint64_t, 4> words{manifest.file_id.value(), manifest.generation.value(), manifest.sequence,
                                      manifest.size};
  return hash_bytes(std::as_bytes(std::span(words)));
}

// Checksums as File::begin_away() takes them.
std::vector<uint64_t> checksums_of(const TierManifest& manifest) {
  std::vector<uint64_t> checksums = manifest.checksums;
  // No more of them than the file has: most files are small.
  const std::vector<std::byte> zeros(std::min<uint64_t>(manifest.chunk_size, manifest.size));
  const uint64_t hole = hash_bytes(zeros);
  for (uint64_t chunk = 0; chunk < checksums.size(); ++chunk) {
    const uint64_t length = chunk_bytes_of(manifest, ChunkIndex(chunk));
    if (checksums[chunk] == (length == zeros.size() ? hole : hash_bytes(std::span(zeros).first(length))))
      checksums[chunk] = 0;
  }
  return checksums;
}

bool is_not_ours(const Status& status) {
  return status.code() == StatusCode::kPermission || status.code() == StatusCode::kUnsupported ||
         status.errno_value() == EPERM;
}

}  // namespace

RestoredTree::RestoredTree(Store& store, std::string store_id, Named named)
    : store_(store), store_id_(std::move(store_id)), named_(std::move(named)) {}

void RestoredTree::tell(Handle directory, const std::string& name) const {
  if (named_ == nullptr) return;
  const Result<struct stat> attributes = store_.storage().fstat(directory);
  if (attributes.is_ok()) named_(attributes->st_ino, name);
}

Status RestoredTree::check_path(const std::string& path) {
  const auto refuse = [&path](const char* why) {
    return Status::error(StatusCode::kInvalidArgument, fmt::format("{} is not restored: {}", path, why));
  };
  if (is_reserved(path)) return refuse("its name is reserved");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view component = std::string_view(path).substr(begin, end - begin);
    if (component.empty() || component == "." || component == "..") return refuse("no name can be that");
    if (component.size() > ObjectStore::kComponentBytesMax) return refuse("its name is too long");
    begin = end + 1;
  }
  return Status::ok();
}

Status RestoredTree::make_directory(Handle directory, const std::string& name) {
  const Status made = store_.make_directory(directory, name, 0755);
  if (made.is_ok()) tell(directory, name);
  return made.code() == StatusCode::kExists ? Status::ok() : made;
}

Status RestoredTree::begin() {
  return find_made(store_.root(), "");
}

Status RestoredTree::find_made(Handle directory, const std::string& path) {
  Storage& storage = store_.storage();
  std::vector<std::string> names;
  FPFS_RETURN_IF_ERROR(storage.list(directory, [&names](const DirectoryEntry& entry) {
    names.push_back(entry.name);
    return true;
  }));
  for (const std::string& name : names) {
    const Result<Handle> opened = storage.open_at(directory, name, O_PATH);
    if (!opened.is_ok()) continue;  // gone
    const ScopedHandle node(storage, *opened);
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(node.get()));
    if (S_ISDIR(attributes.st_mode)) {
      FPFS_ASSIGN_OR_RETURN(const Handle readable, storage.reopen(node.get(), kDirectoryFlags));
      const ScopedHandle below(storage, readable);
      FPFS_RETURN_IF_ERROR(find_made(below.get(), path + name + "/"));
    }
    std::array<std::byte, TierNote::kBytes> bytes;
    if (!S_ISREG(attributes.st_mode)) continue;
    const Result<size_t> length = storage.get_xattr(node.get(), TierNote::kAttribute, bytes);
    if (!length.is_ok()) continue;
    const Result<TierNote> note = decode_note(std::span(bytes).first(std::min(*length, bytes.size())));
    const MutexLock lock(mutex_);
    if (note.is_ok()) files_.emplace(note->attributes, path + name);
  }
  return Status::ok();
}

Result<ScopedHandle> RestoredTree::open_parent(const std::string& path, std::string& name) {
  Storage& storage = store_.storage();
  FPFS_ASSIGN_OR_RETURN(const Handle root, storage.reopen(store_.root(), kDirectoryFlags));
  ScopedHandle directory(storage, root);
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    const std::string component = path.substr(begin, slash - begin);
    Result<Handle> next = storage.open_at(directory.get(), component, kDirectoryFlags);
    if (next.status().code() == StatusCode::kNotFound) {
      FPFS_RETURN_IF_ERROR(make_directory(directory.get(), component));
      next = storage.open_at(directory.get(), component, kDirectoryFlags);
    }
    if (next.status().errno_value() == ENOTDIR || next.status().errno_value() == ELOOP)
      return Status::error(StatusCode::kInvalidArgument,
                           fmt::format("{} is not restored: {} is no directory here", path, path.substr(0, slash)));
    if (!next.is_ok()) return next.status();
    directory = ScopedHandle(storage, *next);
    begin = slash + 1;
  }
  name = path.substr(begin);
  return directory;
}

// A daemon that is not root cannot give files away.
Status RestoredTree::describe(Handle node, const TierManifest& manifest) {
  if (const Status owned = store_.chown(node, manifest.uid, manifest.gid); !owned.is_ok() && !is_not_ours(owned))
    return owned;
  if (!S_ISLNK(manifest.mode)) FPFS_RETURN_IF_ERROR(store_.chmod(node, manifest.mode & kPermissions));
  for (const auto& [name, value] : manifest.xattrs) {
    const Status set = store_.set_xattr(node, name, std::as_bytes(std::span(value)), 0);
    if (!set.is_ok() && !is_not_ours(set)) return set;
  }
  const struct timespec times[2] = {
      {0, UTIME_OMIT}, {static_cast<time_t>(manifest.mtime_seconds), static_cast<long>(manifest.mtime_nanoseconds)}};
  return store_.set_times(node, times).status();
}

Result<RestoredTree::Made> RestoredTree::make(TierManifest manifest, File& file) {
  FPFS_RETURN_IF_ERROR(check_path(manifest.path));
  std::string name;
  FPFS_ASSIGN_OR_RETURN(ScopedHandle directory, open_parent(manifest.path, name));
  const Result<struct stat> there = store_.storage().stat_at(directory.get(), name);
  if (!there.is_ok() && there.status().code() != StatusCode::kNotFound) return there.status();
  if (S_ISDIR(manifest.mode)) {
    if (there.is_ok() && !S_ISDIR(there->st_mode)) return Made::kWasThere;
    if (!there.is_ok()) FPFS_RETURN_IF_ERROR(make_directory(directory.get(), name));
    const MutexLock lock(mutex_);
    std::string path = manifest.path;
    directories_.insert_or_assign(std::move(path), std::move(manifest));
    return Made::kDone;
  }
  if (there.is_ok()) return Made::kWasThere;
  if (manifest.is_file()) {
    file.directory = std::move(directory);
    file.name = std::move(name);
    return make_file(manifest, file);
  }
  FPFS_RETURN_IF_ERROR(make_node(directory.get(), name, manifest));
  tell(directory.get(), name);
  return Made::kDone;
}

Status RestoredTree::make_node(Handle directory, const std::string& name, const TierManifest& manifest) {
  const Status made = S_ISLNK(manifest.mode)
                          ? store_.symlink(manifest.target, directory, name)
                          : store_.make_node(directory, name, manifest.mode, static_cast<dev_t>(manifest.device));
  if (is_not_ours(made))
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("{} is not restored: {}", manifest.path, made.message()));
  FPFS_RETURN_IF_ERROR(made);
  FPFS_ASSIGN_OR_RETURN(const Store::Node node, store_.lookup(directory, name));
  return describe(node.handle.get(), manifest);
}

Result<Store::Created> RestoredTree::begin_file(Handle directory, const TierManifest& manifest) {
  if (!manifest.content.empty()) return store_.create_unnamed(directory, manifest.mode & kPermissions);
  FPFS_RETURN_IF_ERROR(check_chunk_size(manifest, store_.array().stripes().chunk_size));
  FPFS_ASSIGN_OR_RETURN(Store::Created created, store_.create_unnamed(directory, manifest.mode & kPermissions));
  FPFS_RETURN_IF_ERROR(created.file->begin_away(manifest.size, checksums_of(manifest)));
  FPFS_RETURN_IF_ERROR(created.file->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(manifest.path))));
  FPFS_RETURN_IF_ERROR(describe(created.node.handle.get(), manifest));
  return created;
}

Result<RestoredTree::Made> RestoredTree::make_file(const TierManifest& manifest, File& file) {
  file.path = manifest.path;
  file.key = manifest.file_id == FileId() ? 0 : key_of(manifest);
  std::string known;
  {
    const MutexLock lock(mutex_);
    const auto [found, is_new] = files_.try_emplace(file.key);
    known = found->second;
    if (file.key != 0 && !is_new && known.empty()) return Made::kLater;
  }
  if (file.key != 0 && !known.empty()) return link(known, file);
  const auto begin = [&]() -> Status {
    FPFS_ASSIGN_OR_RETURN(file.created, begin_file(file.directory.get(), manifest));
    if (manifest.content.empty()) return note_restored(*file.created.file, manifest);
    file.manifest = manifest;
    return Status::ok();
  };
  const Status begun = begin();
  if (begun.is_ok()) return Made::kBegun;
  forget(file);
  return begun;
}

Status RestoredTree::content_written(const File& file) {
  FPFS_RETURN_IF_ERROR(describe(file.created.node.handle.get(), file.manifest));
  return note_restored(*file.created.file, file.manifest);
}

void RestoredTree::forget(const File& file) {
  const MutexLock lock(mutex_);
  files_.erase(file.key);
}

// The copier finds by the note that the content is stored; and by its attributes, which no file has, that the manifest
// is to become this array's. Another attempt knows the file by them.
Status RestoredTree::note_restored(fpfs::File& file, const TierManifest& manifest) {
  TierNote note;
  note.place = TierNote::place_of(store_id_, manifest.path);
  note.file_id = file.info().file_id;
  note.sequence = 1;
  note.size = manifest.size;
  note.content_tag = TierNote::tag_of(manifest.content_tag);
  note.attributes = key_of(manifest);
  return file.set_note(TierNote::kAttribute, encode_note(note));
}

Result<RestoredTree::Made> RestoredTree::finish(File file) {
  const Status named = store_.link(file.created.node.handle.get(), file.directory.get(), file.name);
  if (!named.is_ok()) forget(file);
  if (named.code() == StatusCode::kExists) return Made::kWasThere;
  FPFS_RETURN_IF_ERROR(named);
  tell(file.directory.get(), file.name);
  const MutexLock lock(mutex_);
  files_[file.key] = file.path;
  return Made::kDone;
}

Result<RestoredTree::Made> RestoredTree::link(const std::string& known, const File& file) {
  std::string name;
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle directory, open_parent(known, name));
  FPFS_ASSIGN_OR_RETURN(const Store::Node node, store_.lookup(directory.get(), name));
  const Status linked = store_.link(node.handle.get(), file.directory.get(), file.name);
  if (linked.code() == StatusCode::kExists) return Made::kWasThere;
  FPFS_RETURN_IF_ERROR(linked);
  tell(file.directory.get(), file.name);
  return Made::kDone;
}

// Deepest first, as what is made in a directory moves its times.
Status RestoredTree::end() {
  std::map<std::string, TierManifest> directories;
  {
    const MutexLock lock(mutex_);
    directories.swap(directories_);
  }
  for (auto at = directories.rbegin(); at != directories.rend(); ++at) {
    std::string name;
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle parent, open_parent(at->first, name));
    const Result<Handle> opened = store_.storage().open_at(parent.get(), name, kDirectoryFlags);
    if (opened.status().code() == StatusCode::kNotFound) continue;
    if (!opened.is_ok()) return opened.status();
    const ScopedHandle directory(store_.storage(), *opened);
    FPFS_RETURN_IF_ERROR(describe(directory.get(), at->second));
    tell(directory.get(), "");
  }
  return store_.sync_names();
}

}  // namespace fpfs
