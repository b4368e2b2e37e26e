// fallocate: room of the drives that is set aside for chunks which nobody has written yet (reservation.h). Nothing of
// it is stored, and a crash leaves nothing behind.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "engine/file/file.h"

namespace fpfs {

namespace {
// No drive holds as much, and sums of it stay far from an overflow.
constexpr uint64_t kReservationMax = uint64_t{1} << 58;
}  // namespace

Status File::reserve(FileOffset offset, uint64_t length, Room::Sent& sent, bool& in_flight) {
  in_flight = false;
  const FileOffset end = offset + length;
  if (length > kReservationMax) return Status::error(StatusCode::kNoSpace, "no drive has so much room");
  ChunkRanges added;
  PerMember<bool> touched(member_count_, false);
  {
    MutexLock lock(mutex_);
    if (context_.options.null_write || length == 0) return Status::ok();
    if (end <= FileOffset(context_.options.inline_max) && placement_.objects() == nullptr)
      return Status::ok();  // stays in the sidecar
    ChunkIndex next = context_.stripes.chunk_of(offset);
    const ChunkIndex stop = context_.stripes.chunks_end(end);
    std::vector<ChunkIndex> taken;
    content_.extents().for_each(next, [&taken, stop](ChunkIndex chunk, const Extent&) {
      if (chunk < stop) taken.push_back(chunk);
      return chunk < stop;
    });
    cache_.for_each([&taken, next, stop](const CachedChunk& chunk) {
      const bool going = chunk.dirty || chunk.state == CachedChunk::State::kWriting;
      if (going && chunk.index >= next && chunk.index < stop) taken.push_back(chunk.index);
    });
    std::sort(taken.begin(), taken.end());
    taken.push_back(stop);
    for (ChunkIndex chunk : taken) {
      if (next < chunk) reserved_.add(file_id(), next, chunk, added, touched);
      next = std::max(next, chunk + 1);
    }
  }
  // Counted first, so that of two who want the last room not both get it.
  for (const MemberIndex m : touched.indices()) {
    if (!touched[m] || context_.room->fits(m, 0)) continue;
    if (sent.empty()) sent = context_.room->sent();
    in_flight = context_.room->is_in_flight(m, sent);
    MutexLock lock(mutex_);
    added.remove(ChunkIndex(0), kChunksEnd, [this](ChunkIndex first, ChunkIndex stop) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      reserved_.remove(content_.file_id(), first, stop);
    });
    return Status::error(StatusCode::kNoSpace,
                         fmt::format("{} has no room for what is to be set aside", context_.array.name_of(m)));
  }
  return Status::ok();
}

}  // namespace fpfs
