// Reservation: the chunks of a file that fallocate(2) set room aside for, and that nobody has written yet. It is a
// matter of counting in Room: nothing is stored, and the drives are asked for the space when a chunk is written, as its
// place is chosen then. Which member a chunk will lie on follows from its number and the file's id.
//
// Thread safety: none; the file's lock (Room has its own).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/file/chunk_ranges.h"
#include "engine/file/room.h"
#include "engine/layout/stripe.h"

namespace fpfs {

class Reservation {
 public:
  // Both outlive it.
  Reservation(Room& room, const StripeMap& stripes) : room_(room), stripes_(stripes) {}

  // Sets room aside for what of the chunks [first, stop) has none yet: that is added to `added`, and the members
  // concerned are marked in `members`.
  void add(FileId file, ChunkIndex first, ChunkIndex stop, ChunkRanges& added, PerMember<bool>& members);
  // The chunks [first, stop) have none any more: they are written, or nobody will.
  void remove(FileId file, ChunkIndex first, ChunkIndex stop);
  // Chunks lie elsewhere from now on: `change` changes the map.
  template <typename Change>
  void recount(FileId file, Change change) {
    std::vector<std::pair<ChunkIndex, ChunkIndex>> ranges;
    chunks_.for_each([&](ChunkIndex first, ChunkIndex stop) { ranges.emplace_back(first, stop); });
    const auto count = [&](auto add_or_remove) {
      for (const auto& [first, stop] : ranges) for_each_member(file, first, stop, add_or_remove);
    };
    count([this](MemberIndex member, uint64_t bytes) { room_.remove_reserved(member, bytes); });
    change();
    count([this](MemberIndex member, uint64_t bytes) { room_.add_reserved(member, bytes); });
  }
  bool contains(ChunkIndex chunk) const { return chunks_.contains(chunk); }
  bool is_empty() const { return chunks_.is_empty(); }

 private:
  // Calls visit(member, bytes) for each member on which chunks of [first, stop) lie.
  template <typename Visit>
  void for_each_member(FileId file, ChunkIndex first, ChunkIndex stop, Visit visit) const {
    const uint16_t width = stripes_.width();
    const auto visit_each = [&](ChunkIndex from, ChunkIndex to, uint64_t times) {
      for (ChunkIndex chunk = from; chunk < to; ++chunk)
        visit(stripes_.member_of(file, chunk), times * stripes_.chunk_size);
    };
    // A row has one chunk on each member.
    const ChunkIndex rows_begin = std::min(stop, round_up(first, width));
    const uint64_t rows = (stop - rows_begin) / width;
    visit_each(first, rows_begin, 1);
    if (rows > 0) visit_each(rows_begin, rows_begin + width, rows);
    visit_each(rows_begin + rows * width, stop, 1);
  }

  Room& room_;
  const StripeMap& stripes_;
  ChunkRanges chunks_;
};

}  // namespace fpfs
