#include "tools/fpfs/mounted.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "tools/fpfs/status_view.h"

namespace fpfs::tools {

namespace {

// The kernel's limit for one attribute.
constexpr size_t kAttributeBytesMax = size_t{64} * 1024;

// `named`: the path that the user gave, for messages.
Result<Json> read_json_attribute(const std::string& path, const char* name, const std::string& named) {
  std::vector<char> value(kAttributeBytesMax);
  const ssize_t length = ::getxattr(path.c_str(), name, value.data(), value.size());
  if (length < 0) return explain_mount_error(errno, named);
  Json object = parse_json(std::string(value.data(), static_cast<size_t>(length)));
  if (!object.is_object())
    return Status::error(StatusCode::kUnsupported,
                         named + ": the daemon's answer is no JSON object; are it and fpfs of one release?");
  return object;
}

// Whether the caller may enter the mount that the path is in, however far that goes: it is not the mount that keeps the
// caller out. A mount without allow_other does not even tell others what its root is.
bool is_in_entered_mount(const std::string& path) {
  for (std::filesystem::path at(path);; at = at.has_parent_path() ? at.parent_path() : std::filesystem::path(".")) {
    struct statfs filesystem {};
    if (struct stat attributes{}; ::stat(at.c_str(), &attributes) == 0)
      return ::statfs(at.c_str(), &filesystem) == 0 && filesystem.f_type == FUSE_SUPER_MAGIC;
    if (at == "." || at == "/") return false;
  }
}

// One word for monitoring, the worst that is true. A member that was removed, or is leaving, is as it should be.
std::string state_of(const Json& status) {
  const Json& array = object_at(status, "array");
  if (!text_at(array, "read_only_reason").empty()) return "failed";
  if (flag_at(array, "degraded")) return "degraded";
  std::string worst = text_at(object_at(status, "metadata"), "state", "ok");
  for (const Json& member : array_at(status, "members")) {
    const std::string state = text_at(member, "state", "ok");
    if (state == "stalled" || worst == "stalled") return "stalled";
    if (state != "ok" && state != "removed" && !(state == "leaving" && errors_of(member) == 0)) worst = "failing";
  }
  return worst;
}

}  // namespace

Result<FileDescriptor> open_path(const std::string& path) {
  const int number = ::open(path.c_str(), kOpenFlags);
  if (number < 0) return explain_mount_error(errno, path);
  return FileDescriptor(number);
}

Status check_regular_file(const std::string& path) {
  struct stat attributes {};
  if (::stat(path.c_str(), &attributes) != 0) return explain_mount_error(errno, path);
  if (S_ISREG(attributes.st_mode)) return Status::ok();
  return Status::error(StatusCode::kInvalidArgument, path + ": not a regular file; name a file of a mounted array");
}

Status check_listable(const std::string& directory) {
  if (::faccessat(AT_FDCWD, directory.c_str(), R_OK | X_OK, AT_EACCESS) == 0 || errno == ENOENT) return Status::ok();
  return explain_mount_error(errno, directory);
}

Result<std::string> resolve(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return explain_mount_error(errno, path);
  return std::string(resolved);
}

Result<std::string> mount_root_of(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(std::string here, resolve(path));
  struct stat attributes {};
  if (::stat(here.c_str(), &attributes) != 0) return explain_mount_error(errno, here);
  while (here != "/") {
    const size_t slash = here.rfind('/');
    const std::string parent = slash == 0 ? "/" : here.substr(0, slash);
    struct stat above {};
    // A parent that may not be looked at ends the search: the caller's next call says what is wrong.
    if (::stat(parent.c_str(), &above) != 0 || above.st_dev != attributes.st_dev) break;
    here = parent;
  }
  return here;
}

Result<Json> read_mount_status(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(std::string root, mount_root_of(path));
  FPFS_ASSIGN_OR_RETURN(Json status, read_json_attribute(root, "user.fastpersistfs.status", path));
  status["state"] = state_of(status);
  return status;
}

Result<Json> read_mount_stats(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(std::string root, mount_root_of(path));
  Result<Json> stats = read_json_attribute(root, "user.fastpersistfs.stats", path);
  if (!stats.is_ok() && check_mounted(path).is_ok())
    return explain_mount_error(EPROTO, path);  // it knows no such thing
  return stats;
}

Status check_mounted(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(const std::string root, mount_root_of(path));
  return read_json_attribute(root, "user.fastpersistfs.status", path).status();
}

Result<Json> read_scrub_status(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(std::string root, mount_root_of(path));
  return read_json_attribute(root, "user.fastpersistfs.scrub", path);
}

Result<Json> read_rebalance_status(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(std::string root, mount_root_of(path));
  return read_json_attribute(root, "user.fastpersistfs.rebalance", path);
}

Result<Json> read_tier_status(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(std::string root, mount_root_of(path));
  return read_json_attribute(root, "user.fastpersistfs.tier-status", path);
}

Result<Json> read_file_stat(const std::string& path) {
  FPFS_RETURN_IF_ERROR(check_regular_file(path));
  return read_json_attribute(path, "user.fastpersistfs.stat", path);
}

Status describe_unreadable(const std::string& path) {
  // A failed save fails until everybody has closed it, and its drive has given up what is on its way there.
  if (const Result<Json> stat = read_file_stat(path); stat.is_ok() && !text_at(*stat, "failed").empty())
    return Status::error(StatusCode::kBusy,
                         fmt::format("{}: a save of it has failed, and it cannot be read until everybody has closed it "
                                     "and the drive answers; then it is what was committed before: {}",
                                     path, text_at(*stat, "failed")));
  // What cannot be read has no mount that could be asked; a directory above it may have.
  std::string above = std::filesystem::absolute(path).string();
  Result<Json> status = read_mount_status(above);
  while (!status.is_ok() && above.size() > 1) {
    above = std::filesystem::path(above).parent_path().string();
    status = read_mount_status(above);
  }
  const std::string names = status.is_ok() ? text_at(object_at(*status, "metadata"), "state", "ok") : std::string("ok");
  if (names == "stalled")
    return Status::error(StatusCode::kUnreachable, path + ": the drive with the names does not answer (fpfs status)");
  return Status::error(StatusCode::kCorruption,
                       path + ": its index cannot be read; fsck.fastpersistfs -n DIRS says what is left" +
                           (names == "failing" ? " (or its drive fails: fpfs status, dmesg)" : ""));
}

Status explain_mount_error(int errno_value, const std::string& path) {
  switch (errno_value) {
    case ENODATA:
    case EOPNOTSUPP:
    case ENOTTY:
    case ENOSYS:
      return Status::error(StatusCode::kUnsupported, path + ": not on a mounted fastpersistfs");
    case ENOTCONN:
    case ECONNABORTED:  // it went while it was asked
    case ECANCELED:     // the same, of what came through io_uring
      return Status::error(
          StatusCode::kIoError,
          path + ": the daemon of this mount is gone; umount it (umount -l) and mount the array again");
    case EIO:
      return Status::from_errno(EIO, path +
                                         ": a drive fails or does not answer (fpfs status, dmesg), or its index is "
                                         "damaged (fsck.fastpersistfs -n)");
    case EPROTO:
      return Status::error(StatusCode::kUnsupported, path + ": the daemon is of another release than this fpfs");
    case ENOTDIR:
      return Status::error(StatusCode::kInvalidArgument,
                           path + ": it lies below a file; name where the array is mounted, or a path below that");
    case EACCES:
      if (is_in_entered_mount(path))
        return Status::error(StatusCode::kPermission,
                             path + ": Permission denied; ask as root, or as a user who may read it");
      return Status::error(StatusCode::kPermission,
                           path +
                               ": Permission denied; without allow_other a mount is for the user who mounted it, and "
                               "each directory on the way must let you pass");
    default:
      return Status::from_errno(errno_value, path);
  }
}

}  // namespace fpfs::tools
