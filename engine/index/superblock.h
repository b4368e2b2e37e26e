// The superblock of a member directory: who it belongs to. 4096 bytes, checksummed, in the file `superblock`.
// docs/format.md gives every byte. Membership comes from here, never from the order of paths.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/units.h"

namespace fpfs {

using Uuid = std::array<std::byte, 16>;
std::string to_string(const Uuid& uuid);  // 8-4-4-4-12 lower-case hex
// Of two random numbers: version 4 of RFC 9562.
Uuid make_uuid(uint64_t first, uint64_t second);

constexpr uint32_t kFormatVersion = 1;
constexpr uint32_t kSuperblockSize = 4096;
constexpr uint32_t kChunkSizeMin = 64 * 1024;
constexpr uint32_t kChunkSizeMax = 16 * 1024 * 1024;
constexpr size_t kLabelSizeMax = 63;
constexpr size_t kMetadataPathSizeMax = 3071;
constexpr MemberIndex kMetadataOnlyMember(0xffff);  // member_index of a directory given by --meta-dir: tree, no objects

// Feature flags. Unknown compatible bits are ignored, unknown read-only bits allow `ro`, unknown incompatible bits
// refuse.
constexpr uint64_t kKnownCompatible = 1;
constexpr uint64_t kKnownReadOnlyCompatible = 1;
constexpr uint64_t kKnownIncompatible = 7;
// Compatible: the rows of a file's chunks are turned against each other (StripeMap). A program that does not know of it
// puts new chunks elsewhere, where they are found as well.
constexpr uint64_t kFeatureTurnedRows = 1;
// Read-only compatible: every directory has a mount record (engine/index/mount_record.h). A program that does not know
// of it may read: it gets what is there. It may not write, as the records would not tell of that.
constexpr uint64_t kFeatureMountRecords = 1;
// Incompatible: the members are not those of the format any more, and `membership` and `member_set` count. A program
// that does not know of it would take a directory that does not know of the change yet for damage.
constexpr uint64_t kFeatureMembership = 1;
// Incompatible, with kFeatureMembership: some member is leaving, or was taken out: `stripe_order` and `removed` count. A
// program that does not know of it would write to those, and miss them.
constexpr uint64_t kFeatureOrder = 2;
// Incompatible: there may be a commit log (engine/index/commit_entry.h). After a crash a program that does not know of it
// would miss what is durable there only.
constexpr uint64_t kFeatureCommitLog = 4;

struct Superblock {
  uint32_t version = kFormatVersion;
  uint64_t compatible = 0;
  uint64_t read_only_compatible = 0;
  uint64_t incompatible = 0;
  Uuid array_id{};
  Uuid member_id{};          // of this directory alone: tells a copy of a member from the member
  MemberIndex member_index;  // or kMetadataOnlyMember
  uint16_t member_count = 0;
  MemberIndex metadata_member;  // which member holds tree/, or kMetadataOnlyMember
  uint32_t chunk_size = 0;      // bytes, a power of two within [kChunkSizeMin, kChunkSizeMax]
  int64_t created_seconds = 0;  // since the epoch
  std::string label;            // UTF-8, at most kLabelSizeMax bytes, no NUL
  uint64_t membership = 0;      // how often the members were changed since the format; not 0: kFeatureMembership
  uint64_t member_set = 0;      // member_set_of() all members; 0 as long as membership is
  // The members that new chunks go to, by their places in the stripe (StripeMap::order); empty: all, without
  // kFeatureOrder. A member that is not among them and was not removed is leaving.
  std::vector<MemberIndex> stripe_order;
  std::bitset<kMemberCountMax> removed;  // by their indices, which no other member gets
  std::string metadata_path;  // with a metadata-only member: its absolute path when formatted (a hint), else empty
};

// Stands for the ids of all members, in the order of their indices; all zeros: it was removed.
uint64_t member_set_of(std::span<const Uuid> member_ids);

// Of a directory that was a member: it says so itself.
bool was_removed(const Superblock& superblock);

// UTF-8 of at most kLabelSizeMax bytes without NUL.
bool is_valid_label(std::string_view label);
// Whether every field is in its range and fits the others; kCorruption says which is not.
Status validate_superblock(const Superblock& superblock);

// Encodes; the caller has validated (chunk size, counts, lengths): a value out of range is a broken invariant.
std::array<std::byte, kSuperblockSize> encode_superblock(const Superblock& superblock);

// Decodes and validates every field. kCorruption: wrong magic, wrong checksum, field out of range, non-zero reserved
// bytes; kUnsupported: another version or unknown incompatible flags (`for_writing`: also unknown read-only flags). The
// message says what was found; the caller adds which directory.
Result<Superblock> decode_superblock(std::span<const std::byte> bytes, bool for_writing);

}  // namespace fpfs
