// The mount records of all directories of an array: read, judged, raised. engine/index/mount_record.h says what they
// are for.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/index/mount_record.h"
#include "engine/io/storage.h"

namespace fpfs {

// One directory of an array: a member, or the one that holds the names only. Borrows its handles.
struct ArrayDirectory {
  std::string path;
  Superblock superblock;
  Handle directory = kNoHandle;
  Handle lock = kNoHandle;  // kNoHandle: looked at without locking
  MountRecord record;
  bool superblock_is_old = false;  // on disk it is from before the last change of the members
  Status record_status;            // why `record` is not known: it is damaged, or missing although there must be one
};

// Sets `record` and `record_status` of each. A directory from before stamps were kept has stamp 0.
// `consistent`: nobody can change them meanwhile. Otherwise they are read until two readings in a row are alike: what
// they say was true at one moment then, also beside a mount that is just raising them.
void read_mount_records(Storage& storage, std::vector<ArrayDirectory>& directories, bool consistent);

// Takes directories whose record is not known for current. What is on disk changes with the next raise.
void renew_unknown_records(std::vector<ArrayDirectory>& directories);

// Directories that may not be used with the others.
struct OutdatedDirectory {
  size_t index = 0;      // in the list given
  const char* kind;      // "older-member"; "mount-record": it cannot be told
  std::string sentence;  // without its path
};
std::vector<OutdatedDirectory> find_outdated(const std::vector<ArrayDirectory>& directories);

// One refusal for all of find_outdated(); ok when there are none.
Status check_mount_records(const std::vector<ArrayDirectory>& directories);

// Gives all directories a new stamp, `mount` and `seconds` as given. Durable on return; see mount_record.h for what a
// failure or a crash in the middle leaves.
Status raise_mount_records(Storage& storage, std::vector<ArrayDirectory>& directories, uint64_t mount, int64_t seconds,
                           uint64_t token);

// Writes one directory's record. Durable on return. Has room on a full drive, once a record was written there before (but
// for filesystems that write nothing in place).
Status write_mount_record(Storage& storage, const ArrayDirectory& directory);
// What to do where a mount found no room; any other status as it is.
Status advise_on_room(const Status& status);

}  // namespace fpfs
