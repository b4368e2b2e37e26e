#include "engine/file/reservation.h"

namespace fpfs {

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
