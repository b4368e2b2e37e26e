// The forms in which a chunk is stored, by the numbers that sidecars hold (docs/format.md, "Codec").
#pragma once

#include <cstddef>
#include <cstdint>

namespace fpfs {

enum class Codec : uint8_t {
  kNone = 0,    // no extent: the chunk reads as zeros
  kRaw = 1,     // stored as is
  kZstd = 2,    // one zstd frame (decompress.h)
  kBlocks = 3,  // blocks, each in its own form (block_codec.h)
  kAway = 4,    // not on a member: a copy outside of the array has it (engine/file/chunk_source.h)
};
constexpr size_t kCodecs = 5;

}  // namespace fpfs
