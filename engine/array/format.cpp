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
#include "engine/array/new_directories.h"
#include "engine/array/superblock_copies.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

class Formatter {
 public:
  Formatter(Environment& environment, const FormatOptions& options)
      : environment_(environment), storage_(environment.storage()), options_(options) {}

  Status run(const std::vector<std::string>& directories) {
    FPFS_RETURN_IF_ERROR(check_options(directories));
    FPFS_RETURN_IF_ERROR(find(directories));
    FPFS_RETURN_IF_ERROR(check_distinct(candidates_));
    for (NewDirectory& candidate : candidates_)
      FPFS_RETURN_IF_ERROR(check_content(storage_, candidate, options_.force));
    // Nothing was changed so far.
    for (NewDirectory& candidate : candidates_)
      FPFS_RETURN_IF_ERROR(make_and_lock(storage_, candidate, options_.force));
    FPFS_RETURN_IF_ERROR(clear());
    for (NewDirectory& candidate : candidates_)
      FPFS_RETURN_IF_ERROR(refuse_failed(candidate.path, lay_out(storage_, candidate)));
    return write_superblocks();
  }

 private:
  Status check_options(const std::vector<std::string>& directories) const;
  Status find(const std::vector<std::string>& directories);
  Status clear();
  Status write_superblocks();
  Uuid random_uuid();

  Environment& environment_;
  Storage& storage_;
  const FormatOptions& options_;
  std::vector<NewDirectory> candidates_;  // members in order, then the metadata directory if there is one
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
    NewDirectory& candidate = candidates_.emplace_back();
    candidate.path = directories[i.value()];
    candidate.member_index = i;
    candidate.has_tree = !separate_tree && i == MemberIndex(0);
  }
  if (separate_tree) {
    NewDirectory& candidate = candidates_.emplace_back();
    candidate.path = options_.metadata_directory;
    candidate.member_index = kMetadataOnlyMember;
    candidate.has_tree = true;
    if (std::filesystem::absolute(candidate.path).string().size() > kMetadataPathSizeMax)
      return refuse(StatusCode::kInvalidArgument, candidate.path,
                    fmt::format("a metadata directory's path has at most {} bytes", kMetadataPathSizeMax));
  }
  for (NewDirectory& candidate : candidates_) {
    candidate.may_lie_in_array = options_.may_lie_in_array;
    FPFS_RETURN_IF_ERROR(find_new_directory(storage_, candidate));
  }
  return Status::ok();
}

Status Formatter::clear() {
  if (!options_.force) return Status::ok();
  const auto holds_former = [](const NewDirectory& candidate) {
    return candidate.findings.has_superblock || candidate.findings.has_former;
  };
  // All superblocks before any content: at no time does a part of the former array look whole.
  for (const NewDirectory& candidate : candidates_)
    if (holds_former(candidate))
      FPFS_RETURN_IF_ERROR(set_former_aside(storage_, candidate.directory.get()).with_context(candidate.path));
  for (const NewDirectory& candidate : candidates_)
    if (holds_former(candidate))
      FPFS_RETURN_IF_ERROR(remove_former(storage_, candidate.directory.get()).with_context(candidate.path));
  return Status::ok();
}

Status Formatter::write_superblocks() {
  Superblock superblock;
  superblock.compatible = kFeatureTurnedRows;
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
  for (const NewDirectory& candidate : candidates_) {
    superblock.member_index = candidate.member_index;
    superblock.member_id = random_uuid();
    FPFS_RETURN_IF_ERROR(validate_superblock(superblock).with_context(candidate.path));
    all.push_back(superblock);
  }
  const MountStamp first{1, environment_.random_u64(), 0, superblock.created_seconds};
  for (size_t i = 0; i < all.size(); ++i) {
    ArrayDirectory directory;
    directory.path = candidates_[i].path;
    directory.superblock = all[i];
    directory.directory = candidates_[i].directory.get();
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
    if (!opened.is_ok()) return refuse_failed(path, opened.status());
    const ScopedHandle directory(storage, *opened);
    const Result<DirectoryFindings> findings = examine_directory(storage, *opened);
    if (!findings.is_ok()) return refuse_failed(path, findings.status());
    if (!findings->blank) return false;
  }
  return true;
}

}  // namespace fpfs
