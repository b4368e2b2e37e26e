// RAID-0 arithmetic: where chunk c of a file lives when it is first written. Pure.
//
// The start member is taken from the file id so that small files spread over all members. Chunk c of a file goes to
// member (start + c) mod N, there into slot c / N of the file's object. Slots are chunk_size apart.
#pragma once

#include <cstdint>

#include "engine/base/units.h"

namespace fpfs {

struct StripeMap {
  uint32_t chunk_size = 0;  // bytes, a power of two
  uint16_t member_count = 0;

  MemberIndex start(FileId file) const { return static_cast<MemberIndex>((file >> 32) % member_count); }
  MemberIndex member_of(FileId file, ChunkIndex chunk) const {
    return static_cast<MemberIndex>((start(file) + chunk % member_count) % member_count);
  }
  SlotIndex natural_slot(ChunkIndex chunk) const { return chunk / member_count; }
  ChunkIndex chunk_of(uint64_t file_offset) const { return file_offset / chunk_size; }
  uint32_t offset_in_chunk(uint64_t file_offset) const { return static_cast<uint32_t>(file_offset % chunk_size); }
};

}  // namespace fpfs
