#include "engine/array/superblock_copies.h"

#include <algorithm>
#include <span>

#include "engine/array/member_directory.h"
#include "engine/index/mount_record.h"

namespace fpfs {
namespace {

bool has_directory(Storage& storage, Handle parent, const char* name) {
  const Result<struct stat> attributes = storage.stat_at(parent, name);
  return attributes.is_ok() && S_ISDIR(attributes->st_mode);
}

bool has_parts_of(Storage& storage, Handle directory, const Superblock& superblock) {
  const bool holds_objects = superblock.member_index != kMetadataOnlyMember;
  const bool holds_names = superblock.member_index == superblock.metadata_member;
  return holds_objects == has_directory(storage, directory, kObjectsName) &&
         holds_names == has_directory(storage, directory, kTreeName);
}

}  // namespace

Status write_superblock(Storage& storage, Handle directory, const Superblock& superblock) {
  return replace_file(storage, directory, kSuperblockName, kSuperblockNewName, encode_superblock(superblock));
}

Status write_superblock_copies(Storage& storage, Handle directory, const std::vector<Superblock>& superblocks) {
  std::vector<std::byte> bytes;
  for (const Superblock& superblock : superblocks) {
    const auto encoded = encode_superblock(superblock);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  const Result<std::vector<std::byte>> there =
      read_small_file(storage, directory, kSuperblocksName, kSuperblocksSizeMax);
  if (there.is_ok() && *there == bytes) return Status::ok();
  return replace_file(storage, directory, kSuperblocksName, kSuperblocksNewName, bytes);
}

std::vector<Superblock> read_superblock_copies(Storage& storage, Handle directory) {
  std::vector<Superblock> copies;
  const Result<std::vector<std::byte>> bytes =
      read_small_file(storage, directory, kSuperblocksName, kSuperblocksSizeMax);
  if (!bytes.is_ok()) return copies;
  for (size_t begin = 0; begin + kSuperblockSize <= bytes->size(); begin += kSuperblockSize) {
    Result<Superblock> copy = decode_superblock(std::span(*bytes).subspan(begin, kSuperblockSize), false);
    if (copy.is_ok()) copies.push_back(*std::move(copy));
  }
  return copies;
}

std::optional<Superblock> identify_by_copies(Storage& storage, Handle directory,
                                             const std::vector<Superblock>& copies) {
  if (storage.stat_at(directory, kFormerName).is_ok()) return std::nullopt;
  const Result<std::vector<std::byte>> bytes = read_small_file(storage, directory, kMountName, kMountRecordSize);
  const Result<MountRecord> record = bytes.is_ok() ? decode_mount_record(*bytes) : Result<MountRecord>(bytes.status());
  const auto is_this = [&](const Superblock& copy) {
    if (record.is_ok()) return copy.array_id == record->array_id && copy.member_id == record->member_id;
    return copy.member_count == 1 && copy.metadata_member == MemberIndex(0);
  };
  std::optional<Superblock> found;
  bool is_contradicted = false;
  for (const Superblock& copy : copies) {
    if (!is_this(copy)) continue;
    if (found && found->membership > copy.membership) continue;  // from before members were added
    is_contradicted = found && found->membership == copy.membership &&
                      (is_contradicted || encode_superblock(*found) != encode_superblock(copy));
    found = copy;
  }
  if (is_contradicted) return std::nullopt;
  if (found && !has_parts_of(storage, directory, *found)) return std::nullopt;
  return found;
}

}  // namespace fpfs
