#include "engine/check/members.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/array/mount_records.h"
#include "engine/array/superblock_copies.h"
#include "engine/base/ranges.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

struct Examined {
  enum class Kind : uint8_t {
    kMember,   // of some array, or its metadata directory
    kAbsent,   // no directory, or one that holds nothing: a drive that is not mounted
    kDamaged,  // no superblock where a member's other parts are, or not a valid one
    kUnknown,  // cannot be told: `failure` says why
  };
  std::string path;
  Kind kind = Kind::kUnknown;
  Superblock superblock;  // kDamaged: the copy of it, if there is one
  bool has_copy = false;  // of kDamaged
  Status failure;
  std::vector<Superblock> copies;  // that this directory keeps
  std::shared_ptr<const ScopedHandle> directory;
  Identity identity;
  std::string lost_part;  // of kMember: "objects" or "tree", which it should have and has not
};

std::string find_lost_part(Storage& storage, Handle directory, const Superblock& superblock) {
  const auto lacks = [&](const char* name) {
    return storage.stat_at(directory, name).status().code() == StatusCode::kNotFound;
  };
  if (superblock.member_index == superblock.metadata_member && lacks(kTreeName)) return kTreeName;
  return superblock.member_index != kMetadataOnlyMember && lacks(kObjectsName) ? kObjectsName : "";
}

Examined examine(Storage& storage, const std::string& path) {
  using Kind = Examined::Kind;
  Examined examined;
  examined.path = path;
  const Result<Handle> opened = storage.open_directory(path);
  if (!opened.is_ok()) {
    examined.failure = refuse_failed(path, opened.status(), ": what the others hold is checked then");
    if (opened.status().code() == StatusCode::kNotFound) examined.kind = Kind::kAbsent;
    return examined;
  }
  examined.directory = std::make_shared<const ScopedHandle>(storage, *opened);
  examined.copies = read_superblock_copies(storage, *opened);
  if (const Result<Identity> identity = identity_of(storage, *opened); identity.is_ok()) examined.identity = *identity;
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, *opened);
  const Result<Superblock> superblock =
      bytes.is_ok() ? decode_superblock(*bytes, false) : Result<Superblock>(bytes.status());
  examined.failure =
      bytes.status().code() == StatusCode::kPermission ? refuse_failed(path, bytes.status()) : superblock.status();
  if (superblock.is_ok()) {
    examined.kind = Kind::kMember;
    examined.superblock = *superblock;
    examined.lost_part = find_lost_part(storage, *opened, *superblock);
  } else if (superblock.status().code() == StatusCode::kNotFound) {
    const Result<DirectoryFindings> content = examine_directory(storage, *opened);
    const bool has_parts =
        storage.stat_at(*opened, kObjectsName).is_ok() || storage.stat_at(*opened, kTreeName).is_ok();
    examined.kind = content.is_ok() && content->blank && !has_parts ? Kind::kAbsent : Kind::kDamaged;
  } else if (superblock.status().code() == StatusCode::kCorruption) {
    examined.kind = Kind::kDamaged;
  }
  return examined;
}

// The directory that holds the names only, when it is not among those given.
void add_metadata_directory(Storage& storage, std::vector<Examined>& all, std::string path) {
  for (const Examined& examined : all) {
    if (path.empty() && examined.kind == Examined::Kind::kMember) path = examined.superblock.metadata_path;
    for (const Superblock& copy : examined.copies)
      if (path.empty()) path = copy.metadata_path;
  }
  if (path.empty()) return;
  Examined metadata = examine(storage, path);
  const bool is_given = std::any_of(all.begin(), all.end(), [&](const Examined& other) {
    return metadata.directory != nullptr && other.directory != nullptr && other.identity == metadata.identity;
  });
  if (!is_given) all.push_back(std::move(metadata));
}

