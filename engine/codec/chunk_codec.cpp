#include "engine/codec/chunk_codec.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "engine/codec/block_codec.h"
#include "engine/codec/block_format.h"
#include "engine/codec/decompress.h"
#include "engine/codec/hash.h"

namespace fpfs {

std::optional<EncodedChunk> encode_chunk(const Compression& compression, std::span<const std::byte> raw,
                                         std::span<std::byte> out, uint64_t seed) {
  const auto blocks_for = [](size_t length) { return round_up(length, kIoAlignment); };
  if (compression.mode == Compression::Mode::kOff || raw.size() <= kIoAlignment) return std::nullopt;
  BlockOptions options;
  options.level = compression.level;
  options.seed = seed;
  const size_t length = encode_blocks(raw, out, options);
  if (length == 0 || blocks_for(length) >= blocks_for(raw.size())) return std::nullopt;
  // Of what was just made: its header says it.
  return EncodedChunk{Codec::kBlocks, static_cast<uint32_t>(length), get_u64(&out[blocks::kIndexChecksumAt])};
}

uint64_t stored_checksum(Codec codec, std::span<const std::byte> stored, uint64_t seed) {
  return codec == Codec::kBlocks ? blocks_checksum(stored, seed) : hash_bytes(stored, seed);
}

Status decode_chunk(Codec codec, std::span<const std::byte> stored, std::span<std::byte> out, uint64_t seed) {
  switch (codec) {
    case Codec::kRaw:
      if (stored.size() != out.size())
        return Status::error(StatusCode::kCorruption,
                             fmt::format("{} bytes are stored as {}", out.size(), stored.size()));
      std::copy(stored.begin(), stored.end(), out.begin());
      return Status::ok();
    case Codec::kZstd:
      return decompress(stored, out);
    case Codec::kBlocks:
      return decode_blocks(stored, out, seed);
    case Codec::kNone:
    case Codec::kAway:
      break;
  }
  return Status::error(StatusCode::kCorruption, "nothing is stored");
}

}  // namespace fpfs
