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

}  // namespace

std::vector<std::vector<PlacedChunk>> chunks_by_member(const FileImage& image, uint16_t member_count) {
  std::vector<std::vector<PlacedChunk>> members(member_count);
  image.extents.for_each(0, [&members](ChunkIndex chunk, const Extent& extent) {
    members[extent.member].push_back({chunk, extent});
    return true;
  });
  for (auto& chunks : members)
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const PlacedChunk& a, const PlacedChunk& b) { return a.extent.slot < b.extent.slot; });
  return members;
}

ByteRange place_of(const Extent& extent, uint32_t chunk_size) {
  const uint64_t begin = extent.slot * chunk_size;
  return {begin, begin + extent.allocated()};
}

Result<bool> has_leftover_space(Storage& storage, Handle object, const std::vector<PlacedChunk>& chunks,
                                uint32_t chunk_size) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(object));
  const uint64_t slots_end = chunks.empty() ? 0 : (chunks.back().extent.slot + 1) * chunk_size;
  if (static_cast<uint64_t>(attributes.st_size) > slots_end) return true;
  if (allocated_bytes(attributes) > chunks.size() * chunk_size + kBookkeepingMax) return true;
  uint64_t gap_begin = 0;
  for (const PlacedChunk& placed : chunks) {
    const uint64_t gap_end = placed.extent.slot * chunk_size;
    if (gap_begin < gap_end) {
      const Result<uint64_t> data = storage.seek_data(object, gap_begin);
      if (!data.is_ok() && data.status().code() != StatusCode::kNotFound) return data.status();
      if (data.is_ok() && *data < gap_end) return true;
    }
    gap_begin = gap_end + chunk_size;
  }
  return false;
}

Result<uint64_t> free_leftover_space(Storage& storage, Handle object, const std::vector<PlacedChunk>& chunks,
                                     uint32_t chunk_size) {
  FPFS_ASSIGN_OR_RETURN(const struct stat before, storage.fstat(object));
  const uint64_t end = chunks.empty() ? 0 : place_of(chunks.back().extent, chunk_size).end;
  if (static_cast<uint64_t>(before.st_size) > end) FPFS_RETURN_IF_ERROR(storage.ftruncate(object, end));
  uint64_t gap_begin = 0;
  for (const PlacedChunk& placed : chunks) {
    const ByteRange place = place_of(placed.extent, chunk_size);
    if (gap_begin < place.begin) {
      const Status punched =
          storage.fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gap_begin, place.begin - gap_begin);
      // A filesystem that cannot punch keeps the space until the file goes.
      if (!punched.is_ok() && punched.code() != StatusCode::kUnsupported) return punched;
    }
    gap_begin = std::max(gap_begin, place.end);
  }
  FPFS_ASSIGN_OR_RETURN(const struct stat after, storage.fstat(object));
  return allocated_bytes(before) - std::min(allocated_bytes(before), allocated_bytes(after));
}

}  // namespace fpfs
