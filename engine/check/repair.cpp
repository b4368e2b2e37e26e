#include "engine/check/repair.h"

#include <fcntl.h>

#include "engine/check/set_aside.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

Status sync_everything(Storage& storage, const Array& array) {
  FPFS_RETURN_IF_ERROR(storage.sync_filesystem(array.tree()));
  for (const MemberIndex m : array.members())
    if (array.member(m).present) FPFS_RETURN_IF_ERROR(storage.sync_filesystem(array.member(m).objects));
  return Status::ok();
}

Status cut_torn_tail(Storage& storage, const FileEntry& entry, const ScannedFile& file) {
  FPFS_ASSIGN_OR_RETURN(const Handle opened, storage.open_at(entry.directory, entry.name, O_RDWR));
  const ScopedHandle sidecar(storage, opened);
  // Cutting is no change of the file's content: its times stay.
  const struct timespec times[2] = {file.attributes.st_atim, file.attributes.st_mtim};
  FPFS_RETURN_IF_ERROR(storage.ftruncate(opened, file.image.end.value()));
  FPFS_RETURN_IF_ERROR(storage.set_times(opened, times));
  return storage.fdatasync(opened);
}

Status walk_files_set_aside(Storage& storage, const Array& array,
                            const std::function<void(const FileEntry&, const ScannedFile&)>& visit) {
  const Result<Handle> opened = storage.open_at(array.metadata_directory(), kLostAndFound, O_RDONLY | O_DIRECTORY);
  if (opened.status().code() == StatusCode::kNotFound) return Status::ok();
  if (!opened.is_ok()) return opened.status();
  const ScopedHandle directory(storage, *opened);
  return walk_files(storage, *opened, [&](const FileEntry& entry) -> Result<bool> {
    if (!is_sidecar_set_aside(entry.name)) return true;
    FPFS_ASSIGN_OR_RETURN(const ScannedFile file, scan_file(storage, array, entry, SidecarSource::kUncached));
    visit(entry, file);
    return true;
  });
}

Status add_files_set_aside(Storage& storage, const Array& array, References& references) {
  return walk_files_set_aside(storage, array, [&references](const FileEntry&, const ScannedFile& file) {
    // Records may be missing that named more: of a file that is set aside every object is kept.
    if (file.status.is_ok() && file.image.sequence > 0)
      references.keep(file.image.file_id);
    else if (file.attributes.st_size > 0 || !file.status.is_ok())
      references.add_unreadable(file);
  });
}

bool is_orphan(const References& references, const ObjectEntry& object) {
  return object.is_object && !references.names(object.file, object.generation);
}

bool is_unused(const References& references, const ObjectEntry& object) {
  if (!object.is_object || references.keeps_everything()) return false;
  const References::Reference* reference = references.find(object.file, object.generation);
  return reference != nullptr && !reference->members.test(object.member.value());
}

Result<uint64_t> remove_object(Storage& storage, const ObjectEntry& object) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.stat_at(object.directory, object.name));
  FPFS_RETURN_IF_ERROR(storage.unlink(object.directory, object.name));
  return static_cast<uint64_t>(attributes.st_blocks) * 512;
}

namespace {

Result<ScopedHandle> open_object(Storage& storage, Array& array, const FileImage& image, MemberIndex member,
                                 int flags) {
  FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin directory, array.object_directory(member, image.file_id));
  FPFS_ASSIGN_OR_RETURN(const Handle opened,
                        storage.open_at(directory.get(), Array::object_name(image.file_id, image.generation), flags));
  return ScopedHandle(storage, opened);
}

}  // namespace

Result<bool> has_leftovers_on(Storage& storage, Array& array, const FileImage& image, MemberIndex member,
                              const std::vector<PlacedChunk>& chunks) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle object, open_object(storage, array, image, member, O_RDONLY));
  return has_leftover_space(storage, object.get(), chunks, array.stripes().chunk_size);
}

Result<uint64_t> free_leftovers_on(Storage& storage, Array& array, const FileImage& image, MemberIndex member,
                                   const std::vector<PlacedChunk>& chunks) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle object, open_object(storage, array, image, member, O_RDWR));
  return free_leftover_space(storage, object.get(), chunks, array.stripes().chunk_size);
}

}  // namespace fpfs
