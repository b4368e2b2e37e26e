// Opening. Nothing is changed in any directory until every directory was found to be what it must be; only then are the
// lock files touched. Superblocks and mount records are read a second time under the locks: a format or a mount may
// have run in between.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "engine/array/member_directory.h"
#include "engine/array/superblock_copies.h"
#include "engine/base/log.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

struct FoundDirectory {
  std::string path;
  ScopedHandle directory;
  Identity identity;
  std::vector<std::byte> bytes;  // of the superblock
  Superblock superblock;
};

namespace {

std::string name_of(const Superblock& superblock) {
  return superblock.label.empty() ? to_string(superblock.array_id)
                                  : fmt::format("{} ({})", to_string(superblock.array_id), superblock.label);
}

Result<FoundDirectory> look(Storage& storage, const std::string& path, bool for_writing) {
  FoundDirectory found;
  found.path = path;
  const Result<Handle> opened = storage.open_directory(path);
  if (opened.status().code() == StatusCode::kNotFound)
    return refuse(StatusCode::kNotFound, path, "no such directory; is its drive mounted?");
  if (!opened.is_ok()) return opened.status().with_context(path);
  found.directory = ScopedHandle(storage, *opened);
  FPFS_ASSIGN_OR_RETURN(found.identity, identity_of(storage, *opened));
  Result<std::vector<std::byte>> bytes = read_superblock_file(storage, *opened);
  if (bytes.status().code() == StatusCode::kNotFound) {
    const bool unfinished = storage.stat_at(*opened, kFormerName).is_ok();
    const bool was_member = identify_by_copies(storage, *opened, read_superblock_copies(storage, *opened)).has_value();
    return refuse(StatusCode::kNotFound, path,
                  unfinished
                      ? "a forced format of it did not finish; format the array again with mkfs.fastpersistfs --force"
                  : was_member ? "its superblock is missing; fsck.fastpersistfs -y makes it again from a copy"
                               : "it has no superblock, so it is not a member of an array; is its drive mounted? A new "
                                 "array is made with mkfs.fastpersistfs");
  }
  if (!bytes.is_ok()) return bytes.status().with_context(path);
  found.bytes = *std::move(bytes);
  Result<Superblock> superblock = decode_superblock(found.bytes, for_writing);
  if (superblock.status().code() == StatusCode::kCorruption)
    return refuse(
        StatusCode::kCorruption, path,
        fmt::format("{}; nothing was changed. fsck.fastpersistfs -y makes it again where a copy is left; without this "
                    "directory, ro and degraded read what the others hold",
                    superblock.status().message()));
  if (!superblock.is_ok()) return superblock.status().with_context(path);
  found.superblock = *std::move(superblock);
  return found;
}

// Whether `b` may be opened together with `a`.
Status check_pair(const FoundDirectory& a, const FoundDirectory& b) {
  const Superblock& x = a.superblock;
  const Superblock& y = b.superblock;
  if (a.identity == b.identity)
    return refuse(StatusCode::kInvalidArgument, b.path,
                  fmt::format("it is the same directory as {}; give each directory once", a.path));
  if (x.array_id != y.array_id)
    return refuse(StatusCode::kInvalidArgument, b.path,
                  fmt::format("it is {} of array {}, but {} belongs to array {}; give the directories of one array",
                              describe_member(y.member_index), name_of(y), a.path, name_of(x)));
  if (x.member_index == y.member_index)
    return refuse(StatusCode::kInvalidArgument, b.path,
                  fmt::format("it is {} as {} is already, so one is a copy of the other; give only the one in use",
                              describe_member(y.member_index), a.path));
  if (x.member_count != y.member_count || x.metadata_member != y.metadata_member || x.chunk_size != y.chunk_size)
    return refuse(StatusCode::kCorruption, b.path,
                  fmt::format("its superblock describes array {} otherwise than that of {} does; nothing was changed",
                              name_of(y), a.path));
  return Status::ok();
}

}  // namespace

// What Array::open() finds before it takes anything.
class ArrayOpener {
 public:
  ArrayOpener(Storage& storage, const ArrayOptions& options) : storage_(storage), options_(options) {}

  Status find(const std::vector<std::string>& directories);
  const Superblock& any() const { return any_; }
  std::optional<FoundDirectory>& member(MemberIndex index) { return members_[index]; }
  std::optional<FoundDirectory>& metadata_only() { return metadata_only_; }
  FoundDirectory& metadata() {
    return any_.metadata_member == kMetadataOnlyMember ? *metadata_only_ : *members_[any_.metadata_member];
  }
  Result<bool> has_direct_io(const FoundDirectory& found) const;
  Result<ScopedHandle> lock(const FoundDirectory& found) const;
  // All that were found: members by their index, then the metadata directory.
  std::vector<ArrayDirectory> all() const;
  // A directory of a member, on the same filesystem as the member.
  Result<ScopedHandle> open_part(const FoundDirectory& found, const char* name) const;

