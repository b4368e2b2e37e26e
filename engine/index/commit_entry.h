// The commit log: commits that are durable before their sidecars are, in the file `commits` beside tree/. One write
// into it, over blocks that are there already, takes the place of a sync of the sidecar, which has to place the record,
// to write it, and to force the filesystem's own log. engine/file/commit_log.h has the rules, docs/format.md every byte.
//
//   header (4096 bytes) | slot | slot | ... | slot      of 8192 bytes, an entry in each
//
// An entry counts when it verifies and its number is not below the header's `first`. It is looked for at the beginning
// of a slot only: what follows there is a user's content, and may look like anything.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/index/superblock.h"

namespace fpfs {

constexpr uint64_t kCommitBlock = 4096;
constexpr uint64_t kCommitSlotBytes = 2 * kCommitBlock;
constexpr unsigned kCommitSlots = 256;
constexpr uint64_t kCommitLogBytes = kCommitBlock + kCommitSlots * kCommitSlotBytes;
constexpr uint64_t commit_slot_offset(unsigned slot) {
  return kCommitBlock + slot * kCommitSlotBytes;
}
// Of an entry: its head, then the bytes of the sidecar.
constexpr uint64_t kCommitHeadBytes = 512;
// Storage::identity() of a file or a directory; one that is longer has no entry.
constexpr size_t kCommitIdentityMax = 72;

// The first commit of a file that was just made.
struct CommitEntry {
  uint64_t number = 0;    // goes up by one with each entry
  std::string directory;  // identity of the directory that it was made in
  std::string name;       // there
  std::string file;       // identity of its sidecar
  uint64_t inode = 0;     // of its sidecar
  mode_t mode = 0;
  uid_t owner = 0;
  gid_t group = 0;
  struct timespec mtime {};
  std::vector<std::byte> sidecar;  // all of it: header and record
};

// Whether all of it has room in an entry.
bool fits_commit_entry(const CommitEntry& entry);
// Appends a whole number of blocks.
void encode_commit_entry(const Uuid& array_id, const CommitEntry& entry, std::vector<std::byte>& bytes);
// The entry that begins here; nothing where none does, or not all of it was written.
std::optional<CommitEntry> decode_commit_entry(const Uuid& array_id, std::span<const std::byte> bytes);

std::vector<std::byte> encode_commit_header(const Uuid& array_id, uint64_t first);
// `first`. kCorruption: damaged, or another array's. All zeros are a log that has never been used: 0.
Result<uint64_t> decode_commit_header(const Uuid& array_id, std::span<const std::byte> bytes);

// Of a whole log: the entries that count, in the order of their numbers, and the number of the next one.
struct CommitLogImage {
  std::vector<CommitEntry> entries;
  uint64_t next = 1;
};
// kCorruption: as above, or it is shorter than a log.
Result<CommitLogImage> decode_commit_log(const Uuid& array_id, std::span<const std::byte> bytes);

}  // namespace fpfs
