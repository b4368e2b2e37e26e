// TierNote: what the array itself remembers of the copy of a file: which commit was copied, and to where. An extended
// attribute of the sidecar, written when the copy is complete; there is no other log of copies. It need not be durable:
// a file without its note is copied again. docs/format.md gives every byte.
//
// A note belongs to the inode of the sidecar. So it moves with the file, goes with it, and never speaks for another
// file that has come to its path. Whether it speaks for this path and this store, `place` tells.
//
// Users do not see it: names below user.fastpersistfs. are the mount's (fs/operations/xattr.cpp).
//
// Thread safety: pure functions, but for read_note().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/io/storage.h"
#include "engine/tier/object_store.h"

namespace fpfs {

struct TierNote {
  static constexpr const char* kAttribute = "user.fastpersistfs.tier-note";
  // Of what takes none of users (a symbolic link), for a daemon that is root.
  static constexpr const char* kNodeAttribute = "trusted.fastpersistfs.tier-note";
  static constexpr size_t kBytes = 72;

  uint64_t place = 0;     // place_of()
  FileId file_id;         // 0: the file is empty, and nothing was ever written to it
  uint64_t sequence = 0;  // the commit that was copied
  uint64_t size = 0;
  uint64_t content_tag = 0, manifest_tag = 0;  // tag_of() those that the store has given the two objects
  bool verified = false;                       // StoredObject::verified of the content
  bool is_others = false;                      // another array's copy, which this one shares (tier_share_job.cpp)
  uint64_t attributes = 0;                     // attributes_hash() of the manifest
  bool operator==(const TierNote&) const = default;

  // Of a store (TierCopyOptions::store_id) and a path.
  static uint64_t place_of(std::string_view store, std::string_view path);
  static uint64_t tag_of(std::string_view tag);
};

std::array<std::byte, TierNote::kBytes> encode_note(const TierNote& note);
// kCorruption, kUnsupported: counts as none.
Result<TierNote> decode_note(std::span<const std::byte> bytes);
// The one that a node has; it blocks for the drive. Nothing: none that can be read.
std::optional<TierNote> read_note(Storage& storage, Handle node);

}  // namespace fpfs
