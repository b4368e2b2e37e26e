// What fpfs tier does with files and whole directories of a mount, from outside: pinning, and fetching what is away.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace fpfs::tools {

// The content of a file, or of all that are in a directory, stays on the drives from now on, or no longer. What is made
// in the directory later goes with it. Symbolic links are left alone. The first failure, behind everything that went
// well.
Status pin_path(const std::string& path, bool pinned);

struct PinnedPath {
  std::string path;
  uint64_t bytes = 0;
  bool is_directory = false;  // what is made there is pinned, too
};
// What is pinned at the path and below it, in the order in which a walk comes to it. Fails where something cannot be
// looked at, behind everything else: `pinned` has that.
Status find_pinned(const std::string& path, std::vector<PinnedPath>& pinned);

struct FetchedPaths {
  uint64_t files = 0, bytes = 0;  // that were away, in part or whole, and are on the drives now
  struct Failure {
    std::string path, detail;
    bool has_come = false;  // and does not stay
  };
  std::vector<Failure> failures;
};
// Has the daemon fetch what is away of a file, or of all that are in a directory, and returns when it is on the drives,
// durably, but for `failures`. kCancelled: the user has interrupted it; the daemon ends it within a minute.
Result<FetchedPaths> fetch_path(const std::string& path);

}  // namespace fpfs::tools
