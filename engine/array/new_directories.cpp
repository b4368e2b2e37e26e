#include "engine/array/new_directories.h"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>

#include <fmt/format.h>

namespace fpfs {
namespace {

// Why a directory that is not blank is not formatted.
Status describe_refusal(Storage& storage, const NewDirectory& candidate) {
  if (candidate.findings.has_former)
    return refuse(StatusCode::kExists, candidate.path,
                  "the removal of a former array in it did not finish; use --force to finish it and format");
  // As a member that has lost its superblock: even by force nothing of it is removed.
  if (const std::string& entry = candidate.findings.foreign_entry; !entry.empty())
    return refuse(
        StatusCode::kExists, candidate.path,
        fmt::format(
            "it holds '{}' but no superblock, as a member whose superblock is lost does, so it is not formatted, "
            "not even by force. If it is one, fsck.fastpersistfs -y with all directories of the array makes the "
            "superblock again; if not, move '{}' away",
            entry, entry));
  if (!candidate.findings.has_superblock)
    return refuse(
        StatusCode::kExists, candidate.path,
        fmt::format("it is not empty (it holds '{}'); give an empty directory, or use --force, which lets what "
                    "is there stay beside the array",
                    candidate.findings.first_entry));
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, candidate.directory.get());
  const Result<Superblock> superblock =
      bytes.is_ok() ? decode_superblock(*bytes, false) : Result<Superblock>(bytes.status());
  if (!superblock.is_ok())
    return refuse(
        StatusCode::kExists, candidate.path,
        fmt::format("it holds a superblock that cannot be read ({}); fsck.fastpersistfs -y makes it again where "
                    "a copy is left, --force formats the directory nevertheless",
                    superblock.status().message()));
  return refuse(StatusCode::kExists, candidate.path,
                fmt::format("it is {} of array {}{}{}; use --force to destroy that array",
                            describe_member(superblock->member_index), to_string(superblock->array_id),
                            superblock->label.empty() ? "" : " ", superblock->label));
}

bool is_of_an_array(Storage& storage, Handle directory) {
  const Result<struct stat> superblock = storage.stat_at(directory, kSuperblockName);
  if (!superblock.is_ok() || !S_ISREG(superblock->st_mode)) return false;
  return storage.stat_at(directory, kObjectsName).is_ok() || storage.stat_at(directory, kTreeName).is_ok();
}

// Whatever is in a directory of an array is the array's, also what another one makes there: refused by force, too.
Status check_in_no_array(Storage& storage, const NewDirectory& candidate, const std::string& place) {
  Status outcome;
  const auto look = [&](Handle directory, const Identity&) {
    if (is_of_an_array(storage, directory))
      outcome = refuse(StatusCode::kInvalidArgument, candidate.path,
                       fmt::format("it lies in {}, a directory of an array; give a directory beside that",
                                   storage.describe(directory)));
    return outcome.is_ok();
  };
  if (candidate.directory.is_open() || look(candidate.parent.get(), candidate.identity))
    for_each_above(storage, place, candidate.identity, look);
  return outcome;
}

}  // namespace

Status find_new_directory(Storage& storage, NewDirectory& candidate) {
  if (candidate.path.empty()) return Status::error(StatusCode::kInvalidArgument, "a directory's name is empty");
  Result<Handle> opened = storage.open_directory(candidate.path);
  std::string place = candidate.path;
  if (opened.is_ok()) {
    candidate.directory = ScopedHandle(storage, *opened);
  } else if (opened.status().code() == StatusCode::kNotFound) {
    split_path(candidate.path, &place, &candidate.name);
    opened = storage.open_directory(place);
    if (opened.status().code() == StatusCode::kNotFound || candidate.name == "." || candidate.name == "..")
      return refuse(
          StatusCode::kNotFound, candidate.path,
          fmt::format("neither it nor {} exists; is the drive mounted? Mount it, or make {} first", place, place));
    if (!opened.is_ok()) return refuse_failed(candidate.path, opened.status());
    candidate.parent = ScopedHandle(storage, *opened);
    if (storage.stat_at(*opened, candidate.name).is_ok())
      return refuse(StatusCode::kInvalidArgument, candidate.path, kLeadsNowhere);
  } else {
    return refuse_failed(candidate.path, opened.status());
  }
  FPFS_ASSIGN_OR_RETURN(candidate.identity, identity_of(storage, *opened));
  if (!candidate.may_lie_in_array) FPFS_RETURN_IF_ERROR(check_in_no_array(storage, candidate, place));
  candidate.ancestors = ancestors_of(storage, place, candidate.identity);
  if (!candidate.directory.is_open()) candidate.ancestors.push_back(candidate.identity);
  FPFS_ASSIGN_OR_RETURN(const struct statvfs space, storage.fstatvfs(*opened));
  if ((space.f_flag & ST_RDONLY) != 0)
    return refuse(StatusCode::kReadOnly, candidate.path, "its filesystem is mounted read-only");
  return Status::ok();
}

