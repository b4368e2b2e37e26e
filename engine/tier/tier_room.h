// Which files leave the drives, of those whose content the store has (File::send_away()), so that the array is a cache
// of it: names, sizes and attributes stay, reads fetch. Never what is not copied, is open, has several names, is pinned
// (Store::kPinAttribute), or is the newest of its directory.
//
// Thread safety: functions; they block for the drive of the names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/store/store.h"

namespace fpfs {

// What is kept on the drives of what is copied.
struct TierKeep {
  enum class Kind : uint8_t {
    kAll,
    kBytes,   // what was changed or fetched last, up to `limit` bytes of all files
    kNewest,  // the `limit` newest files of each directory
  };
  Kind kind = Kind::kAll;
  uint64_t limit = 0;
  bool operator==(const TierKeep&) const = default;
};

// "all", a size with its unit ("500G"), or a number of files ("3"). kInvalidArgument: none of these.
Result<TierKeep> parse_tier_keep(std::string_view text);
std::string to_string(const TierKeep& keep);

struct TierLeaving {
  // Below the root, the first one first: whatever else keeps them is not looked at.
  std::vector<std::string> paths;
  uint64_t files_pinned = 0, bytes_pinned = 0;  // of all files; bytes as long as they are
};
// Which files are to leave. Looks at every file of the array. `is_over`: ends early.
Result<TierLeaving> files_to_leave(Store& store, const TierKeep& keep, const std::function<bool()>& is_over);

// What is at a path below the root, which leads through no symbolic link.
Result<Store::Node> lookup_path(Store& store, const std::string& path);

// The path of a file of which some content is away; empty: there is none.
Result<std::string> find_away(Store& store, const std::function<bool()>& is_over);

}  // namespace fpfs
