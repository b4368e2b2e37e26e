// Formatting. First everything is checked on every directory and nothing is changed; then every directory is locked;
// then superblocks of a former array go, durably, on all directories; then its content; then the new array is laid out,
// with its first mount records and the copies of the superblocks; the new superblocks come last. A crash at any point
// leaves directories that no array opens, and that can be formatted again: without force when nothing of value was in
// them, with force while a former array's removal is unfinished.
#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "engine/array/former.h"
#include "engine/array/member_directory.h"
#include "engine/array/mount_records.h"
#include "engine/array/superblock_copies.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

struct Candidate {
  std::string path;
  MemberIndex member_index;  // or kMetadataOnlyMember
  bool has_tree = false;
  ScopedHandle directory;  // not open: the directory is yet to be made, as `name` in `parent`
  ScopedHandle parent;
  std::string name;
  Identity identity;  // of the directory, or of the parent
  std::vector<Identity> ancestors;
  DirectoryFindings findings;
  ScopedHandle lock;
  Uuid member_id{};
};

// "/a/b/" is name "b" in "/a"; "b" is in ".".
void split_path(const std::string& path, std::string* parent, std::string* name) {
  const size_t end = path.find_last_not_of('/');
  const std::string trimmed = end == std::string::npos ? "/" : path.substr(0, end + 1);
  const size_t slash = trimmed.rfind('/');
  *name = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
  *parent = slash == std::string::npos ? "." : slash == 0 ? "/" : trimmed.substr(0, slash);
}

class Formatter {
 public:
  Formatter(Environment& environment, const FormatOptions& options)
      : environment_(environment), storage_(environment.storage()), options_(options) {}

  Status run(const std::vector<std::string>& directories) {
    FPFS_RETURN_IF_ERROR(check_options(directories));
    FPFS_RETURN_IF_ERROR(find(directories));
    FPFS_RETURN_IF_ERROR(check_distinct());
    for (Candidate& candidate : candidates_) FPFS_RETURN_IF_ERROR(check_content(candidate));
    // Nothing was changed so far.
    for (Candidate& candidate : candidates_) FPFS_RETURN_IF_ERROR(make_and_lock(candidate));
    FPFS_RETURN_IF_ERROR(clear());
    for (Candidate& candidate : candidates_) FPFS_RETURN_IF_ERROR(lay_out(candidate).with_context(candidate.path));
    return write_superblocks();
  }

 private:
  Status check_options(const std::vector<std::string>& directories) const;
  Status find(const std::vector<std::string>& directories);
  Status find_one(Candidate& candidate);
  Status check_distinct() const;
  Status check_content(Candidate& candidate);
  Status describe_refusal(const Candidate& candidate) const;
  Status make_and_lock(Candidate& candidate);
  Status clear();
  Status lay_out(const Candidate& candidate);
  Status write_superblocks();
  Uuid random_uuid();

  Environment& environment_;
  Storage& storage_;
  const FormatOptions& options_;
  std::vector<Candidate> candidates_;  // members in order, then the metadata directory if there is one
  uint16_t member_count_ = 0;
};

Status Formatter::check_options(const std::vector<std::string>& directories) const {
  if (directories.empty() || directories.size() > kMemberCountMax)
    return Status::error(StatusCode::kInvalidArgument, fmt::format("{} directories were given; an array has 1 to {}",
                                                                   directories.size(), kMemberCountMax));
  const uint32_t chunk_size = options_.chunk_size;
  if (chunk_size < kChunkSizeMin || chunk_size > kChunkSizeMax || (chunk_size & (chunk_size - 1)) != 0)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("the chunk size {} is no power of two from {} to {}", chunk_size,
                                     format_size(kChunkSizeMin), format_size(kChunkSizeMax)));
  if (!is_valid_label(options_.label))
    return Status::error(
        StatusCode::kInvalidArgument,
        fmt::format("the label '{}' is not UTF-8 text of at most {} bytes", options_.label, kLabelSizeMax));
  return Status::ok();
}

Status Formatter::find(const std::vector<std::string>& directories) {
  member_count_ = static_cast<uint16_t>(directories.size());
  const bool separate_tree = !options_.metadata_directory.empty();
  for (const MemberIndex i : range_to(MemberIndex(member_count_))) {
    Candidate& candidate = candidates_.emplace_back();
    candidate.path = directories[i.value()];
    candidate.member_index = i;
    candidate.has_tree = !separate_tree && i == MemberIndex(0);
  }
  if (separate_tree) {
    Candidate& candidate = candidates_.emplace_back();
    candidate.path = options_.metadata_directory;
    candidate.member_index = kMetadataOnlyMember;
    candidate.has_tree = true;
    if (std::filesystem::absolute(candidate.path).string().size() > kMetadataPathSizeMax)
      return refuse(StatusCode::kInvalidArgument, candidate.path,
                    fmt::format("a metadata directory's path has at most {} bytes", kMetadataPathSizeMax));
  }
  for (Candidate& candidate : candidates_) FPFS_RETURN_IF_ERROR(find_one(candidate));
  return Status::ok();
}

