// What one file occupies in its objects, and giving back what no committed extent needs.
#pragma once

#include <vector>

#include "engine/array/array.h"
#include "engine/index/sidecar.h"
#include "engine/io/storage.h"

namespace fpfs {

struct PlacedChunk {
  ChunkIndex chunk;
  Extent extent;
};

// The chunks of a file by member, each member's in the order of their slots.
PerMember<std::vector<PlacedChunk>> chunks_by_member(const FileImage& image, uint16_t member_count);

// Where an extent lies in its object.
struct ObjectRange {
  ObjectOffset begin, end;
};
ObjectRange place_of(const Extent& extent, uint32_t chunk_size);

// Whether an object holds space outside the slots that `chunks` (as chunks_by_member gives them) need: data or
// allocated blocks behind the last slot or in a slot that no extent names. Holes do not count, nor does what
// compression leaves free inside a slot.
Result<bool> has_leftover_space(Storage& storage, Handle object, const std::vector<PlacedChunk>& chunks,
                                uint32_t chunk_size);

// Cuts the object behind its last extent and punches everything between extents. Returns the bytes given back. The
// object must be open for writing, and nothing else may use it. Idempotent.
Result<uint64_t> free_leftover_space(Storage& storage, Handle object, const std::vector<PlacedChunk>& chunks,
                                     uint32_t chunk_size);

}  // namespace fpfs