 private:
  Status find_metadata_directory();
  Status check_complete() const;

  Storage& storage_;
  const ArrayOptions& options_;
  Superblock any_;
  PerMember<std::optional<FoundDirectory>> members_;
  std::optional<FoundDirectory> metadata_only_;
};

Status ArrayOpener::find(const std::vector<std::string>& directories) {
  if (directories.empty()) return Status::error(StatusCode::kInvalidArgument, "no directory was given");
  if (options_.degraded && !options_.read_only)
    return Status::error(StatusCode::kInvalidArgument, "an array with missing members opens read-only: add ro");
  std::vector<FoundDirectory> all;
  for (const std::string& path : directories) {
    FPFS_ASSIGN_OR_RETURN(FoundDirectory found, look(storage_, path, !options_.read_only));
    for (const FoundDirectory& other : all) FPFS_RETURN_IF_ERROR(check_pair(other, found));
    all.push_back(std::move(found));
  }
  any_ = all.front().superblock;  // in what they share, all are alike
  members_.resize(any_.member_count);
  for (FoundDirectory& found : all) {
    const MemberIndex index = found.superblock.member_index;
    (index == kMetadataOnlyMember ? metadata_only_ : members_[index]) = std::move(found);
  }
  const auto first =
      std::find_if(members_.begin(), members_.end(), [](const auto& member) { return member.has_value(); });
  if (first != members_.end()) any_ = (*first)->superblock;
  FPFS_RETURN_IF_ERROR(find_metadata_directory());
  return check_complete();
}

std::vector<ArrayDirectory> ArrayOpener::all() const {
  std::vector<ArrayDirectory> directories;
  const auto add = [&directories](const std::optional<FoundDirectory>& found) {
    if (found) directories.push_back({found->path, found->superblock, found->directory.get(), kNoHandle, {}, {}});
  };
  for (const std::optional<FoundDirectory>& member : members_) add(member);
  add(metadata_only_);
  return directories;
}

Status ArrayOpener::find_metadata_directory() {
  const std::string& wanted = options_.metadata_directory;
  if (any_.metadata_member != kMetadataOnlyMember) {
    if (wanted.empty()) return Status::ok();
    return refuse(StatusCode::kInvalidArgument, wanted,
                  fmt::format("array {} keeps its names on member {}, not in a directory of their own; leave this "
                              "directory out",
                              name_of(any_), any_.metadata_member));
  }
  if (metadata_only_ && wanted.empty()) return Status::ok();
  Result<FoundDirectory> found = look(storage_, wanted.empty() ? any_.metadata_path : wanted, !options_.read_only);
  if (!found.is_ok())
    return found.status().with_context(fmt::format("the metadata directory of array {}", name_of(any_)));
  if (found->superblock.array_id != any_.array_id || found->superblock.member_index != kMetadataOnlyMember)
    return refuse(
        StatusCode::kInvalidArgument, found->path,
        fmt::format("it is {} of array {}, not the metadata directory of array {}; say where that is",
                    describe_member(found->superblock.member_index), name_of(found->superblock), name_of(any_)));
  if (metadata_only_ && !(metadata_only_->identity == found->identity)) return check_pair(*metadata_only_, *found);
  for (const std::optional<FoundDirectory>& member : members_)
    if (member) FPFS_RETURN_IF_ERROR(check_pair(*member, *found));
  metadata_only_ = *std::move(found);
  return Status::ok();
}

Status ArrayOpener::check_complete() const {
  std::string present, missing;
  for (const MemberIndex i : members_.indices()) {
    std::string& list = members_[i] ? present : missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", i);
    if (members_[i]) list += fmt::format(" ({})", members_[i]->path);
  }
  if (missing.empty()) return Status::ok();
  const bool has_names = any_.metadata_member == kMetadataOnlyMember || members_[any_.metadata_member];
  if (!has_names)
    return Status::error(
        StatusCode::kNotFound,
        fmt::format(
            "array {} keeps the names of all its files on member {}, which is missing (given: {} of {}): give its "
            "directory too; without it no file can be found, also with ro and degraded",
            name_of(any_), any_.metadata_member, present, members_.size()));
  if (options_.degraded) return Status::ok();
  return Status::error(
      StatusCode::kNotFound,
      fmt::format("array {} has {} members; given were {}, missing {}: give all directories, or read what "
                  "is left with ro and degraded",
                  name_of(any_), members_.size(), present.empty() ? "none" : present, missing));
}