Status Formatter::find_one(Candidate& candidate) {
  if (candidate.path.empty()) return Status::error(StatusCode::kInvalidArgument, "a directory's name is empty");
  Result<Handle> opened = storage_.open_directory(candidate.path);
  std::string place = candidate.path;
  if (opened.is_ok()) {
    candidate.directory = ScopedHandle(storage_, *opened);
  } else if (opened.status().code() == StatusCode::kNotFound) {
    split_path(candidate.path, &place, &candidate.name);
    opened = storage_.open_directory(place);
    if (opened.status().code() == StatusCode::kNotFound || candidate.name == "." || candidate.name == "..")
      return refuse(
          StatusCode::kNotFound, candidate.path,
          fmt::format("neither it nor {} exists; is the drive mounted? Mount it, or make {} first", place, place));
    if (!opened.is_ok()) return opened.status().with_context(candidate.path);
    candidate.parent = ScopedHandle(storage_, *opened);
    if (storage_.stat_at(*opened, candidate.name).is_ok())
      return refuse(StatusCode::kInvalidArgument, candidate.path,
                    "it is a symbolic link that leads nowhere; is the drive behind it mounted?");
  } else {
    return opened.status().with_context(candidate.path);
  }
  FPFS_ASSIGN_OR_RETURN(candidate.identity, identity_of(storage_, *opened));
  candidate.ancestors = ancestors_of(storage_, place, candidate.identity);
  if (!candidate.directory.is_open()) candidate.ancestors.push_back(candidate.identity);
  FPFS_ASSIGN_OR_RETURN(const struct statvfs space, storage_.fstatvfs(*opened));
  if ((space.f_flag & ST_RDONLY) != 0)
    return refuse(StatusCode::kReadOnly, candidate.path, "its filesystem is mounted read-only");
  return Status::ok();
}

Status Formatter::check_distinct() const {
  for (const Candidate& a : candidates_) {
    for (const Candidate& b : candidates_) {
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

Status Formatter::check_content(Candidate& candidate) {
  if (!candidate.directory.is_open()) return Status::ok();
  const Handle directory = candidate.directory.get();
  Result<DirectoryFindings> findings = examine_directory(storage_, directory);
  if (!findings.is_ok()) return findings.status().with_context(candidate.path);
  candidate.findings = *std::move(findings);
  if (!candidate.findings.blank && !options_.force) return describe_refusal(candidate);
  if (!candidate.findings.foreign_entry.empty()) return describe_refusal(candidate);
  if (candidate.findings.has_superblock || candidate.findings.has_former) {
    FPFS_ASSIGN_OR_RETURN(candidate.lock,
                          lock_member(storage_, directory, candidate.path, LockMode::kExclusive, false));
  }
  return Status::ok();
}

// Why a directory that is not blank is not formatted.
Status Formatter::describe_refusal(const Candidate& candidate) const {
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
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage_, candidate.directory.get());
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

Status Formatter::make_and_lock(Candidate& candidate) {
  if (candidate.parent.is_open()) {
    const Handle parent = candidate.parent.get();
    FPFS_RETURN_IF_ERROR(storage_.make_directory(parent, candidate.name, 0700).with_context(candidate.path));
    FPFS_RETURN_IF_ERROR(storage_.fsync(parent).with_context(candidate.path));
    FPFS_ASSIGN_OR_RETURN(const Handle made, storage_.open_at(parent, candidate.name, O_RDONLY | O_DIRECTORY));
    candidate.directory = ScopedHandle(storage_, made);
  }
  const Handle directory = candidate.directory.get();
  if (!candidate.lock.is_open()) {
    FPFS_ASSIGN_OR_RETURN(candidate.lock, lock_member(storage_, directory, candidate.path, LockMode::kExclusive, true));
  }
  // Someone may have formatted it between our look and our lock.
  FPFS_ASSIGN_OR_RETURN(const DirectoryFindings findings, examine_directory(storage_, directory));
  if ((!options_.force && !findings.blank) || findings.has_superblock != candidate.findings.has_superblock)
    return refuse(StatusCode::kBusy, candidate.path, "another process has changed it meanwhile; look and try again");
  return Status::ok();
}

Status Formatter::clear() {
  if (!options_.force) return Status::ok();
  const auto holds_former = [](const Candidate& candidate) {
    return candidate.findings.has_superblock || candidate.findings.has_former;
  };
  // All superblocks before any content: at no time does a part of the former array look whole.
  for (const Candidate& candidate : candidates_)
    if (holds_former(candidate))
      FPFS_RETURN_IF_ERROR(set_former_aside(storage_, candidate.directory.get()).with_context(candidate.path));
  for (const Candidate& candidate : candidates_)
    if (holds_former(candidate))
      FPFS_RETURN_IF_ERROR(remove_former(storage_, candidate.directory.get()).with_context(candidate.path));
  return Status::ok();
}

Status Formatter::lay_out(const Candidate& candidate) {
  const Handle directory = candidate.directory.get();
  const auto make = [&](Handle parent, const std::string& name, mode_t mode) -> Result<ScopedHandle> {
    const Status made = storage_.make_directory(parent, name, mode);
    // An interrupted format left it, empty.
    if (!made.is_ok() && made.code() != StatusCode::kExists) return made;
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage_.open_at(parent, name, O_RDONLY | O_DIRECTORY));
    ScopedHandle scoped(storage_, handle);
    FPFS_RETURN_IF_ERROR(storage_.chmod(handle, mode));  // whatever the umask
    return scoped;
  };
  // Owners, modes and xattrs of the namespace are the users' own; that nobody gets past the mount to the data below is
  // this mode's work.
  FPFS_RETURN_IF_ERROR(storage_.chmod(directory, 0700));
  if (candidate.member_index != kMetadataOnlyMember) {
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle objects, make(directory, kObjectsName, 0700));
    for (unsigned i = 0; i < 256; ++i) {
      FPFS_ASSIGN_OR_RETURN(const ScopedHandle made, make(objects.get(), object_directory_name(i), 0700));
    }
    FPFS_RETURN_IF_ERROR(storage_.fsync(objects.get()));
  }
  if (candidate.has_tree) {
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle tree, make(directory, kTreeName, 0755));
    FPFS_RETURN_IF_ERROR(storage_.fsync(tree.get()));
  }
  return storage_.fsync(directory);
}

