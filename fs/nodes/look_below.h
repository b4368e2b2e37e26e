// Asks what other nodes have in directories that are about to be moved or removed, where several share a store
// (tier_share=): a name that nobody here has looked at may stand for a whole tree there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/store/store.h"
#include "engine/tier/array_tier.h"

namespace fpfs {

struct DirectoryToLookAt {
  std::string path;      // below the root, with a '/' at its end
  bool is_deep = false;  // all directories below it, too
};

struct LookBelowParts {
  Store& store;
  ArrayTier& tier;
  std::function<void(std::function<void()>)> in_background;  // runs a task on another thread
  std::function<bool()> is_ending;                           // the mount ends
};

// Calls `then` once, on any thread, when the names here are what the store shows of these directories: some looks go
// side by side, and what is found in one may be directories, too. After 10 s at most, as the caller holds locks of the
// kernel, of the whole mount when it moves a directory to another one; earlier when the store does not show what is
// there, or the mount ends. Then what is known has to do, and the log says so.
void look_below(LookBelowParts parts, std::vector<DirectoryToLookAt> directories, std::function<void()> then);

}  // namespace fpfs
