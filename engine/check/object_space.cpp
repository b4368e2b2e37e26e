#include "engine/check/object_space.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>

namespace fpfs {

namespace {

constexpr uint64_t kStatBlock = 512;
// Filesystems count blocks of their own bookkeeping to the file.
constexpr uint64_t kBookkeepingMax = 256 * kKiB;

uint64_t allocated_bytes(const struct stat& attributes) {
  return static_cast<uint64_t>(attributes.st_blocks) * kStatBlock;
}

Result<bool> has_data(Storage& storage, Handle object, ObjectOffset begin, ObjectOffset end) {
  if (begin >= end) return false;
  const Result<uint64_t> data = storage.seek_data(object, begin.value());
  if (data.status().code() == StatusCode::kNotFound) return false;
  if (!data.is_ok()) return data.status();
  return ObjectOffset(*data) < end;
}

}  // namespace

PerMember<std::vector<PlacedChunk>> chunks_by_member(const FileImage& image, uint16_t member_count) {
  PerMember<std::vector<PlacedChunk>> members(member_count);
  image.extents.for_each(ChunkIndex(0), [&members](ChunkIndex chunk, const Extent& extent) {
    if (extent.is_here()) members[extent.member].push_back({chunk, extent});
    return true;
  });
  for (auto& chunks : members)
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const PlacedChunk& a, const PlacedChunk& b) { return a.extent.slot < b.extent.slot; });
  return members;
}

ObjectRange place_of(const Extent& extent, uint32_t chunk_size) {
  const ObjectOffset begin = offset_of(extent.slot, chunk_size);
  return {begin, begin + extent.allocated()};
}

Result<bool> has_leftover_space(Storage& storage, Handle object, const std::vector<PlacedChunk>& chunks,
                                uint32_t chunk_size) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(object));
  const ObjectOffset size(static_cast<uint64_t>(attributes.st_size));
  const ObjectOffset slots_end =
      chunks.empty() ? ObjectOffset(0) : offset_of(chunks.back().extent.slot + 1, chunk_size);
  // Space that was allocated and never written shows as a hole: only the sum of the blocks tells. Inside slots it is
  // allowed, so each counts whole, unless the object goes on behind them: then it may be what was allocated ahead.
  uint64_t needed = 0;
  for (const PlacedChunk& placed : chunks) needed += size > slots_end ? placed.extent.allocated() : chunk_size;
  if (allocated_bytes(attributes) > needed + kBookkeepingMax) return true;

  ObjectOffset gap_begin;
  for (const PlacedChunk& placed : chunks) {
    const ObjectOffset gap_end = offset_of(placed.extent.slot, chunk_size);
    FPFS_ASSIGN_OR_RETURN(const bool in_gap, has_data(storage, object, gap_begin, gap_end));
    if (in_gap) return true;
    gap_begin = gap_end + chunk_size;
  }
  // A size beyond the last slot takes no space by itself: what lay there may have been punched out.
  return has_data(storage, object, slots_end, size);
}

Result<uint64_t> free_leftover_space(Storage& storage, Handle object, const std::vector<PlacedChunk>& chunks,
                                     uint32_t chunk_size) {
  FPFS_ASSIGN_OR_RETURN(const struct stat before, storage.fstat(object));
  const ObjectOffset end = chunks.empty() ? ObjectOffset(0) : place_of(chunks.back().extent, chunk_size).end;
  const ObjectOffset size_before(static_cast<uint64_t>(before.st_size));
  const ObjectOffset size = std::min(end, size_before);
  if (size_before > end) FPFS_RETURN_IF_ERROR(storage.ftruncate(object, end.value()));
  ObjectOffset gap_begin;
  for (const PlacedChunk& placed : chunks) {
    const ObjectRange place = place_of(placed.extent, chunk_size);
    // Not behind its end, where damage may place a chunk and a filesystem refuses to punch.
    const ObjectOffset gap_end = std::min(place.begin, size);
    if (gap_begin < gap_end) {
      const Status punched =
          storage.fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gap_begin.value(), gap_end - gap_begin);
      // A filesystem that cannot punch keeps the space until the file goes.
      if (!punched.is_ok() && punched.code() != StatusCode::kUnsupported) return punched;
    }
    gap_begin = std::max(gap_begin, place.end);
  }
  FPFS_ASSIGN_OR_RETURN(const struct stat after, storage.fstat(object));
  return allocated_bytes(before) - std::min(allocated_bytes(before), allocated_bytes(after));
}

}  // namespace fpfs
