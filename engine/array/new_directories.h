// Directories that are to become part of an array, by a format or as new members: found, judged, made, locked and laid
// out. Nothing is changed before make_and_lock(). Internal to engine/array.
#pragma once

#include <string>
#include <vector>

#include "engine/array/member_directory.h"
#include "engine/base/status.h"
#include "engine/index/superblock.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/storage.h"

namespace fpfs {

// A directory that is to become one of an array.
struct NewDirectory {
  std::string path;
  MemberIndex member_index;  // or kMetadataOnlyMember
  bool has_tree = false;
  bool may_lie_in_array = false;
  ScopedHandle directory;  // not open: the directory is yet to be made, as `name` in `parent`
  ScopedHandle parent;
  std::string name;
  Identity identity;  // of the directory, or of the parent
  std::vector<Identity> ancestors;
  DirectoryFindings findings;
  ScopedHandle lock;
  Uuid member_id{};
};

// Opens it, or the directory that it is to be made in.
Status find_new_directory(Storage& storage, NewDirectory& candidate);
// No two are the same directory, or one inside the other.
Status check_distinct(const std::vector<NewDirectory>& candidates);
// Refuses (kExists) what holds anything, unless `force`.
Status check_content(Storage& storage, NewDirectory& candidate, bool force);
// Makes it when it is missing, durably, takes its lock and looks again.
Status make_and_lock(Storage& storage, NewDirectory& candidate, bool force);
// Makes what lies in it: objects/ of a member, tree/ where the names are. Durable on return.
Status lay_out(Storage& storage, const NewDirectory& candidate);

}  // namespace fpfs