// By trying: what a filesystem says of itself is not reliable (FUSE, overlay, encryption). The superblock is a file of
// one aligned block that exists on every member.
Result<bool> ArrayOpener::has_direct_io(const FoundDirectory& found) const {
  alignas(kIoAlignment) std::array<std::byte, kSuperblockSize> block;
  const Result<Handle> opened = storage_.open_at(found.directory.get(), kSuperblockName, O_RDONLY | O_DIRECT);
  Status status = opened.status();
  if (opened.is_ok()) {
    const ScopedHandle file(storage_, *opened);
    status = storage_.pread(*opened, block, 0).status();
  }
  if (status.is_ok()) return true;
  if (status.errno_value() == EINVAL || status.errno_value() == EOPNOTSUPP) return false;
  return status.with_context(found.path);
}

Result<ScopedHandle> ArrayOpener::lock(const FoundDirectory& found) const {
  if (!options_.lock) return ScopedHandle();
  FPFS_ASSIGN_OR_RETURN(ScopedHandle lock,
                        lock_member(storage_, found.directory.get(), found.path,
                                    options_.read_only ? LockMode::kShared : LockMode::kExclusive, true));
  const Result<std::vector<std::byte>> now = read_superblock_file(storage_, found.directory.get());
  if (!now.is_ok() || *now != found.bytes)
    return refuse(StatusCode::kBusy, found.path, "another process formatted it meanwhile; look and try again");
  return lock;
}

Result<ScopedHandle> ArrayOpener::open_part(const FoundDirectory& found, const char* name) const {
  const Result<Handle> opened = storage_.open_at(found.directory.get(), name, O_RDONLY | O_DIRECTORY);
  if (opened.status().code() == StatusCode::kNotFound)
    return refuse(StatusCode::kCorruption, found.path,
                  fmt::format("its superblock is there but '{}' is not; nothing was changed", name));
  if (!opened.is_ok()) return opened.status().with_context(found.path);
  ScopedHandle part(storage_, *opened);
  FPFS_ASSIGN_OR_RETURN(const Identity identity, identity_of(storage_, part.get()));
  if (identity.device != found.identity.device)
    return refuse(
        StatusCode::kInvalidArgument, found.path,
        fmt::format("'{}' in it is on another filesystem; a member lies on one (unmount what is mounted there)", name));
  return part;
}

namespace {

// Below a member, files carry the owners and modes that users see through the mount: only the mode of the directory
// itself keeps them from going past the mount, to the data.
Status keep_private(Storage& storage, Handle directory, const std::string& path, bool read_only) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(directory));
  if (attributes.st_uid != 0 && attributes.st_uid != ::geteuid())
    log(LogLevel::kWarning,
        "{} belongs to user {}, who can read and change all content past the mount; if that is not meant: chown it",
        path, attributes.st_uid);
  const mode_t mode = attributes.st_mode & 07777;
  if ((mode & 077) == 0) return Status::ok();
  if (read_only) {
    log(LogLevel::kWarning, "{} is open to other users (mode {:04o}), who get past the mount to the data: chmod 700 {}",
        path, mode, path);
    return Status::ok();
  }
  FPFS_RETURN_IF_ERROR(storage.chmod(directory, mode & ~static_cast<mode_t>(077)).with_context(path));
  log(LogLevel::kWarning, "{} was open to other users (mode {:04o}), past the mount; closed it: its mode is {:04o} now",
      path, mode, mode & ~077u);
  return Status::ok();
}

}  // namespace

// The objects of every member that was found.
Status Array::open_members(ArrayOpener& opener, const ArrayOptions& options) {
  Storage& storage = environment_.storage();
  members_.resize(superblock_.member_count);
  for (const MemberIndex i : members()) {
    kept_.push_back(std::make_unique<Kept>(options.handles_kept));
    Member& member = members_[i];
    member.path = "(missing)";
    if (!opener.member(i)) continue;
    const FoundDirectory& found = *opener.member(i);
    member.path = found.path;
    FPFS_ASSIGN_OR_RETURN(member.direct, opener.has_direct_io(found));
    if (!member.direct && !options.buffered_members)
      return refuse(
          StatusCode::kUnsupported, found.path,
          "its filesystem does not do O_DIRECT, which the array needs; use a directory on XFS, ext4 or btrfs");
    storage.assign_domain(found.directory.get(), domain_of(i));
    FPFS_ASSIGN_OR_RETURN(ScopedHandle objects, opener.open_part(found, kObjectsName));
    member.objects = own(std::move(objects));
    FPFS_ASSIGN_OR_RETURN(member.device, storage.filesystem_of(member.objects));
    member.present = true;
  }
  return Status::ok();
}

