// What a check found, as people read it: one line for each file and kind of damage, however many chunks it has.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/check/check.h"

namespace fpfs {

// Of which the same is to be said: chunks of one file, in ascending order, or members that are not there.
using ErrorGroup = std::vector<const CheckError*>;

// Errors of a file are expected to be side by side. The groups point into `errors`.
std::vector<ErrorGroup> group_errors(const std::vector<CheckError>& errors);

// "A; B; and N more members", of what is said of each member once, which names the place there; of a few of them.
std::string join_details(const std::vector<std::pair<int, std::string>>& member_and_detail);

// "checksum: /nvme0/fp/objects/...: the checksum does not match what was written (lost)". Of several members: of the
// first error on each.
std::string kind_and_detail(const ErrorGroup& group);

// "/run1/a.pt: chunk 5, member 1, object offset 1048576: WHAT", or
// "/run1/a.pt: 21 chunks (1, 3-5, 7) on members 0, 2: WHAT", or "members 0, 2: WHAT". One line, without its end.
std::string describe_errors(const ErrorGroup& group, const std::string& what);

// Errors of one file until they are logged. Not thread-safe.
class FileErrors {
 public:
  // A chunk that was found to be so before counts once.
  void add(CheckError error);
  // "scrub: /m.pt: 21 chunks (1, 3-5) on members 0, 2: checksum: ...": a line for each kind, `who` in front; a warning
  // of what was repaired. Nothing is left.
  void log_all(const char* who);

 private:
  std::vector<CheckError> errors_;
  uint64_t more_ = 0;  // that were too many
};

}  // namespace fpfs
