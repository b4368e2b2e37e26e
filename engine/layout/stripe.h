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

  MemberRange members() const { return range_to(MemberIndex(member_count)); }
  MemberIndex start(FileId file) const {
    return MemberIndex(static_cast<uint16_t>((file.value() >> 32) % member_count));
  }
  // The id, changed so that it has this start.
  FileId with_start(FileId file, MemberIndex start) const {
    const uint64_t rows = (file.value() >> 32) / member_count;
    const uint64_t last = UINT32_MAX / member_count - 1;  // whole rows only
    const uint64_t high = (rows < last ? rows : last) * member_count + start.value();
    return FileId(high << 32 | (file.value() & UINT32_MAX));
  }
  MemberIndex member_of(FileId file, ChunkIndex chunk) const {
    return MemberIndex(static_cast<uint16_t>((start(file).value() + chunk.value() % member_count) % member_count));
  }
  SlotIndex natural_slot(ChunkIndex chunk) const { return SlotIndex(chunk.value() / member_count); }
  ChunkIndex chunk_of(FileOffset offset) const { return fpfs::chunk_of(offset, chunk_size); }
  uint32_t offset_in_chunk(FileOffset offset) const { return fpfs::offset_in_chunk(offset, chunk_size); }
  // Those with bytes of [begin, end).
  IndexRange<ChunkKind> chunks_of(FileOffset begin, FileOffset end) const { return {chunk_of(begin), chunks_end(end)}; }
  // The first chunk without a byte before `end`: behind the last one of content that ends there.
  ChunkIndex chunks_end(FileOffset end) const { return chunk_of(end) + (offset_in_chunk(end) != 0 ? 1 : 0); }
};

}  // namespace fpfs
