#include "engine/check/members.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
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
  Superblock superblock;
  Status failure;
};

Examined examine(Storage& storage, const std::string& path) {
  using Kind = Examined::Kind;
  Examined examined;
  examined.path = path;
  const Result<Handle> opened = storage.open_directory(path);
  examined.failure = opened.status();
  if (!opened.is_ok()) {
    if (opened.status().code() == StatusCode::kNotFound) examined.kind = Kind::kAbsent;
    return examined;
  }
  const ScopedHandle directory(storage, *opened);
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, *opened);
  const Result<Superblock> superblock =
      bytes.is_ok() ? decode_superblock(*bytes, false) : Result<Superblock>(bytes.status());
  examined.failure = superblock.status();
  if (superblock.is_ok()) {
    examined.kind = Kind::kMember;
    examined.superblock = *superblock;
  } else if (superblock.status().code() == StatusCode::kNotFound) {
    const Result<DirectoryFindings> content = examine_directory(storage, *opened);
    const bool has_objects = storage.stat_at(*opened, kObjectsName).is_ok();
    examined.kind = content.is_ok() && content->blank && !has_objects ? Kind::kAbsent : Kind::kDamaged;
  } else if (superblock.status().code() == StatusCode::kCorruption) {
    examined.kind = Kind::kDamaged;
  }
  return examined;
}

class Judge {
 public:
  Judge(std::vector<Examined> all, const Status& failure) : all_(std::move(all)), failure_(failure) {}
  Result<MemberFindings> run();

 private:
  using Kind = Examined::Kind;
  void choose_array();
  void judge_members();
  void judge_damaged();
  void judge_missing();
  CheckError& report(const char* kind, int member, std::string detail);
  std::vector<const Examined*> of_kind(Kind kind) const;

  const std::vector<Examined> all_;
  const Status& failure_;
  const Superblock* array_ = nullptr;  // of a directory of the array in question
  std::map<uint16_t, const Examined*> members_;
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
                          return e->failure.code() == StatusCode::kCorruption;
                        });
  if (any_unknown || !is_array) return failure_;
  judge_members();
  judge_damaged();
  judge_missing();
  if (found_.errors.empty() && failure_.code() == StatusCode::kCorruption) report("superblock", -1, failure_.message());
  if (found_.errors.empty()) return failure_;
  found_.is_readable_degraded = std::all_of(found_.errors.begin(), found_.errors.end(),
                                            [](const CheckError& error) { return error.kind == "missing-member"; });
  return std::move(found_);
}

// The array that most directories belong to; among equals that of the first directory.
void Judge::choose_array() {
  size_t most = 0;
  for (const Examined& candidate : all_) {
    if (candidate.kind != Kind::kMember) continue;
    const auto votes = static_cast<size_t>(std::count_if(all_.begin(), all_.end(), [&](const Examined& other) {
      return other.kind == Kind::kMember && other.superblock.array_id == candidate.superblock.array_id;
    }));
    if (votes <= most) continue;
    most = votes;
    array_ = &candidate.superblock;
  }
}

void Judge::judge_members() {
  for (const Examined& examined : all_) {
    if (examined.kind != Kind::kMember) continue;
    const Superblock& superblock = examined.superblock;
    if (superblock.array_id != array_->array_id) {
      report("foreign-member", -1,
             fmt::format("{}: it is {} of another array, {}; the others belong to {}", examined.path,
                         describe_member(superblock.member_index), to_string(superblock.array_id),
                         to_string(array_->array_id)));
      continue;
    }
    const auto [known, is_new] = members_.emplace(superblock.member_index, &examined);
    if (is_new) {
      found_.present.push_back(examined.path);
      continue;
    }
    const bool is_copy = known->second->superblock.member_id == superblock.member_id;
    report("duplicate-member",
           superblock.member_index == kMetadataOnlyMember ? -1 : static_cast<int>(superblock.member_index),
           fmt::format("{}: it is {} as {} is already{}; give only the one in use", examined.path,
                       describe_member(superblock.member_index), known->second->path,
                       is_copy ? ", so one is a copy of the other" : ""));
  }
  for (uint16_t index = 0; array_ != nullptr && index < array_->member_count; ++index)
    if (members_.count(index) == 0) missing_.push_back(index);
}

void Judge::judge_damaged() {
  const std::vector<const Examined*> damaged = of_kind(Kind::kDamaged);
  // When one member is missing and one directory is damaged, it is that one.
  const bool is_known = damaged.size() == 1 && missing_.size() == 1;
  for (const Examined* examined : damaged)
    report("superblock", is_known ? missing_[0] : -1,
           examined->path + ": " +
               (examined->failure.code() == StatusCode::kNotFound ? "no superblock" : examined->failure.message()));
  if (is_known) missing_.clear();
}

void Judge::judge_missing() {
  // With a damaged, foreign or doubled directory among them, which member is missing is for that to say.
  if (!found_.errors.empty()) return;
  std::string hint;
  for (const Examined* examined : of_kind(Kind::kAbsent))
    hint += fmt::format("; {} holds nothing, is its drive mounted?", examined->path);
  for (const int member : missing_)
    report(
        "missing-member", member,
        fmt::format("none of the directories is member {} of array {}{}", member, to_string(array_->array_id), hint));
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
                                       const Status& failure) {
  std::vector<Examined> all;
  all.reserve(directories.size());
  for (const std::string& path : directories) all.push_back(examine(storage, path));
  return Judge(std::move(all), failure).run();
}

}  // namespace fpfs
