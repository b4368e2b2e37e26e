#include "engine/check/superblocks.h"

#include <fcntl.h>

#include <algorithm>
#include <optional>

#include "engine/array/member_directory.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

struct Examined {
  bool is_directory = false;
  bool is_damaged = false;  // no superblock, or not a valid one
  Superblock superblock;
  Status failure;
};

Examined examine(Storage& storage, const std::string& path) {
  Examined examined;
  const Result<Handle> opened = storage.open_directory(path);
  if (!opened.is_ok()) return examined;
  examined.is_directory = true;
  const ScopedHandle directory(storage, *opened);
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, *opened);
  const Result<Superblock> superblock =
      bytes.is_ok() ? decode_superblock(*bytes, false) : Result<Superblock>(bytes.status());
  if (superblock.is_ok()) {
    examined.superblock = *superblock;
    return examined;
  }
  examined.failure = superblock.status();
  examined.is_damaged =
      examined.failure.code() == StatusCode::kCorruption || examined.failure.code() == StatusCode::kNotFound;
  return examined;
}

// The only member that no other directory claims to be; -1 when there are several.
int missing_member(const std::vector<Examined>& all) {
  std::optional<uint16_t> count;
  std::vector<bool> present(kMemberCountMax);
  for (const Examined& examined : all) {
    if (!examined.is_directory || !examined.failure.is_ok()) continue;
    count = examined.superblock.member_count;
    if (examined.superblock.member_index < kMemberCountMax) present[examined.superblock.member_index] = true;
  }
  if (!count || std::count(present.begin(), present.begin() + *count, false) != 1) return -1;
  return static_cast<int>(std::find(present.begin(), present.end(), false) - present.begin());
}

}  // namespace

Result<CheckReport> report_superblocks(Storage& storage, const std::vector<std::string>& directories,
                                       const Status& failure) {
  std::vector<Examined> all;
  all.reserve(directories.size());
  for (const std::string& path : directories) all.push_back(examine(storage, path));
  const auto damaged = std::count_if(all.begin(), all.end(), [](const Examined& e) { return e.is_damaged; });
  const bool is_whole_set = std::all_of(all.begin(), all.end(), [](const Examined& e) { return e.is_directory; });
  // Directories without any superblock are a mistake of the caller, not a damaged array.
  const bool is_array = std::any_of(all.begin(), all.end(), [](const Examined& e) {
    return e.failure.is_ok() || e.failure.code() == StatusCode::kCorruption;
  });
  if (!is_whole_set || !is_array || (damaged == 0 && failure.code() != StatusCode::kCorruption)) return failure;

  CheckReport report;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_damaged) continue;
    CheckError& error = report.errors.emplace_back();
    error.kind = "superblock";
    error.member = damaged == 1 ? missing_member(all) : -1;
    error.detail = directories[i] + ": " +
                   (all[i].failure.code() == StatusCode::kNotFound ? "no superblock" : all[i].failure.message());
  }
  if (damaged == 0) {
    CheckError& error = report.errors.emplace_back();
    error.kind = "superblock";
    error.detail = failure.message();
  }
  return report;
}

}  // namespace fpfs
