#include "tools/common/placement_warnings.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "fs/interface/mount_point.h"

namespace fpfs::tools {

std::vector<std::string> placement_warnings(const std::vector<std::string>& directories, size_t first) {
  std::vector<std::string> warnings;
  struct stat system {};
  const bool knows_system = ::stat("/", &system) == 0;
  std::map<dev_t, std::string> drives;
  for (size_t i = 0; i < directories.size(); ++i) {
    const std::string& directory = directories[i];
    struct stat attributes {};
    struct statfs filesystem {};
    if (::stat(directory.c_str(), &attributes) != 0 || ::statfs(directory.c_str(), &filesystem) != 0) continue;
    const auto [other, is_first] = drives.emplace(attributes.st_dev, directory);
    if (i < first) continue;
    if (filesystem.f_type == TMPFS_MAGIC)
      warnings.push_back(directory + ": on tmpfs: what it holds is memory, and gone at the next boot");
    else if (filesystem.f_type == OVERLAYFS_SUPER_MAGIC)
      warnings.push_back(directory + ": on overlay, a container's own filesystem: gone with the container");
    else if (knows_system && attributes.st_dev == system.st_dev)
      warnings.push_back(directory + ": on the system's drive; is the member's drive mounted?");
    if (!is_first)
      warnings.push_back(
          fmt::format("{}: on the same drive as {}: striping over one drive gains nothing", directory, other->second));
  }
  return warnings;
}

namespace {

// The mount that this directory is in, or would be in. One at this very path is not asked: its daemon may hang.
std::optional<MountEntry> mount_around(const std::string& directory, const std::vector<MountEntry>& mounts) {
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).string();
  for (const MountEntry& entry : mounts)
    if (entry.type == kFilesystemType && entry.mount_point == name) return entry;
  struct stat attributes {};
  if (::stat(directory.c_str(), &attributes) != 0 && ::stat(path.parent_path().c_str(), &attributes) != 0)
    return std::nullopt;
  const std::string device = fmt::format("{}:{}", major(attributes.st_dev), minor(attributes.st_dev));
  for (const MountEntry& entry : mounts)
    if (entry.type == kFilesystemType && entry.device() == device) return entry;
  return std::nullopt;
}

}  // namespace

Status check_outside_of_mounts(const std::vector<std::string>& directories) {
  const std::vector<MountEntry> mounts = read_mount_table();
  for (const std::string& directory : directories)
    if (const std::optional<MountEntry> entry = mount_around(directory, mounts))
      return Status::error(StatusCode::kInvalidArgument,
                           fmt::format("{}: it is within a mounted array ({}); name directories on the drives",
                                       directory, entry->mount_point));
  return Status::ok();
}

Status check_no_mount_points(const std::vector<std::string>& directories, const std::string& advice) {
  const std::vector<MountEntry> mounts = read_mount_table();
  for (const std::string& directory : directories)
    if (const std::optional<MountEntry> entry = mount_around(directory, mounts))
      return Status::error(
          StatusCode::kInvalidArgument,
          is_dead(*entry)
              ? fmt::format("{}: the array of {} was mounted here, at {}, and the daemon of that mount is gone; remove "
                            "it (umount -l), and give the array's directories",
                            directory, entry->source, entry->mount_point)
              : fmt::format("{}: the array of {} is mounted here, at {}; {}", directory, entry->source,
                            entry->mount_point, advice));
  return Status::ok();
}

}  // namespace fpfs::tools
