#include "engine/check/scan.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/index/sidecar_file.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

Result<std::vector<DirectoryEntry>> sorted_entries(Storage& storage, Handle directory) {
  std::vector<DirectoryEntry> entries;
  FPFS_RETURN_IF_ERROR(storage.list(directory, [&entries](const DirectoryEntry& entry) {
    entries.push_back(entry);
    return true;
  }));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

}  // namespace

Result<unsigned char> type_of(Storage& storage, Handle directory, const DirectoryEntry& entry) {
  if (entry.type != DT_UNKNOWN) return entry.type;
  const Result<struct stat> attributes = storage.stat_at(directory, entry.name);
  if (attributes.status().code() == StatusCode::kNotFound) return static_cast<unsigned char>(DT_UNKNOWN);
  if (!attributes.is_ok()) return attributes.status();
  return static_cast<unsigned char>(IFTODT(attributes->st_mode));
}

namespace {

using FileVisitor = std::function<Result<bool>(const FileEntry&)>;

bool belongs_elsewhere(SidecarReader& reader, const Uuid& array_id) {
  std::array<std::byte, kSidecarHeaderSize> bytes;
  const Result<size_t> got = reader.read(SidecarOffset(0), bytes);
  if (!got.is_ok() || *got < bytes.size()) return false;
  const Result<SidecarHeader> header = decode_sidecar_header(bytes);
  return header.is_ok() && header->array_id != array_id;
}

// False when the visitor wants no more.
Result<bool> walk_directory(Storage& storage, Handle directory, const std::string& path, const FileVisitor& visit) {
  FPFS_ASSIGN_OR_RETURN(const auto entries, sorted_entries(storage, directory));
  for (const DirectoryEntry& entry : entries) {
    FPFS_ASSIGN_OR_RETURN(const unsigned char type, type_of(storage, directory, entry));
    const std::string entry_path = path + "/" + entry.name;
    bool goes_on = true;
    if (type == DT_REG) {
      FPFS_ASSIGN_OR_RETURN(goes_on, visit(FileEntry{entry_path, directory, entry.name}));
    } else if (type == DT_DIR) {
      const Result<Handle> opened = storage.open_at(directory, entry.name, O_RDONLY | O_DIRECTORY);
      if (opened.status().code() == StatusCode::kNotFound) continue;
      if (!opened.is_ok()) return opened.status();
      const ScopedHandle child(storage, *opened);
      FPFS_ASSIGN_OR_RETURN(goes_on, walk_directory(storage, child.get(), entry_path, visit));
    }
    if (!goes_on) return false;
  }
  return true;
}

}  // namespace

Status walk_files(Storage& storage, Handle root, const FileVisitor& visit) {
  return walk_directory(storage, root, "", visit).status();
}

bool ScannedFile::is_same_as(const struct stat& now) const {
  return now.st_ino == attributes.st_ino && now.st_size == attributes.st_size &&
         now.st_ctim.tv_sec == attributes.st_ctim.tv_sec && now.st_ctim.tv_nsec == attributes.st_ctim.tv_nsec;
}

namespace {

void read_sidecar(Storage& storage, const Array& array, Handle sidecar, SidecarReader& reader, ScannedFile& file) {
  const StripeMap stripes = array.stripes();
  Result<FileImage> image = fold_sidecar(reader, array.id(), stripes.member_count, stripes.chunk_size, &file.findings);
  if (!image.is_ok())
    file.status = image.status();
  else if (file.findings.torn_tail && !array.may_be_torn(storage, sidecar, file.attributes))
    file.status = damaged_tail(image->end, file.findings);
  else
    file.image = std::move(*image);
  if (!file.status.is_ok()) file.is_foreign = belongs_elsewhere(reader, array.id());
  if (file.status.is_ok() && !file.findings.torn_tail) return;
  const Result<std::optional<FileId>> claimed = identify_sidecar(reader, array.id());
  if (claimed.is_ok()) file.claimed_id = *claimed;
  if (file.status.code() != StatusCode::kCorruption || file.is_foreign || file.claimed_id) return;
  const Result<bool> is_stray = is_no_sidecar(reader, array.id());
  file.is_stray = is_stray.is_ok() && *is_stray;
}

}  // namespace

bool names_nothing_here(SidecarReader& reader, const Uuid& array_id) {
  if (belongs_elsewhere(reader, array_id)) return true;
  const Result<bool> is_stray = is_no_sidecar(reader, array_id);
  return is_stray.is_ok() && *is_stray;
}

