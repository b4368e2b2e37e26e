// XXH3 (64 bit) over everything that is stored, by the widest vector unit of this CPU (xxhash's run-time dispatch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/units.h"

namespace fpfs {

// Which instruction set the hash uses: "avx512", "avx2", "sse2", "scalar".
const char* hash_backend();

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0);

// The seed that binds a chunk's checksum to its place: array, file, generation and chunk number. A chunk found in the
// wrong object, file or array therefore fails its checksum. Pure.
uint64_t chunk_seed(const std::byte array_id[16], FileId file, Generation generation, ChunkIndex chunk);

}  // namespace fpfs
