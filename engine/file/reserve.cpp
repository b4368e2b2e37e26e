// fallocate: room of the drives that is set aside for chunks which nobody has written yet.
//
// It is a matter of counting (Room): the drives are asked for the space itself when a chunk is written, as its place is
// chosen then. So nothing of it is stored, and a crash leaves nothing behind.
#include <algorithm>
#include <vector>

#include "engine/file/file.h"

namespace fpfs {

namespace {
// No drive holds as much, and sums of it stay far from an overflow.
constexpr uint64_t kReservationMax = uint64_t{1} << 58;

// Calls visit(chunk, count) for the first chunk on each member and how many of [first, stop) lie there.
template <typename Visit>
void for_each_member(const StripeMap& stripes, ChunkIndex first, ChunkIndex stop, Visit visit) {
  for (ChunkIndex chunk = first; chunk < std::min(stop, first + stripes.member_count); ++chunk)
    visit(chunk, (stop - 1 - chunk) / stripes.member_count + 1);
}
}  // namespace

Status File::reserve(uint64_t offset, uint64_t length, Room::Sent& sent, bool& in_flight) {
  in_flight = false;
  const uint64_t end = offset + length;
  const Status no_room = Status::error(StatusCode::kNoSpace, "the drives have no room for this range");
  if (length > kReservationMax) return no_room;
  ChunkRanges added;
  std::vector<bool> touched(context_.stripes.member_count, false);
  {
    MutexLock lock(mutex_);
    if (context_.options.null_write || length == 0) return Status::ok();
    if (end <= context_.options.inline_max && objects_ == nullptr) return Status::ok();  // stays in the sidecar
    ChunkIndex next = context_.stripes.chunk_of(offset);
    const ChunkIndex stop = context_.stripes.chunk_of(end - 1) + 1;
    std::vector<ChunkIndex> taken;
    extents_.for_each(next, [&taken, stop](ChunkIndex chunk, const Extent&) {
      if (chunk < stop) taken.push_back(chunk);
      return chunk < stop;
    });
    table_.for_each([&taken, next, stop](const CachedChunk& chunk) {
      const bool going = chunk.dirty || chunk.state == CachedChunk::State::kWriting;
      if (going && chunk.index >= next && chunk.index < stop) taken.push_back(chunk.index);
    });
    std::sort(taken.begin(), taken.end());
    taken.push_back(stop);
    for (ChunkIndex chunk : taken) {
      if (next < chunk) reserve_chunks(next, chunk, added, touched);
      next = std::max(next, chunk + 1);
    }
  }
  // Counted first, so that of two who want the last room not both get it.
  for (MemberIndex m = 0; m < touched.size(); ++m) {
    if (!touched[m] || context_.room->fits(m, 0)) continue;
    if (sent.empty()) sent = context_.room->sent();
    in_flight = context_.room->is_in_flight(m, sent);
    MutexLock lock(mutex_);
    added.remove(0, UINT64_MAX,
                 [this](ChunkIndex first, ChunkIndex stop) FPFS_NO_THREAD_SAFETY_ANALYSIS { unreserve(first, stop); });
    return no_room;
  }
  return Status::ok();
}

void File::reserve_chunks(ChunkIndex first, ChunkIndex stop, ChunkRanges& added, std::vector<bool>& touched) {
  reserved_.add(first, stop, [&](ChunkIndex from, ChunkIndex to) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    added.add(from, to, [](ChunkIndex, ChunkIndex) {});
    for_each_member(context_.stripes, from, to, [&](ChunkIndex chunk, uint64_t count) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      touched[member_of(chunk)] = true;
      context_.room->add_reserved(member_of(chunk), count * context_.stripes.chunk_size);
    });
  });
}

void File::unreserve(ChunkIndex first, ChunkIndex stop) {
  reserved_.remove(first, stop, [this](ChunkIndex from, ChunkIndex to) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    for_each_member(context_.stripes, from, to,
                    [this](ChunkIndex chunk, uint64_t count) FPFS_NO_THREAD_SAFETY_ANALYSIS {
                      context_.room->remove_reserved(member_of(chunk), count * context_.stripes.chunk_size);
                    });
  });
}

}  // namespace fpfs