// Looks through all copies that any directory keeps for the superblocks that are lost.
void find_copies(Storage& storage, std::vector<Examined>& all) {
  std::vector<Superblock> copies;
  for (const Examined& examined : all) copies.insert(copies.end(), examined.copies.begin(), examined.copies.end());
  // A directory whose adding did not finish has copies of superblocks that the array has not got.
  for (const Examined& examined : all) {
    const Superblock& known = examined.superblock;
    if (examined.kind != Examined::Kind::kMember || known.member_index != known.metadata_member) continue;
    std::erase_if(copies, [&known](const Superblock& copy) {
      return copy.array_id == known.array_id && copy.membership > known.membership;
    });
  }
  for (Examined& examined : all) {
    if (examined.kind != Examined::Kind::kDamaged || examined.failure.code() == StatusCode::kUnsupported) continue;
    const Result<struct stat> entry = storage.stat_at(examined.directory->get(), kSuperblockName);
    if (entry.is_ok() && !S_ISREG(entry->st_mode)) continue;  // someone put something else there
    const std::optional<Superblock> copy = identify_by_copies(storage, examined.directory->get(), copies);
    examined.has_copy = copy.has_value();
    if (copy) examined.superblock = *copy;
  }
}

class Judge {
 public:
  Judge(Storage& storage, std::vector<Examined> all, const Status& failure)
      : storage_(storage), all_(std::move(all)), failure_(failure) {}
  Result<MemberFindings> run();

 private:
  using Kind = Examined::Kind;
  void choose_array();
  void judge_members();
  void report_lost_part(const Examined& examined);
  void judge_age();
  void judge_damaged();
  void judge_missing();
  bool is_removed(MemberIndex member) const {
    return member != kMetadataOnlyMember && array_->removed.test(member.value());
  }
  CheckError& report(const char* kind, int member, std::string detail);
  std::vector<const Examined*> of_kind(Kind kind) const;

  Storage& storage_;
  const std::vector<Examined> all_;
  const Status& failure_;
  const Superblock* array_ = nullptr;  // of a directory of the array in question
  std::map<MemberIndex, const Examined*> members_;
  std::vector<int> missing_;  // members that no directory claims to be
  MemberFindings found_;
};

// Only what the directories say of themselves can be reported: everything else (no permission, no array in sight, the
// same directory twice) is a failure to check.
Result<MemberFindings> Judge::run() {
  choose_array();
  const std::vector<const Examined*> damaged = of_kind(Kind::kDamaged);
  const bool any_unknown = !of_kind(Kind::kUnknown).empty();
  const bool is_array = array_ != nullptr || std::any_of(damaged.begin(), damaged.end(), [](const Examined* e) {
                          return e->has_copy || e->failure.code() == StatusCode::kCorruption;
                        });
  if (any_unknown || !is_array) return failure_;
  judge_members();
  judge_damaged();
  judge_missing();
  judge_age();
  if (found_.errors.empty() && failure_.code() == StatusCode::kCorruption) report("superblock", -1, failure_.message());
  if (found_.errors.empty()) return failure_;
  found_.is_readable_degraded = std::all_of(found_.errors.begin(), found_.errors.end(), [](const CheckError& error) {
    return error.kind == "missing-member" || error.kind == "older-member" || error.kind == "mount-record" ||
           error.kind == "missing-directory";
  });
  found_.only_records_are_lost = std::all_of(found_.errors.begin(), found_.errors.end(),
                                             [](const CheckError& error) { return error.kind == "mount-record"; });
  return std::move(found_);
}

// The array that most directories belong to; among equals that of the first directory.
void Judge::choose_array() {
  size_t most = 0;
  const auto is_known = [](const Examined& examined) { return examined.kind == Kind::kMember || examined.has_copy; };
  for (const Examined& candidate : all_) {
    if (!is_known(candidate)) continue;
    const auto votes = static_cast<size_t>(std::count_if(all_.begin(), all_.end(), [&](const Examined& other) {
      return is_known(other) && other.superblock.array_id == candidate.superblock.array_id;
    }));
    if (votes <= most) continue;
    most = votes;
    array_ = &candidate.superblock;
  }
  if (array_ == nullptr) return;
  // Which members it has, the directory with the names knows; without that one, whoever knows of the last change.
  const auto holds_names = [](const Superblock& superblock) {
    return superblock.member_index == superblock.metadata_member;
  };
  for (const Examined& candidate : all_) {
    const Superblock& superblock = candidate.superblock;
    if (!is_known(candidate) || superblock.array_id != array_->array_id) continue;
    const bool knows_better = superblock.membership > array_->membership;
    if (holds_names(superblock) || (!holds_names(*array_) && knows_better)) array_ = &superblock;
  }
}

