// What is wrong with one file, judging by its sidecar and by its objects' sizes, without reading its data.
#pragma once

#include <bitset>
#include <vector>

#include "engine/check/check.h"
#include "engine/check/scan.h"

namespace fpfs {

struct FileInspection {
  std::vector<CheckError> errors;
  std::vector<ChunkIndex> lost_chunks;              // ascending: they cannot be read back
  std::bitset<kMemberCountMax> damaged_members;     // whose object is missing or too short
  std::vector<MemberIndex> members_with_leftovers;  // when `judge_space` was set
};

// `judge_space`: also look for space that no extent needs (never beside a live mount, whose files hold such space until
// they are committed).
FileInspection inspect_file(Storage& storage, Array& array, const std::string& path, const ScannedFile& file,
                            bool judge_space);

// Errors of this kind mean that a file lost something; the others are leftovers of crashes.
bool is_damage(const std::string& kind);

// "/nvme1/fp/objects/ef/0123456789abcdef.00000001"
std::string object_path(const Array& array, MemberIndex member, FileId file, Generation generation);

}  // namespace fpfs
