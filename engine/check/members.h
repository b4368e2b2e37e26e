// Why an array does not open: members that are missing, damaged, another array's or there twice, which fsck reports; or
// something else that it cannot check.
#pragma once

#include <string>
#include <vector>

#include "engine/check/check.h"
#include "engine/io/storage.h"

namespace fpfs {

struct MemberFindings {
  std::vector<CheckError> errors;     // never empty
  std::vector<std::string> present;   // the directories that are members as they should be
  bool is_readable_degraded = false;  // members are missing, and nothing else is wrong
};

// `failure` is what Array::open() said; it is returned when the members are not the reason.
Result<MemberFindings> examine_members(Storage& storage, const std::vector<std::string>& directories,
                                       const Status& failure);

}  // namespace fpfs
