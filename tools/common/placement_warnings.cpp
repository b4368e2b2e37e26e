#include "tools/common/placement_warnings.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <filesystem>
#include <map>

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

Status check_outside_of_mounts(const std::vector<std::string>& directories) {
  const std::vector<MountEntry> mounts = read_mount_table();
  for (const std::string& directory : directories) {
    struct stat attributes {};
    const std::filesystem::path above = std::filesystem::absolute(directory).lexically_normal().parent_path();
    if (::stat(directory.c_str(), &attributes) != 0 && ::stat(above.c_str(), &attributes) != 0) continue;
    const std::string device = fmt::format("{}:{}", major(attributes.st_dev), minor(attributes.st_dev));
    for (const MountEntry& entry : mounts)
      if (entry.type == kFilesystemType && entry.device() == device)
        return Status::error(StatusCode::kInvalidArgument,
                             fmt::format("{}: it is within a mounted array ({}); name directories on the drives",
                                         directory, entry.mount_point));
  }
  return Status::ok();
}

}  // namespace fpfs::tools
