#include "engine/check/object_directories.h"

#include <cerrno>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/ranges.h"

namespace fpfs {

namespace {

constexpr size_t kNamesTold = 8;

Status make_directories(Storage& storage, const Member& member, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    FPFS_RETURN_IF_ERROR(storage.make_directory(member.objects, name, 0700).with_context(member.path));
  return storage.fsync(member.objects);
}

std::string describe_missing(const Member& member, std::vector<std::string> names, bool made) {
  const size_t count = names.size();
  if (count > kNamesTold) {
    names.resize(kNamesTold);
    names.emplace_back("...");
  }
  const char* const them = one_or_many(count, "it", "them");
  const std::string what =
      fmt::format("{}/objects: {} of its {} directories {} missing ({}), with the objects that were there", member.path,
                  count, kObjectDirectories, one_or_many(count, "is", "are"), fmt::join(names, ", "));
  if (made) return fmt::format("{}; made anew, empty", what);
  return fmt::format(
      "{}: put {} back if somebody moved {}, or the drive's own fsck did, into its lost+found; -y makes {} anew, "
      "empty, "
      "and sets aside the files that had something there",
      what, them, them, them);
}

}  // namespace

// Behind such a thing the objects are still there: files are not set aside for that.
Status check_not_hidden(const Array& array) {
  for (const MemberIndex m : array.members()) {
    for (unsigned index = 0; index < kObjectDirectories && array.member(m).present; ++index) {
      const Status status = array.object_directory(m, FileId(index)).status();
      const int error = status.errno_value();
      if (error == EXDEV || error == ELOOP || error == ENOTDIR)
        return status.with_context("a directory of the array is hidden, so nothing was checked");
    }
  }
  return Status::ok();
}

Result<std::vector<CheckError>> find_missing_directories(Storage& storage, const Array& array, bool make) {
  std::vector<CheckError> errors;
  for (const MemberIndex m : array.members()) {
    if (!array.member(m).present) continue;
    std::vector<std::string> names;
    for (unsigned index = 0; index < kObjectDirectories; ++index)
      if (array.object_directory(m, FileId(index)).status().code() == StatusCode::kNotFound)
        names.push_back(object_directory_name(index));
    if (names.empty() || array.is_removed(m)) continue;
    if (make) FPFS_RETURN_IF_ERROR(make_directories(storage, array.member(m), names));
    CheckError& error = errors.emplace_back();
    error.member = m.value();
    error.kind = "missing-directory";
    error.detail = describe_missing(array.member(m), names, make);
    error.repaired = make;
  }
  return errors;
}

}  // namespace fpfs