Result<ScannedFile> scan_file(Storage& storage, const Array& array, const FileEntry& entry, SidecarSource source) {
  ScannedFile file;
  // Not O_RDONLY alone: the name may meanwhile be a FIFO, whose opening would wait for a writer.
  const Result<Handle> opened = storage.open_at(entry.directory, entry.name, O_RDONLY | O_NONBLOCK);
  if (!opened.is_ok()) {
    if (opened.status().code() == StatusCode::kNotFound) return opened.status();
    file.status = opened.status();
    return file;
  }
  const ScopedHandle handle(storage, *opened);
  if (source == SidecarSource::kUncached) storage.drop_cache(*opened);
  const Result<struct stat> attributes = storage.fstat(*opened);
  if (!attributes.is_ok()) {
    file.status = attributes.status();
    return file;
  }
  file.attributes = *attributes;
  const SidecarOffset end(static_cast<uint64_t>(attributes->st_size));
  if (source != SidecarSource::kDrive) {
    StorageSidecarReader reader(storage, *opened, end);
    read_sidecar(storage, array, *opened, reader, file);
    return file;
  }
  const auto reader = DirectSidecarReader::open(storage, *opened, end);
  if (reader.is_ok())
    read_sidecar(storage, array, *opened, **reader, file);
  else
    file.status = reader.status();
  return file;
}

Result<ScannedFile> scan_path(Storage& storage, const Array& array, Handle root, const std::string& path) {
  ScopedHandle directory;  // stays closed while the file is in `root` itself
  Handle parent = root;
  size_t begin = 1;
  for (size_t slash; (slash = path.find('/', begin)) != std::string::npos; begin = slash + 1) {
    const auto opened = storage.open_at(parent, path.substr(begin, slash - begin), O_RDONLY | O_DIRECTORY);
    if (!opened.is_ok()) return opened.status();
    directory = ScopedHandle(storage, *opened);
    parent = *opened;
  }
  return scan_file(storage, array, FileEntry{path, parent, path.substr(begin)});
}

bool References::add(const ScannedFile& file) {
  if (file.image.sequence == 0) {  // an empty file names nothing
    if (file.attributes.st_size == 0) ++empty_sidecars_;
    return true;
  }
  Reference reference;
  reference.generation = file.image.generation;
  reference.inode = file.attributes.st_ino;
  file.image.extents.for_each(ChunkIndex(0), [&reference](ChunkIndex, const Extent& extent) {
    if (extent.is_here()) reference.members.set(extent.member.value());
    return true;
  });
  const auto [known, is_new] = references_.emplace(file.image.file_id, reference);
  if (is_new || known->second.inode == reference.inode) return true;
  // Two sidecars name the same objects. Keep what either needs.
  known->second.is_unreadable = true;
  return false;
}

void References::add_unreadable(const ScannedFile& file) {
  if (file.is_foreign) return;
  if (!file.claimed_id) {
    keeps_everything_ = true;
    return;
  }
  references_[*file.claimed_id].is_unreadable = true;
}

bool References::names(FileId file, Generation generation) const {
  if (keeps_everything_) return true;
  const auto known = references_.find(file);
  return known != references_.end() && (known->second.is_unreadable || known->second.generation == generation);
}

const References::Reference* References::find(FileId file, Generation generation) const {
  const auto known = references_.find(file);
  const bool is_current =
      known != references_.end() && !known->second.is_unreadable && known->second.generation == generation;
  return is_current ? &known->second : nullptr;
}

Status walk_objects(Storage& storage, Array& array, MemberIndex member,
                    const std::function<Result<bool>(const ObjectEntry&)>& visit) {
  for (unsigned index = 0; index < 256; ++index) {
    const Result<HandleCache::Pin> pinned = array.object_directory(member, FileId(index));
    if (pinned.status().code() == StatusCode::kNotFound) continue;
    if (!pinned.is_ok()) return pinned.status();
    const Handle directory = pinned->get();
    FPFS_ASSIGN_OR_RETURN(const auto entries, sorted_entries(storage, directory));
    for (const DirectoryEntry& entry : entries) {
      ObjectEntry object;
      object.member = member;
      object.directory = directory;
      object.name = entry.name;
      object.index = index;
      FPFS_ASSIGN_OR_RETURN(const unsigned char type, type_of(storage, directory, entry));
      if (type == DT_UNKNOWN) continue;  // gone meanwhile
      object.is_object = Array::parse_object_name(entry.name, &object.file, &object.generation) &&
                         Array::object_directory_index(object.file) == index && type == DT_REG;
      FPFS_ASSIGN_OR_RETURN(const bool goes_on, visit(object));
      if (!goes_on) return Status::ok();
    }
  }
  return Status::ok();
}

std::string path_of(const Array& array, const ObjectEntry& object) {
  return fmt::format("{}/objects/{:02x}/{}", array.member(object.member).path, object.index, object.name);
}

Status walk_strays(Storage& storage, const Array& array, MemberIndex member,
                   const std::function<void(const std::string& path)>& visit) {
  const Member& of = array.member(member);
  return storage.list(of.objects, [&](const DirectoryEntry& entry) {
    if (!is_object_directory_name(entry.name)) visit(fmt::format("{}/objects/{}", of.path, entry.name));
    return true;
  });
}

}  // namespace fpfs
