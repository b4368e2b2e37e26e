#include "engine/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace fpfs {

uint64_t control_group_memory(std::istream& groups, const std::filesystem::path& root) {
  uint64_t least = UINT64_MAX;
  std::string controllers, path;
  // "5:cpu,memory:/a/b", or "0::/a/b" of version 2.
  while (std::getline(groups, path, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path)) {
    const bool is_unified = controllers.empty();
    if (!is_unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    if (path.starts_with("/..")) continue;  // beside what is mounted here
    const std::filesystem::path hierarchy = is_unified ? root : root / "memory";
    const char* const limit_name = is_unified ? "memory.max" : "memory.limit_in_bytes";
    for (auto group = std::filesystem::path(path).relative_path();; group = group.parent_path()) {
      uint64_t limit = 0;  // or "max"
      if (std::ifstream(hierarchy / group / limit_name) >> limit) least = std::min(least, limit);
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace fpfs
