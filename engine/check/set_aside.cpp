#include "engine/check/set_aside.h"

#include <fcntl.h>

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

constexpr std::string_view kSidecarSuffix = ".sidecar";
constexpr std::string_view kTextSuffix = ".txt";
// Leaves room for the inode, a suffix and a number within the 255 bytes of a name.
constexpr size_t kNameBytesMax = 200;

Result<ScopedHandle> open_lost_and_found(Storage& storage, const Array& array) {
  const Handle parent = array.metadata_directory();
  const Status made = storage.make_directory(parent, kLostAndFound, 0700);
  if (made.is_ok()) FPFS_RETURN_IF_ERROR(storage.fsync(parent));
  if (!made.is_ok() && made.code() != StatusCode::kExists) return made;
  FPFS_ASSIGN_OR_RETURN(const Handle opened, storage.open_at(parent, kLostAndFound, O_RDONLY | O_DIRECTORY));
  return ScopedHandle(storage, opened);
}

std::string describe(const CheckError& error) {
  std::string line = "  " + error.kind;
  if (error.chunk >= 0) line += fmt::format(", chunk {}", error.chunk);
  if (error.member >= 0) line += fmt::format(", member {}", error.member);
  if (error.object_offset >= 0) line += fmt::format(", object offset {}", error.object_offset);
  return line + ": " + error.detail + "\n";
}

std::string make_text(const Array& array, const FileEntry& entry, const ScannedFile& file,
                      const std::vector<CheckError>& errors, const std::vector<FileSetAside::Range>& surviving) {
  std::string text = fmt::format("This was {} of array {}, set aside by fsck.fastpersistfs because of:\n", entry.path,
                                 to_string(array.id()));
  for (const CheckError& error : errors) text += describe(error);
  if (file.is_foreign) return text + "It belongs to another array and names nothing in this one.\n";
  if (!file.status.is_ok()) {
    text +=
        file.claimed_id
            ? fmt::format(
                  "Its index cannot be read, so no byte of it can be placed. Its objects are kept: their "
                  "names begin with {:016x}.\n",
                  *file.claimed_id)
            : "Its index cannot be read and does not tell whose it is. All objects are kept as long as it lies here.\n";
    return text;
  }
  text += fmt::format("Its size is {} bytes. All of it was read. Surviving:\n", file.image.size);
  for (const FileSetAside::Range& range : surviving)
    text += fmt::format("  bytes {} to {} ({} bytes)\n", range.offset, range.offset + range.length - 1, range.length);
  if (surviving.empty()) text += "  nothing\n";
  text += fmt::format(
      "Moved back to its place in tree/ it can be read again where it survives. Its objects are named "
      "{}.\n",
      Array::object_name(file.image.file_id, file.image.generation));
  return text;
}

Status write_text(Storage& storage, Handle directory, const std::string& name, const std::string& text) {
  FPFS_ASSIGN_OR_RETURN(const Handle opened, storage.open_at(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  const ScopedHandle file(storage, opened);
  FPFS_RETURN_IF_ERROR(storage.pwrite(opened, std::as_bytes(std::span(text)), 0));
  return storage.fsync(opened);
}

}  // namespace

bool is_sidecar_set_aside(const std::string& name) {
  return std::string_view(name).ends_with(kSidecarSuffix);
}

std::vector<FileSetAside::Range> surviving_ranges(uint64_t size, uint32_t chunk_size,
                                                  const std::vector<ChunkIndex>& lost_chunks) {
  std::vector<FileSetAside::Range> ranges;
  const FileOffset end(size);
  FileOffset begin;
  const auto add_until = [&](FileOffset stop) {
    if (begin < stop) ranges.push_back({begin, stop - begin});
  };
  for (ChunkIndex chunk : lost_chunks) {
    if (chunk > chunk_of(end, chunk_size)) break;
    add_until(offset_of(chunk, chunk_size));
    begin = std::max(begin, offset_of(chunk + 1, chunk_size));
  }
  add_until(end);
  return ranges;
}

Result<FileSetAside> set_aside(Storage& storage, const Array& array, const FileEntry& entry, const ScannedFile& file,
                               const std::vector<CheckError>& errors, const std::vector<ChunkIndex>& lost_chunks) {
  FileSetAside aside;
  aside.path = entry.path;
  aside.is_index_lost = !file.status.is_ok();
  if (file.status.is_ok()) {
    aside.size = file.image.size;
    aside.surviving = surviving_ranges(file.image.size, array.stripes().chunk_size, lost_chunks);
  }
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle lost, open_lost_and_found(storage, array));
  const std::string base =
      fmt::format("{:016x}-{}", static_cast<uint64_t>(file.attributes.st_ino), entry.name.substr(0, kNameBytesMax));
  const std::string text = make_text(array, entry, file, errors, aside.surviving);
  // A file of this inode and name may lie here already: of an earlier repair, or another hard link of this one.
  Status moved;
  for (int number = 1; number <= 100; ++number) {
    const std::string name = number == 1 ? base : fmt::format("{}-{}", base, number);
    moved =
        storage.rename(entry.directory, entry.name, lost.get(), name + std::string(kSidecarSuffix), RENAME_NOREPLACE);
    if (moved.code() == StatusCode::kExists) continue;
    FPFS_RETURN_IF_ERROR(moved);
    FPFS_RETURN_IF_ERROR(write_text(storage, lost.get(), name + std::string(kTextSuffix), text));
    FPFS_RETURN_IF_ERROR(storage.fsync(lost.get()));
    FPFS_RETURN_IF_ERROR(storage.fsync(entry.directory));
    aside.moved_to = fmt::format("{}/{}{}", kLostAndFound, name, kSidecarSuffix);
    return aside;
  }
  return moved;
}

}  // namespace fpfs