Status Formatter::write_superblocks() {
  Superblock superblock;
  superblock.read_only_compatible = kFeatureMountRecords;
  superblock.array_id = random_uuid();
  superblock.member_count = member_count_;
  superblock.chunk_size = options_.chunk_size;
  superblock.created_seconds = environment_.now().tv_sec;
  superblock.label = options_.label;
  if (candidates_.back().member_index == kMetadataOnlyMember) {
    superblock.metadata_member = kMetadataOnlyMember;
    superblock.metadata_path = std::filesystem::absolute(candidates_.back().path).string();
  }
  std::vector<Superblock> all;
  for (const Candidate& candidate : candidates_) {
    superblock.member_index = candidate.member_index;
    superblock.member_id = random_uuid();
    FPFS_RETURN_IF_ERROR(validate_superblock(superblock).with_context(candidate.path));
    all.push_back(superblock);
  }
  const MountStamp first{1, environment_.random_u64(), 0, superblock.created_seconds};
  for (size_t i = 0; i < all.size(); ++i) {
    ArrayDirectory directory{candidates_[i].path, all[i], candidates_[i].directory.get(), kNoHandle, {}, {}};
    directory.record = {all[i].array_id, all[i].member_id, true, first, {}};
    FPFS_RETURN_IF_ERROR(write_mount_record(storage_, directory));
    FPFS_RETURN_IF_ERROR(write_superblock_copies(storage_, directory.directory, all).with_context(directory.path));
  }
  for (size_t i = 0; i < all.size(); ++i)
    FPFS_RETURN_IF_ERROR(
        write_superblock(storage_, candidates_[i].directory.get(), all[i]).with_context(candidates_[i].path));
  return Status::ok();
}

Uuid Formatter::random_uuid() {
  const uint64_t first = environment_.random_u64();
  return make_uuid(first, environment_.random_u64());
}

}  // namespace

Status Array::format(Environment& environment, const std::vector<std::string>& directories,
                     const FormatOptions& options) {
  return Formatter(environment, options).run(directories);
}

Result<bool> Array::is_blank(Environment& environment, const std::vector<std::string>& directories) {
  Storage& storage = environment.storage();
  for (const std::string& path : directories) {
    const Result<Handle> opened = storage.open_directory(path);
    if (opened.status().code() == StatusCode::kNotFound) continue;
    if (!opened.is_ok()) return opened.status().with_context(path);
    const ScopedHandle directory(storage, *opened);
    const Result<DirectoryFindings> findings = examine_directory(storage, *opened);
    if (!findings.is_ok()) return findings.status().with_context(path);
    if (!findings->blank) return false;
  }
  return true;
}

}  // namespace fpfs
