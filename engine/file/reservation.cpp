#include "engine/file/reservation.h"

#include <algorithm>

namespace fpfs {

// Calls visit(member, bytes) for each member on which chunks of [first, stop) lie.
template <typename Visit>
void Reservation::for_each_member(FileId file, ChunkIndex first, ChunkIndex stop, Visit visit) const {
  for (ChunkIndex chunk = first; chunk < std::min(stop, first + stripes_.member_count); ++chunk) {
    const uint64_t count = (stop - 1 - chunk) / stripes_.member_count + 1;
    visit(stripes_.member_of(file, chunk), count * stripes_.chunk_size);
  }
}

void Reservation::add(FileId file, ChunkIndex first, ChunkIndex stop, ChunkRanges& added, PerMember<bool>& members) {
  chunks_.add(first, stop, [&](ChunkIndex from, ChunkIndex to) {
    added.add(from, to, [](ChunkIndex, ChunkIndex) {});
    for_each_member(file, from, to, [&](MemberIndex member, uint64_t bytes) {
      members[member] = true;
      room_.add_reserved(member, bytes);
    });
  });
}

void Reservation::remove(FileId file, ChunkIndex first, ChunkIndex stop) {
  chunks_.remove(first, stop, [&](ChunkIndex from, ChunkIndex to) {
    for_each_member(file, from, to,
                    [this](MemberIndex member, uint64_t bytes) { room_.remove_reserved(member, bytes); });
  });
}

}  // namespace fpfs
