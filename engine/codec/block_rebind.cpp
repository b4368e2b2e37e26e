#include <algorithm>

#include "engine/base/check.h"
#include "engine/codec/block_codec.h"
#include "engine/codec/block_format.h"

namespace fpfs {

uint64_t rebind_blocks(std::span<std::byte> stored, std::span<const std::byte> raw, uint64_t seed) {
  const size_t block_size = size_t{1} << static_cast<unsigned>(stored[8]);
  const size_t index_length = blocks::index_length(raw.size(), block_size);
  FPFS_CHECK(get_u32(stored.data()) == blocks::kMagic && index_length < stored.size(), "these are blocks");
  for (size_t at = 0, i = 0; at < raw.size(); at += block_size, ++i)
    put_u64(&stored[blocks::kHeaderLength + i * blocks::kEntryLength + blocks::kEntryChecksumAt],
            hash_bytes(raw.subspan(at, std::min(block_size, raw.size() - at)), seed));
  blocks::put_checksums(stored, index_length, seed);
  return get_u64(&stored[blocks::kIndexChecksumAt]);
}

}  // namespace fpfs
