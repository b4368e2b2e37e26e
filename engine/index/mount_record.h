// The mount record of a member directory: up to when this directory took part in its array. 128 bytes, checksummed, in
// the file `mount`. docs/format.md gives every byte.
//
// A *stamp* stands for a time in the array's life. Every mount for writing and every repair begins with a new one, and
// so does a clean end: a copy made before is older then, also one made while the array was mounted. A new stamp comes
// in two steps, each durable in all directories before the next begins: announced ("not settled", with the one before
// it), then settled. Only then is anything else changed. So after a crash in the middle the directories differ in ways
// that no copy of a directory can show once something was changed: see is_current().
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/base/status.h"
#include "engine/index/superblock.h"

namespace fpfs {

constexpr uint32_t kMountRecordSize = 128;

struct MountStamp {
  uint64_t number = 0;  // goes up by at least one; 0: before stamps were kept
  uint64_t token = 0;   // random: copies of one array that were used apart may have equal numbers
  uint64_t mount = 0;   // how many mounts for writing, and repairs, there were; for messages
  int64_t seconds = 0;  // when, since the epoch; for messages

  bool is_same(const MountStamp& other) const { return number == other.number && token == other.token; }
};

struct MountRecord {
  Uuid array_id{};   // of the directory's superblock
  Uuid member_id{};  // likewise
  bool settled = true;
  MountStamp stamp;
  MountStamp before;  // when not settled: the last one that was; else all zero

  const MountStamp& last_settled() const { return settled ? stamp : before; }
};

// The newest stamp under which anything may have been changed in the directories with these records.
MountStamp newest_settled(std::span<const MountRecord> records);
// Whether the directory with this record has seen all changes made under `newest` and before. True also for a directory
// for which `newest` is announced only, or is the one before the announced: that is how a crash in between leaves them.
bool is_current(const MountRecord& record, const MountStamp& newest);

std::array<std::byte, kMountRecordSize> encode_mount_record(const MountRecord& record);
// kCorruption: wrong size, magic or checksum, a field out of range; kUnsupported: another version.
Result<MountRecord> decode_mount_record(std::span<const std::byte> bytes);

}  // namespace fpfs
