// RAID-0 arithmetic: where chunk c of a file lives when it is first written. Pure.
//
// Chunks go to the N members that take part, in an order: that of their indices, as long as none was ever to leave. The
// start is taken from the file id so that small files spread over all members. N chunks from a multiple of N on are a row,
// which has one on each member. Row r begins t(r) places behind the start, its others follow in the order. Chunk c goes to
// the member at place (start + t(c / N) + c) mod N, there into slot c / N of the file's object. Slots are chunk_size apart.
//
// t(r) is the sum of the digits of r in base N. So tensors that begin a multiple of N chunks apart, as those of 16 MiB do, do
// not all begin on one member. Arrays made before kFeatureTurnedRows have 0 in its place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/units.h"

namespace fpfs {

struct StripeMap {
  uint32_t chunk_size = 0;    // bytes, a power of two
  uint16_t member_count = 0;  // all indices are below it
  // Which members take part, not empty; null: all, by their indices. Outlives the map.
  const std::vector<MemberIndex>* order = nullptr;
  bool has_turned_rows = false;

  // Those that may hold anything, whether or not they take part.
  MemberRange members() const { return range_to(MemberIndex(member_count)); }
  uint16_t width() const { return order == nullptr ? member_count : static_cast<uint16_t>(order->size()); }
  MemberIndex at(uint64_t place) const {
    return order == nullptr ? MemberIndex(static_cast<uint16_t>(place)) : (*order)[place];
  }
  bool takes_part(MemberIndex member) const {
    return order == nullptr || std::find(order->begin(), order->end(), member) != order->end();
  }
  MemberIndex start(FileId file) const { return at((file.value() >> 32) % width()); }
  // The id, changed so that it has this start; as it is when that member does not take part.
  FileId with_start(FileId file, MemberIndex start) const {
    if (!takes_part(start)) return file;
    const uint64_t place = order == nullptr
                               ? start.value()
                               : static_cast<uint64_t>(std::find(order->begin(), order->end(), start) - order->begin());
    const uint64_t rows = (file.value() >> 32) / width();
    const uint64_t last = UINT32_MAX / width() - 1;  // whole rows only
    const uint64_t high = (rows < last ? rows : last) * width() + place;
    return FileId(high << 32 | (file.value() & UINT32_MAX));
  }
  MemberIndex member_of(FileId file, ChunkIndex chunk) const {
    const uint64_t places = (file.value() >> 32) % width() + chunk.value() % width() + turn(chunk.value() / width());
    return at(places % width());
  }
  SlotIndex natural_slot(ChunkIndex chunk) const { return SlotIndex(chunk.value() / width()); }
  ChunkIndex chunk_of(FileOffset offset) const { return fpfs::chunk_of(offset, chunk_size); }
  uint32_t offset_in_chunk(FileOffset offset) const { return fpfs::offset_in_chunk(offset, chunk_size); }
  // Those with bytes of [begin, end).
  IndexRange<ChunkKind> chunks_of(FileOffset begin, FileOffset end) const { return {chunk_of(begin), chunks_end(end)}; }
  // The first chunk without a byte before `end`: behind the last one of content that ends there.
  ChunkIndex chunks_end(FileOffset end) const { return chunk_of(end) + (offset_in_chunk(end) != 0 ? 1 : 0); }

 private:
  // The sum of the digits of the row's number in base width().
  uint64_t turn(uint64_t row) const {
    if (!has_turned_rows || width() == 1) return 0;
    uint64_t sum = 0;
    for (; row != 0; row /= width()) sum += row % width();
    return sum;
  }
};

}  // namespace fpfs
