// What a chunk's bytes are stored as (docs/format.md, "Codec"): encoding and decoding by the codec's number. Whoever
// stores, reads or checks chunks does it here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/base/status.h"
#include "engine/codec/codec.h"
#include "engine/codec/compression.h"

namespace fpfs {

// A chunk as it is to be stored: by which codec, in the first `length` bytes of where it was encoded to.
struct EncodedChunk {
  Codec codec = Codec::kNone;
  uint32_t length = 0;
  uint64_t checksum = 0;  // stored_checksum()
};

// The checksum of stored bytes, as an extent has it. `seed`: chunk_seed() of where they belong. Pure.
uint64_t stored_checksum(Codec codec, std::span<const std::byte> stored, uint64_t seed);

// Encodes `raw`, 1 byte to a chunk, into `out`, which is no shorter. `seed`: chunk_seed() of where it belongs. None: it
// would not take fewer blocks of kIoAlignment on the drive, and is stored as it is; what `out` holds then means nothing.
// Pure.
std::optional<EncodedChunk> encode_chunk(const Compression& compression, std::span<const std::byte> raw,
                                         std::span<std::byte> out, uint64_t seed);

// Decodes what was stored, after its checksum was found right, into all of `out` (the extent's raw length). kCorruption:
// it is nothing that the codec says, or belongs elsewhere. Never writes outside of `out`, and takes no memory by what the bytes say. Pure.
// Bytes that are stored as they are need no decoding: kRaw copies them.
Status decode_chunk(Codec codec, std::span<const std::byte> stored, std::span<std::byte> out, uint64_t seed);

}  // namespace fpfs