Status check_distinct(const std::vector<NewDirectory>& candidates) {
  for (const NewDirectory& a : candidates) {
    for (const NewDirectory& b : candidates) {
      if (&a < &b && a.identity == b.identity && a.name == b.name)
        return refuse(StatusCode::kInvalidArgument, b.path,
                      fmt::format("it is the same directory as {}; give each directory once", a.path));
      if (a.directory.is_open() && std::find(b.ancestors.begin(), b.ancestors.end(), a.identity) != b.ancestors.end())
        return refuse(StatusCode::kInvalidArgument, b.path,
                      fmt::format("it lies inside {}; the directories of an array may not contain each other", a.path));
    }
  }
  return Status::ok();
}

Status check_content(Storage& storage, NewDirectory& candidate, bool force) {
  if (!candidate.directory.is_open()) return Status::ok();
  const Handle directory = candidate.directory.get();
  Result<DirectoryFindings> findings = examine_directory(storage, directory);
  if (!findings.is_ok()) return refuse_failed(candidate.path, findings.status());
  candidate.findings = *std::move(findings);
  if (!candidate.findings.blank && !force) return describe_refusal(storage, candidate);
  if (!candidate.findings.foreign_entry.empty()) return describe_refusal(storage, candidate);
  if (candidate.findings.has_superblock || candidate.findings.has_former) {
    FPFS_ASSIGN_OR_RETURN(candidate.lock, lock_member(storage, directory, candidate.path, LockMode::kExclusive, false));
  }
  return Status::ok();
}

Status make_and_lock(Storage& storage, NewDirectory& candidate, bool force) {
  if (candidate.parent.is_open()) {
    const Handle parent = candidate.parent.get();
    FPFS_RETURN_IF_ERROR(refuse_failed(candidate.path, storage.make_directory(parent, candidate.name, 0700)));
    FPFS_RETURN_IF_ERROR(storage.fsync(parent).with_context(candidate.path));
    FPFS_ASSIGN_OR_RETURN(const Handle made, storage.open_at(parent, candidate.name, O_RDONLY | O_DIRECTORY));
    candidate.directory = ScopedHandle(storage, made);
  }
  const Handle directory = candidate.directory.get();
  if (!candidate.lock.is_open()) {
    FPFS_ASSIGN_OR_RETURN(candidate.lock, lock_member(storage, directory, candidate.path, LockMode::kExclusive, true));
  }
  // Someone may have formatted it between our look and our lock.
  FPFS_ASSIGN_OR_RETURN(const DirectoryFindings findings, examine_directory(storage, directory));
  if ((!force && !findings.blank) || findings.has_superblock != candidate.findings.has_superblock)
    return refuse(StatusCode::kBusy, candidate.path, "another process has changed it meanwhile; look and try again");
  return Status::ok();
}

Status lay_out(Storage& storage, const NewDirectory& candidate) {
  const Handle directory = candidate.directory.get();
  const auto make = [&](Handle parent, const std::string& name, mode_t mode) -> Result<ScopedHandle> {
    const Status made = storage.make_directory(parent, name, mode);
    // An interrupted format left it, empty.
    if (!made.is_ok() && made.code() != StatusCode::kExists) return made;
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(parent, name, O_RDONLY | O_DIRECTORY));
    ScopedHandle scoped(storage, handle);
    FPFS_RETURN_IF_ERROR(storage.chmod(handle, mode));  // whatever the umask
    return scoped;
  };
  // Owners, modes and xattrs of the namespace are the users' own; that nobody gets past the mount to the data below is
  // this mode's work.
  FPFS_RETURN_IF_ERROR(storage.chmod(directory, 0700));
  if (candidate.member_index != kMetadataOnlyMember) {
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle objects, make(directory, kObjectsName, 0700));
    for (unsigned i = 0; i < kObjectDirectories; ++i) {
      FPFS_ASSIGN_OR_RETURN(const ScopedHandle made, make(objects.get(), object_directory_name(i), 0700));
    }
    FPFS_RETURN_IF_ERROR(storage.fsync(objects.get()));
  }
  if (candidate.has_tree) {
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle tree, make(directory, kTreeName, 0755));
    FPFS_RETURN_IF_ERROR(storage.fsync(tree.get()));
  }
  return storage.fsync(directory);
}

}  // namespace fpfs
