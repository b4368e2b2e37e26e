// Why an array does not open: members that are missing, damaged, another array's, there twice or older than the others,
// which fsck reports; or something else that it cannot check.
#pragma once

#include <string>
#include <vector>

#include "engine/check/check.h"
#include "engine/index/superblock.h"
#include "engine/io/storage.h"

namespace fpfs {

struct MemberFindings {
  std::vector<CheckError> errors;      // never empty
  std::vector<std::string> present;    // the directories that are members as they should be
  bool is_readable_degraded = false;   // members, or parts of them, are missing or older, and nothing else is wrong
  bool only_records_are_lost = false;  // some mount records, and nothing else is wrong
  // Lost superblocks that can be made again, and `objects` of members, each with the error that says so.
  struct Restorable {
    std::string path;
    Superblock superblock;
    size_t error = 0;           // in `errors`
    bool only_objects = false;  // the superblock is right
  };
  std::vector<Restorable> restorable;
};

// `failure` is what Array::open() said; it is returned when the members are not the reason.
// `metadata_directory`: where it is now; empty: where the superblocks say.
Result<MemberFindings> examine_members(Storage& storage, const std::vector<std::string>& directories,
                                       const std::string& metadata_directory, const Status& failure);

// Makes these again, and marks the errors of superblocks as repaired; an `objects` that is made has no directories yet,
// which the next check finds. Durable on return. kBusy when a directory is in use.
Status restore_members(Storage& storage, MemberFindings& findings);

}  // namespace fpfs
