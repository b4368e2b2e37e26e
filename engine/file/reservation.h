// Reservation: the chunks of a file that fallocate(2) set room aside for, and that nobody has written yet. It is a
// matter of counting in Room: nothing is stored, and the drives are asked for the space when a chunk is written, as its
// place is chosen then. Which member a chunk will lie on follows from its number and the file's id.
//
// Thread safety: none; the file's lock (Room has its own).
#pragma once

#include <cstdint>
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
  bool contains(ChunkIndex chunk) const { return chunks_.contains(chunk); }
  bool is_empty() const { return chunks_.is_empty(); }

 private:
  template <typename Visit>
  void for_each_member(FileId file, ChunkIndex first, ChunkIndex stop, Visit visit) const;

  Room& room_;
  const StripeMap& stripes_;
  ChunkRanges chunks_;
};

}  // namespace fpfs
