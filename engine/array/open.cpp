// Opening. Nothing is changed in any directory until every directory was found to be what it must be; only then are the
// lock files touched. Superblocks and mount records are read a second time under the locks: a format or a mount may
// have run in between.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "engine/array/member_directory.h"
#include "engine/array/superblock_copies.h"
#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/index/commit_entry.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

struct FoundDirectory {
  std::string path;
  ScopedHandle directory;
  Identity identity;
  std::vector<std::byte> bytes;  // of the superblock, as it is on disk
  bool superblock_is_old = false;
  Superblock superblock;
};

namespace {

std::string name_of(const Superblock& superblock) {
  return superblock.label.empty() ? to_string(superblock.array_id)
                                  : fmt::format("{} ({})", to_string(superblock.array_id), superblock.label);
}

// What is to be done with one that is not what it should be.
struct WhatToDo {
  const char* absent;  // nothing is there, or an empty directory
  const char* left_out;
};
constexpr WhatToDo kOfMember = {
    "is its drive mounted?",
    ", to read with ro and degraded what the others hold (if it is not the one that has the names)"};
constexpr WhatToDo kOfMemberDegraded = {"if its drive is lost, leave this directory out of the list", ""};
// Without it no file can be found, so there is nothing to be left out.
constexpr WhatToDo kOfNames = {
    "is its drive mounted? It has the names of all files, which nobody can find without; "
    "where it moved, say so: meta_dir=DIR (fsck.fastpersistfs, fpfs: --meta-dir DIR)",
    " and say where the names are now: meta_dir=DIR"};

const WhatToDo& what_to_do(const ArrayOptions& options) {
  return options.degraded ? kOfMemberDegraded : kOfMember;
}

// Of all superblocks that `directories` keep copies of, as fsck looks for them.
std::vector<Superblock> copies_in(Storage& storage, const std::vector<std::string>& directories) {
  std::vector<Superblock> copies;
  for (const std::string& path : directories) {
    const Result<Handle> opened = storage.open_directory(path);
    if (!opened.is_ok()) continue;
    const ScopedHandle directory(storage, *opened);
    const std::vector<Superblock> here = read_superblock_copies(storage, directory.get());
    copies.insert(copies.end(), here.begin(), here.end());
  }
  return copies;
}

// `others`: all that were given; one of them may have a copy of a lost superblock.
std::string describe_no_superblock(Storage& storage, Handle directory, const std::vector<std::string>& others,
                                   const WhatToDo& advice) {
  if (storage.stat_at(directory, kFormerName).is_ok())
    return "a forced format of it did not finish; format the array again with mkfs.fastpersistfs --force";
  if (identify_by_copies(storage, directory, read_superblock_copies(storage, directory)) ||
      identify_by_copies(storage, directory, copies_in(storage, others)))
    return "its superblock is missing; fsck.fastpersistfs -y makes it again from a copy";
  const Result<DirectoryFindings> content = examine_directory(storage, directory);
  if (content.is_ok() && !content->foreign_entry.empty())
    return fmt::format(
        "it holds '{}' but no superblock, as a member whose superblock is lost does; fsck.fastpersistfs -n with all "
        "directories of the array says what is left, nothing was changed",
        content->foreign_entry);
  return fmt::format("it has no superblock, so it is not a member of an array; {}{}{}", advice.absent,
                     &advice == &kOfMember ? " A new array is made with mkfs.fastpersistfs" : "",
                     content.is_ok() && !content->blank ? fmt::format(" (it holds '{}')", content->first_entry) : "");
}

Result<FoundDirectory> look(Storage& storage, const std::string& path, const ArrayOptions& options,
                            const WhatToDo& advice, const std::vector<std::string>& others) {
  FoundDirectory found;
  found.path = path;
  const Result<Handle> opened = storage.open_directory(path);
  if (opened.status().code() == StatusCode::kNotFound && is_link_to_nowhere(storage, path))
    return refuse(StatusCode::kNotFound, path, kLeadsNowhere);
  if (opened.status().code() == StatusCode::kNotFound)
    return refuse(StatusCode::kNotFound, path, fmt::format("no such directory; {}", advice.absent));
  if (!opened.is_ok()) return refuse_failed(path, opened.status(), advice.left_out);
  found.directory = ScopedHandle(storage, *opened);
  FPFS_ASSIGN_OR_RETURN(found.identity, identity_of(storage, *opened));
  Result<std::vector<std::byte>> bytes = read_superblock_file(storage, *opened);
  if (bytes.status().code() == StatusCode::kNotFound)
    return refuse(StatusCode::kNotFound, path, describe_no_superblock(storage, *opened, others, advice));
  if (!bytes.is_ok()) return refuse_failed(path, bytes.status(), advice.left_out);
  found.bytes = *std::move(bytes);
  Result<Superblock> superblock = decode_superblock(found.bytes, !options.read_only);
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

// Whether `b` is another directory of the same array.
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
  return Status::ok();
}

ArrayDirectory to_array_directory(const FoundDirectory& found) {
  ArrayDirectory directory;
  directory.path = found.path;
  directory.superblock = found.superblock;
  directory.directory = found.directory.get();
  directory.superblock_is_old = found.superblock_is_old;
  return directory;
}

bool has_the_names(const Superblock& superblock) {
  return superblock.member_index == superblock.metadata_member;
}

// What the superblocks of an array say alike: `from` knows better.
void take_membership(const Superblock& from, Superblock& to) {
  to.incompatible = from.incompatible;
  to.member_count = from.member_count;
  to.membership = from.membership;
  to.member_set = from.member_set;
  to.stripe_order = from.stripe_order;
  to.removed = from.removed;
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
  Result<ScopedHandle> lock(const FoundDirectory& found) const;
  // After the mount records of `directories` were read.
  Status check_left_out(const std::vector<ArrayDirectory>& directories) const;
  // All that were found: members by their index, then the metadata directory.
  std::vector<ArrayDirectory> all() const;
  // A directory of a member, on the same filesystem as the member.
  Result<ScopedHandle> open_part(const FoundDirectory& found, const char* name) const;

 private:
  Status find_metadata_directory(std::vector<FoundDirectory>& all);
  Status settle_membership(std::vector<FoundDirectory>& all);
  Status check_complete() const;
  Status check_member_set() const;

  Storage& storage_;
  const ArrayOptions& options_;
  Superblock any_;
  PerMember<std::optional<FoundDirectory>> members_;
  std::optional<FoundDirectory> metadata_only_;
  std::vector<FoundDirectory> left_out_;  // to be added once, or removed, and no member
};

Status ArrayOpener::find(const std::vector<std::string>& directories) {
  if (directories.empty()) return Status::error(StatusCode::kInvalidArgument, "no directory was given");
  if (options_.degraded && !options_.read_only)
    return Status::error(StatusCode::kInvalidArgument, "an array with missing members opens read-only: add ro");
  std::vector<FoundDirectory> all;
  for (const std::string& path : directories) {
    FPFS_ASSIGN_OR_RETURN(FoundDirectory found, look(storage_, path, options_, what_to_do(options_), directories));
    for (const FoundDirectory& other : all) FPFS_RETURN_IF_ERROR(check_pair(other, found));
    all.push_back(std::move(found));
  }
  const auto is_member = [](const FoundDirectory& found) { return !was_removed(found.superblock); };
  const auto first_member = std::find_if(all.begin(), all.end(), is_member);
  if (first_member == all.end())
    return refuse(StatusCode::kInvalidArgument, all.front().path,
                  fmt::format("it was {} of array {} and was removed; give the directories that it has now",
                              describe_member(all.front().superblock.member_index), name_of(all.front().superblock)));
  any_ = first_member->superblock;
  FPFS_RETURN_IF_ERROR(find_metadata_directory(all));
  FPFS_RETURN_IF_ERROR(settle_membership(all));
  for (FoundDirectory& found : all) {
    const MemberIndex index = found.superblock.member_index;
    std::optional<FoundDirectory>& place = index == kMetadataOnlyMember ? metadata_only_ : members_[index];
    if (place && place->superblock.member_id == found.superblock.member_id)
      return refuse(StatusCode::kInvalidArgument, found.path,
                    fmt::format("it is {} as {} is already, so one is a copy of the other; give only the one in use",
                                describe_member(index), place->path));
    if (place)
      return refuse(
          StatusCode::kInvalidArgument, found.path,
          fmt::format("it is {} as {} is already, and no copy of it: one of the two was to be added once, which "
                      "did not finish; give only one of them (with the wrong one the array does not open)",
                      describe_member(index), place->path));
    place = std::move(found);
  }
  const auto first =
      std::find_if(members_.begin(), members_.end(), [](const auto& member) { return member.has_value(); });
  if (first != members_.end()) any_ = (*first)->superblock;
  FPFS_RETURN_IF_ERROR(check_complete());
  return check_member_set();
}

// Which members there are is what the directory with the names says: to add some, it is changed before the others are
// and behind the new ones. The others are brought up to it when the array is next changed; new ones that it does not
// know are none.
Status ArrayOpener::settle_membership(std::vector<FoundDirectory>& all) {
  const FoundDirectory* newest = &all.front();
  for (const FoundDirectory& found : all) {
    const bool knows_better = found.superblock.membership > newest->superblock.membership;
    if (has_the_names(found.superblock) || (!has_the_names(newest->superblock) && knows_better)) newest = &found;
  }
  const Superblock known = newest->superblock;
  const std::string known_path = newest->path;
  std::vector<FoundDirectory> members;
  for (FoundDirectory& found : all) {
    Superblock& superblock = found.superblock;
    const bool knows_more = superblock.membership > known.membership;
    if (knows_more && superblock.member_index.value() < known.member_count)  // no new one: it was a member already
      return refuse(
          StatusCode::kCorruption, known_path,
          fmt::format(
              "it is an older copy: {} was in array {} when members were added or removed that it does not know "
              "of; nothing was changed. Bring back the right directory",
              found.path, name_of(known)));
    const uint16_t index = superblock.member_index.value();
    const bool was_never_added =
        superblock.member_index != kMetadataOnlyMember && index >= known.member_count && superblock.membership > 0;
    if (knows_more || was_never_added) {
      log(LogLevel::kWarning,
          "{}: it was to become {} of array {}, and adding it did not finish; it is left out. Add it again (fpfs "
          "member "
          "add)",
          found.path, describe_member(superblock.member_index), name_of(known));
      left_out_.push_back(std::move(found));
      continue;
    }
    if (superblock.member_index != kMetadataOnlyMember && index < known.member_count && known.removed.test(index)) {
      log(LogLevel::kWarning,
          "{}: it was {} of array {} and was removed; it is left out: leave it out of the list, too", found.path,
          describe_member(superblock.member_index), name_of(known));
      left_out_.push_back(std::move(found));
      continue;
    }
    const bool is_alike = superblock.membership < known.membership ? superblock.member_count <= known.member_count
                                                                   : superblock.member_count == known.member_count &&
                                                                         superblock.member_set == known.member_set &&
                                                                         superblock.stripe_order == known.stripe_order;
    if (!is_alike || superblock.metadata_member != known.metadata_member || superblock.chunk_size != known.chunk_size)
      return refuse(StatusCode::kCorruption, found.path,
                    fmt::format("its superblock describes array {} otherwise than that of {} does; nothing was changed",
                                name_of(superblock), known_path));
    found.superblock_is_old = superblock.membership < known.membership || superblock.incompatible != known.incompatible;
    take_membership(known, superblock);
    members.push_back(std::move(found));
  }
  all = std::move(members);
  any_ = known;
  members_.resize(known.member_count);
  return Status::ok();
}

// An index alone may be another directory's: of one whose adding did not finish.
Status ArrayOpener::check_member_set() const {
  if (any_.membership == 0) return Status::ok();
  std::vector<Uuid> ids(members_.size());
  for (const MemberIndex i : members_.indices()) {
    if (any_.removed.test(i.value())) continue;
    if (!members_[i]) return Status::ok();  // degraded
    ids[i.value()] = members_[i]->superblock.member_id;
  }
  if (member_set_of(ids) == any_.member_set) return Status::ok();
  return Status::error(StatusCode::kCorruption,
                       fmt::format("one of the directories is no member of array {}, although its superblock says so: "
                                   "an older copy, or one that was to be added and was not; nothing was changed",
                                   name_of(any_)));
}

// A directory that the one with the names does not know, and that has taken part for longer: the names are an old copy.
Status ArrayOpener::check_left_out(const std::vector<ArrayDirectory>& directories) const {
  uint64_t newest = 0;
  for (const ArrayDirectory& directory : directories) newest = std::max(newest, directory.record.last_settled().number);
  std::vector<ArrayDirectory> others;
  for (const FoundDirectory& found : left_out_) others.push_back(to_array_directory(found));
  read_mount_records(storage_, others, false);
  for (const ArrayDirectory& other : others) {
    if (!other.record_status.is_ok() || other.record.last_settled().number <= newest) continue;
    return refuse(
        StatusCode::kCorruption, other.path,
        fmt::format("it is {} of array {}, which the directory with the names does not know: that is an older "
                    "copy; nothing was changed. Bring back the right directory",
                    describe_member(other.superblock.member_index), name_of(any_)));
  }
  return Status::ok();
}

std::vector<ArrayDirectory> ArrayOpener::all() const {
  std::vector<ArrayDirectory> directories;
  const auto add = [&directories](const std::optional<FoundDirectory>& found) {
    if (found) directories.push_back(to_array_directory(*found));
  };
  for (const std::optional<FoundDirectory>& member : members_) add(member);
  add(metadata_only_);
  return directories;
}

// When it is none of those given, it is added to them.
Status ArrayOpener::find_metadata_directory(std::vector<FoundDirectory>& all) {
  const std::string& wanted = options_.metadata_directory;
  if (any_.metadata_member != kMetadataOnlyMember) {
    if (wanted.empty()) return Status::ok();
    return refuse(StatusCode::kInvalidArgument, wanted,
                  fmt::format("array {} keeps its names on member {}, not in a directory of their own; leave this "
                              "directory out",
                              name_of(any_), any_.metadata_member));
  }
  const auto given = std::find_if(all.begin(), all.end(), [](const FoundDirectory& found) {
    return found.superblock.member_index == kMetadataOnlyMember;
  });
  if (given != all.end() && wanted.empty()) return Status::ok();
  std::vector<std::string> members;
  members.reserve(all.size());
  for (const FoundDirectory& other : all) members.push_back(other.path);
  Result<FoundDirectory> found =
      look(storage_, wanted.empty() ? any_.metadata_path : wanted, options_, kOfNames, members);
  if (!found.is_ok())
    return found.status().with_context(fmt::format("the metadata directory of array {}", name_of(any_)));
  if (found->superblock.array_id != any_.array_id || found->superblock.member_index != kMetadataOnlyMember)
    return refuse(
        StatusCode::kInvalidArgument, found->path,
        fmt::format("it is {} of array {}, not the metadata directory of array {}; say where that is",
                    describe_member(found->superblock.member_index), name_of(found->superblock), name_of(any_)));
  if (given != all.end() && given->identity == found->identity) return Status::ok();
  for (const FoundDirectory& other : all) FPFS_RETURN_IF_ERROR(check_pair(other, *found));
  all.push_back(*std::move(found));
  return Status::ok();
}

Status ArrayOpener::check_complete() const {
  std::string present, missing;
  for (const MemberIndex i : members_.indices()) {
    if (any_.removed.test(i.value())) continue;
    std::string& list = members_[i] ? present : missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", i);
    if (members_[i]) list += fmt::format(" ({})", members_[i]->path);
  }
  if (missing.empty()) return Status::ok();
  const size_t count = members_.size() - any_.removed.count();
  const bool has_names = any_.metadata_member == kMetadataOnlyMember || members_[any_.metadata_member];
  if (!has_names)
    return Status::error(
        StatusCode::kNotFound,
        fmt::format(
            "array {} keeps the names of all its files on member {}, which is missing (given: {} of {}): give its "
            "directory too; without it no file can be found, also with ro and degraded. If it is lost: a new array, "
            "and "
            "fpfs tier set --restore, or a backup",
            name_of(any_), any_.metadata_member, present.empty() ? "none" : present, count));
  if (options_.degraded) return Status::ok();
  return Status::error(
      StatusCode::kNotFound,
      fmt::format("array {} has {}; given were {}, missing {}: give all directories, or read what "
                  "is left with ro and degraded",
                  name_of(any_), format_count(count, "member"), present.empty() ? "none" : present, missing));
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
    return refuse(
        StatusCode::kCorruption, found.path,
        fmt::format("its superblock is there but '{}' is not; nothing was changed. {}", name, put_back(name)));
  if (!opened.is_ok()) return refuse_failed(found.path, opened.status(), what_to_do(options_).left_out);
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

// Without one of its 256 directories a member is good for all files but those that come to it.
Status warn_of_missing(Storage& storage, const Member& member) {
  std::set<std::string> there;
  FPFS_RETURN_IF_ERROR(storage.list(member.objects, [&](const DirectoryEntry& entry) {
    there.insert(entry.name);
    return true;
  }));
  std::vector<std::string> missing;
  for (unsigned index = 0; index < kObjectDirectories; ++index)
    if (const std::string name = object_directory_name(index); !there.contains(name)) missing.push_back(name);
  if (!missing.empty())
    log(LogLevel::kWarning,
        "{}/objects: {} of its {} directories {} missing ({}{}): what was there cannot be read, and saves that "
        "come there fail; unmount, and fsck.fastpersistfs -n says what to do",
        member.path, missing.size(), kObjectDirectories, one_or_many(missing.size(), "is", "are"), missing.front(),
        missing.size() > 1 ? ", ..." : "");
  return Status::ok();
}

}  // namespace

// The objects of every member that was found.
Status Array::open_members(ArrayOpener& opener, const ArrayOptions& options) {
  Storage& storage = environment_.storage();
  members_.resize(capacity_);
  kept_.resize(capacity_);
  for (const MemberIndex i : members()) {
    kept_[i] = std::make_unique<Kept>(options.handles_kept);
    Member& member = members_[i];
    member.path = opener.any().removed.test(i.value()) ? "(removed)" : "(missing)";
    if (!opener.member(i)) continue;
    const FoundDirectory& found = *opener.member(i);
    member.path = found.path;
    member.id = found.superblock.member_id;
    const Result<bool> direct = has_direct_io(storage, found.directory.get(), kSuperblockName);
    if (!direct.is_ok()) return refuse_failed(found.path, direct.status(), what_to_do(options).left_out);
    member.direct = *direct;
    if (!member.direct && !options.buffered_members)
      return refuse(StatusCode::kUnsupported, found.path, kNeedsDirectIo);
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
    Result<ScopedHandle> locked = opener.lock(*opener.metadata_only());
    // Its members are free: they are a copy's, or the directory is.
    if (locked.status().code() == StatusCode::kBusy && options.metadata_directory.empty())
      return Status::error(StatusCode::kInvalidArgument,
                           locked.status().message() +
                               ". The names are there, as the superblocks say; of a copy of the "
                               "array name the copy's: meta_dir=DIR (fsck.fastpersistfs, fpfs: --meta-dir DIR)");
    FPFS_ASSIGN_OR_RETURN(ScopedHandle lock, std::move(locked));
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

// What is kept open of each member, and three of its own; the rest is for files and everything else.
uint64_t Array::handles_needed(const ArrayOptions& options, uint64_t members) {
  constexpr uint64_t kOtherHandles = 512 + kCommitSlots;
  return kOtherHandles + (options.handles_kept + 3) * members;
}

Result<std::unique_ptr<Array>> Array::open(Environment& environment, const std::vector<std::string>& directories,
                                           const ArrayOptions& options) {
  Storage& storage = environment.storage();
  ArrayOpener opener(storage, options);
  FPFS_RETURN_IF_ERROR(opener.find(directories));

  const uint16_t count = opener.any().member_count;
  FPFS_RETURN_IF_ERROR(environment.allow_handles(handles_needed(options, count)));

  std::unique_ptr<Array> array(new Array(environment, options));
  array->superblock_ = opener.any();
  array->member_count_.store(count);
  array->set_membership(opener.any());
  array->capacity_ =
      static_cast<uint16_t>(options.read_only ? count : std::min<int>(count + kAddedMax, kMemberCountMax));
  array->read_only_ = options.read_only;
  FPFS_RETURN_IF_ERROR(array->open_members(opener, options));
  array->directories_ = opener.all();
  read_mount_records(storage, array->directories_, false);
  if (options.renew_records) renew_unknown_records(array->directories_);
  if (!options.degraded) FPFS_RETURN_IF_ERROR(check_mount_records(array->directories_));
  FPFS_RETURN_IF_ERROR(opener.check_left_out(array->directories_));
  FPFS_ASSIGN_OR_RETURN(ScopedHandle tree, opener.open_part(opener.metadata(), kTreeName));
  storage.assign_domain(tree.get(), kTreeDomain);
  array->tree_ = array->own(std::move(tree));
  array->metadata_path_ = opener.metadata().path;

  // Everything is as it must be; from here on something is changed.
  FPFS_RETURN_IF_ERROR(array->lock_directories(opener, options));
  for (const MemberIndex i : array->members())
    if (array->is_present(i) && !options.is_check) FPFS_RETURN_IF_ERROR(warn_of_missing(storage, array->member(i)));
  if (options.lock) read_mount_records(storage, array->directories_, true);
  if (options.renew_records) renew_unknown_records(array->directories_);
  if (options.degraded)
    array->note_outdated(!options.is_check);
  else
    FPFS_RETURN_IF_ERROR(check_mount_records(array->directories_));
  const Result<struct stat> state = storage.stat_at(array->metadata_directory_, kStateName);
  if (!state.is_ok() && state.status().code() != StatusCode::kNotFound)
    return state.status().with_context(array->metadata_path_);
  array->was_dirty_ = state.is_ok();
  if (state.is_ok()) {
    const MutexLock lock(array->dirty_mutex_);
    array->dirty_since_ = state->st_mtim;
  }
  return array;
}

// Degraded is for reading what is left: what an old copy holds is checked as ever, and counts where it fits.
void Array::note_outdated(bool tell) {
  for (const OutdatedDirectory& outdated : find_outdated(directories_)) {
    const ArrayDirectory& directory = directories_[outdated.index];
    const MemberIndex index = directory.superblock.member_index;
    if (tell)
      log(LogLevel::kWarning, "{}: {}: {}; what of it fits the others can be read", directory.path,
          describe_member(index), outdated.sentence);
    has_outdated_ = true;
    if (index != kMetadataOnlyMember) members_[index].outdated = true;
  }
}

}  // namespace fpfs
