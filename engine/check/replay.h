// What the commit log (engine/index/commit_entry.h) says is durable, and the tree does not have: put back. The first step
// of recovery and of a repair, before anything is taken for a commit that was cut short.
#pragma once

#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/io/storage.h"

namespace fpfs {

struct ReplayedCommit {
  std::string name;  // of the file, where it was made
  Status failure;    // it cannot be put back
};
struct ReplayReport {
  std::vector<ReplayedCommit> missing;  // that the tree did not have
  std::string damage;                   // of the log, in words; then nothing is known of what it had
};

// `puts_back`: behind sync_everything(); durable on return, may be repeated, and afterwards no entry counts. Else only
// looks. Says nothing in the log.
Result<ReplayReport> replay_commits(Storage& storage, const Array& array, bool puts_back);

}  // namespace fpfs