void Judge::judge_members() {
  for (const Examined& examined : all_) {
    if (examined.kind != Kind::kMember) continue;
    const Superblock& superblock = examined.superblock;
    if (superblock.array_id != array_->array_id) {
      report(
          "foreign-member", -1,
          fmt::format("{}: it is {} of another array, {}; the others belong to {}: give the directories of one array",
                      examined.path, describe_member(superblock.member_index), to_string(superblock.array_id),
                      to_string(array_->array_id)));
      continue;
    }
    const bool has_no_place = superblock.member_index != kMetadataOnlyMember && superblock.membership > 0 &&
                              superblock.member_index.value() >= array_->member_count;
    // Adding it did not finish: it is none of its members.
    if (superblock.membership > array_->membership || has_no_place) continue;
    if (is_removed(superblock.member_index)) continue;
    const auto [known, is_new] = members_.emplace(superblock.member_index, &examined);
    if (is_new && examined.lost_part.empty()) found_.present.push_back(examined.path);
    if (is_new && !examined.lost_part.empty()) report_lost_part(examined);
    if (is_new) continue;
    const int member =
        superblock.member_index == kMetadataOnlyMember ? -1 : static_cast<int>(superblock.member_index.value());
    if (known->second->path == examined.path) {
      report("duplicate-member", member, fmt::format("{}: it is given twice; give each directory once", examined.path));
      continue;
    }
    const bool is_copy = known->second->superblock.member_id == superblock.member_id;
    report("duplicate-member", member,
           fmt::format("{}: it is {} as {} is already{}; give only the one in use", examined.path,
                       describe_member(superblock.member_index), known->second->path,
                       is_copy ? ", so one is a copy of the other" : ""));
  }
  // What a lost superblock said, where that is known and nobody else claims it.
  for (const Examined& examined : all_)
    if (examined.has_copy && examined.superblock.array_id == array_->array_id &&
        !is_removed(examined.superblock.member_index))
      members_.emplace(examined.superblock.member_index, &examined);
  for (uint16_t index = 0; array_ != nullptr && index < array_->member_count; ++index)
    if (!members_.contains(MemberIndex(index)) && !is_removed(MemberIndex(index))) missing_.push_back(index);
}

void Judge::report_lost_part(const Examined& examined) {
  const MemberIndex index = examined.superblock.member_index;
  const bool is_made_again = examined.lost_part == kObjectsName;
  report("missing-directory", index == kMetadataOnlyMember ? -1 : static_cast<int>(index.value()),
         fmt::format("{}: {}: its '{}' is missing, with all that was there. {}", examined.path, describe_member(index),
                     examined.lost_part, put_back(examined.lost_part)));
  if (is_made_again) found_.restorable.push_back({examined.path, examined.superblock, found_.errors.size() - 1, true});
}

void Judge::judge_age() {
  std::vector<ArrayDirectory> directories;
  for (const auto& [index, examined] : members_) {
    ArrayDirectory& directory = directories.emplace_back();
    directory.path = examined->path;
    directory.superblock = examined->superblock;
    directory.directory = examined->directory->get();
  }
  read_mount_records(storage_, directories, false);
  for (const OutdatedDirectory& outdated : find_outdated(directories)) {
    const ArrayDirectory& directory = directories[outdated.index];
    const MemberIndex index = directory.superblock.member_index;
    report(outdated.kind, index == kMetadataOnlyMember ? -1 : static_cast<int>(index.value()),
           fmt::format("{}: {}: {}", directory.path, describe_member(index), outdated.sentence));
  }
}

