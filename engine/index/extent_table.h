// Where each chunk of one file is stored, in memory. A map from chunk number to Extent, stored in pages of 256 entries
// so that dense files cost little and sparse files of any size work.
//
// Thread safety: none; guarded by the owner (File::mutex_).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "engine/base/units.h"

namespace fpfs {

enum class Codec : uint8_t {
  kNone = 0,  // no extent: the chunk reads as zeros
  kRaw = 1,   // stored as is
  kZstd = 2,  // one zstd frame (engine/codec/decompress.h)
};
constexpr size_t kCodecs = 3;

struct Extent {
  SlotIndex slot = 0;          // of the file's object on `member`
  uint64_t checksum = 0;       // XXH3 of the stored bytes, seeded by chunk_seed()
  uint32_t stored_length = 0;  // bytes on the drive that the checksum covers; the drive holds zeros up to kIoAlignment
  uint32_t raw_length = 0;     // bytes after decoding
  uint32_t visible_length =
      0;  // the first bytes of those that the file still shows; the rest of the chunk reads as zeros
  MemberIndex member = 0;
  Codec codec = Codec::kNone;
  uint32_t epoch = 0;  // in memory only, never encoded: the commit that records it (engine/file)

  bool exists() const { return codec != Codec::kNone; }
  // Bytes of the drive that the extent occupies.
  uint64_t allocated() const { return exists() ? round_up(stored_length, kIoAlignment) : 0; }
  bool operator==(const Extent&) const = default;
};

class ExtentTable {
 public:
  // The extent of a chunk; Extent::exists() is false where there is none.
  const Extent& get(ChunkIndex chunk) const;
  // Replaces (or, with an extent that does not exist, removes) an entry.
  void set(ChunkIndex chunk, const Extent& extent);
  // Removes every entry at or after `first`, calling `removed` for each.
  void remove_from(ChunkIndex first, const std::function<void(ChunkIndex, const Extent&)>& removed);
  void clear();
  // In ascending chunk order, from `first` on; stops when `visit` returns false.
  void for_each(ChunkIndex first, const std::function<bool(ChunkIndex, const Extent&)>& visit) const;
  uint64_t count() const { return count_; }
  // Sum of Extent::allocated().
  uint64_t allocated_bytes() const { return allocated_; }

 private:
  static constexpr uint64_t kPageEntries = 256;
  struct Page {
    std::array<Extent, kPageEntries> entries;
    uint32_t used = 0;
  };
  std::map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t count_ = 0;
  uint64_t allocated_ = 0;
};

}  // namespace fpfs