// Lock files are written, and modes closed.
Status Array::lock_directories(ArrayOpener& opener, const ArrayOptions& options) {
  Storage& storage = environment_.storage();
  for (const MemberIndex i : members()) {
    if (!opener.member(i)) continue;
    FPFS_ASSIGN_OR_RETURN(ScopedHandle lock, opener.lock(*opener.member(i)));
    members_[i].lock = lock.get();
    locks_.push_back(std::move(lock));
    members_[i].directory = own(std::move(opener.member(i)->directory));
    FPFS_RETURN_IF_ERROR(keep_private(storage, members_[i].directory, members_[i].path, options.read_only));
  }
  if (opener.metadata_only()) {
    FPFS_ASSIGN_OR_RETURN(ScopedHandle lock, opener.lock(*opener.metadata_only()));
    metadata_lock_ = lock.get();
    locks_.push_back(std::move(lock));
    metadata_directory_ = own(std::move(opener.metadata_only()->directory));
    FPFS_RETURN_IF_ERROR(keep_private(storage, metadata_directory_, metadata_path_, options.read_only));
  } else {
    metadata_directory_ = members_[superblock_.metadata_member].directory;
  }
  storage.assign_domain(metadata_directory_, kTreeDomain);
  for (ArrayDirectory& directory : directories_) {
    const MemberIndex index = directory.superblock.member_index;
    directory.lock = index == kMetadataOnlyMember ? metadata_lock_ : members_[index].lock;
  }
  return Status::ok();
}

Result<std::unique_ptr<Array>> Array::open(Environment& environment, const std::vector<std::string>& directories,
                                           const ArrayOptions& options) {
  Storage& storage = environment.storage();
  ArrayOpener opener(storage, options);
  FPFS_RETURN_IF_ERROR(opener.find(directories));

  // What is kept open of each member, and three of its own; the rest is for files and everything else.
  constexpr uint64_t kOtherHandles = 512;
  const uint64_t of_member = options.handles_kept + 3;
  FPFS_RETURN_IF_ERROR(environment.allow_handles(kOtherHandles + of_member * opener.any().member_count));

  std::unique_ptr<Array> array(new Array(environment));
  array->superblock_ = opener.any();
  array->read_only_ = options.read_only;
  FPFS_RETURN_IF_ERROR(array->open_members(opener, options));
  array->directories_ = opener.all();
  read_mount_records(storage, array->directories_, false);
  if (options.renew_records) renew_unknown_records(array->directories_);
  if (!options.degraded) FPFS_RETURN_IF_ERROR(check_mount_records(array->directories_));
  FPFS_ASSIGN_OR_RETURN(ScopedHandle tree, opener.open_part(opener.metadata(), kTreeName));
  storage.assign_domain(tree.get(), kTreeDomain);
  array->tree_ = array->own(std::move(tree));
  array->metadata_path_ = opener.metadata().path;

  // Everything is as it must be; from here on something is changed.
  FPFS_RETURN_IF_ERROR(array->lock_directories(opener, options));
  if (options.lock) read_mount_records(storage, array->directories_, true);
  if (options.renew_records) renew_unknown_records(array->directories_);
  if (options.degraded)
    array->note_outdated();
  else
    FPFS_RETURN_IF_ERROR(check_mount_records(array->directories_));
  const Result<struct stat> state = storage.stat_at(array->metadata_directory_, kStateName);
  if (!state.is_ok() && state.status().code() != StatusCode::kNotFound)
    return state.status().with_context(array->metadata_path_);
  array->was_dirty_ = state.is_ok();
  if (state.is_ok()) array->dirty_since_ = state->st_mtim;
  return array;
}

// Degraded is for reading what is left: what an old copy holds is checked as ever, and counts where it fits.
void Array::note_outdated() {
  for (const OutdatedDirectory& outdated : find_outdated(directories_)) {
    const ArrayDirectory& directory = directories_[outdated.index];
    const MemberIndex index = directory.superblock.member_index;
    log(LogLevel::kWarning, "{}: {}: {}; what of it fits the others can be read", directory.path,
        describe_member(index), outdated.sentence);
    has_outdated_ = true;
    if (index != kMetadataOnlyMember) members_[index].outdated = true;
  }
}

}  // namespace fpfs