void Judge::judge_damaged() {
  const std::vector<const Examined*> damaged = of_kind(Kind::kDamaged);
  // When one member is missing and one directory is damaged, it is that one.
  const auto unknown = std::count_if(damaged.begin(), damaged.end(), [](const Examined* e) { return !e->has_copy; });
  const bool is_known = unknown == 1 && missing_.size() == 1;
  for (const Examined* examined : damaged) {
    const std::string what =
        fmt::format("{}: {}", examined->path,
                    examined->failure.code() == StatusCode::kNotFound ? "no superblock" : examined->failure.message());
    const auto known = members_.find(examined->superblock.member_index);
    const bool is_restorable = examined->has_copy && known != members_.end() && known->second == examined;
    if (!is_restorable) {
      report("superblock", is_known && !examined->has_copy ? missing_[0] : -1,
             what + "; no copy of it is left that this directory can be told by");
      continue;
    }
    const MemberIndex index = examined->superblock.member_index;
    report("superblock", index == kMetadataOnlyMember ? -1 : static_cast<int>(index.value()),
           fmt::format("{}; it is {}, -y makes the superblock again from a copy", what, describe_member(index)));
    found_.restorable.push_back({examined->path, examined->superblock, found_.errors.size() - 1, false});
  }
  if (is_known) missing_.clear();
}

void Judge::judge_missing() {
  // With a damaged, foreign or doubled directory among them, which member is missing is for that to say.
  if (!found_.errors.empty()) return;
  std::string hint;
  for (const Examined* examined : of_kind(Kind::kAbsent))
    hint += fmt::format("; {} {}, is its drive mounted?", examined->path,
                        examined->directory == nullptr ? "is not there" : "holds nothing");
  const bool are_names_missing = std::any_of(missing_.begin(), missing_.end(), [this](int member) {
    return MemberIndex(static_cast<uint16_t>(member)) == array_->metadata_member;
  });
  for (const int member : missing_)
    report(
        "missing-member", member,
        fmt::format("none of the directories given is it; array {} has {}: give the directories of all, as "
                    "A:B:C{}{}",
                    to_string(array_->array_id), format_count(array_->member_count - array_->removed.count(), "member"),
                    are_names_missing ? fmt::format("; member {} has the names of all its files: without it none can "
                                                    "be found",
                                                    array_->metadata_member)
                                      : "",
                    hint));
}

CheckError& Judge::report(const char* kind, int member, std::string detail) {
  CheckError& error = found_.errors.emplace_back();
  error.kind = kind;
  error.member = member;
  error.detail = std::move(detail);
  return error;
}

std::vector<const Examined*> Judge::of_kind(Kind kind) const {
  std::vector<const Examined*> found;
  for (const Examined& examined : all_)
    if (examined.kind == kind) found.push_back(&examined);
  return found;
}

}  // namespace

Result<MemberFindings> examine_members(Storage& storage, const std::vector<std::string>& directories,
                                       const std::string& metadata_directory, const Status& failure) {
  std::vector<Examined> all;
  all.reserve(directories.size());
  for (const std::string& path : directories) all.push_back(examine(storage, path));
  add_metadata_directory(storage, all, metadata_directory);
  find_copies(storage, all);
  return Judge(storage, std::move(all), failure).run();
}

Status restore_members(Storage& storage, MemberFindings& findings) {
  for (const MemberFindings::Restorable& lost : findings.restorable) {
    FPFS_ASSIGN_OR_RETURN(const Handle opened, storage.open_directory(lost.path));
    const ScopedHandle directory(storage, opened);
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle lock, lock_member(storage, opened, lost.path, LockMode::kExclusive, true));
    CheckError& error = findings.errors[lost.error];
    // What is to be in it is found missing by the next look, which makes that, and says so.
    if (lost.only_objects) {
      FPFS_RETURN_IF_ERROR(storage.make_directory(opened, kObjectsName, 0700).with_context(lost.path));
      FPFS_RETURN_IF_ERROR(storage.fsync(opened).with_context(lost.path));
      continue;
    }
    // A format may have run since it was looked at.
    const std::optional<Superblock> copy = identify_by_copies(storage, opened, {lost.superblock});
    if (!copy)
      return Status::error(StatusCode::kBusy, lost.path + ": another process has changed it meanwhile; try again");
    FPFS_RETURN_IF_ERROR(write_superblock(storage, opened, lost.superblock).with_context(lost.path));
    error.repaired = true;
  }
  return Status::ok();
}

}  // namespace fpfs
