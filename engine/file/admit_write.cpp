// Whether a write still fits the drives, asked while some drive is nearly full (room.h).
#include <chrono>
#include <vector>

#include "engine/file/file.h"

namespace fpfs {

namespace {
constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
constexpr unsigned kLooksMax = 2000;  // other writers may keep something in flight for ever
}  // namespace

// A write that does not fit is refused before any of it is taken: what was written before is not touched. First
// everything that is about to be freed is, and what is on its way to the drives arrives.
void File::write_if_room(WriteRequest& request, bool may_free) {
  bool in_flight = false;
  if (has_room(request, in_flight)) return continue_write(request);
  if (in_flight && request.looks_for_room++ < kLooksMax) {
    context_.environment->executor().post_after(
        kBetweenLooks, [self = shared_from_this(), &request, may_free] { self->write_if_room(request, may_free); });
    return;
  }
  if (may_free) {
    context_.post([self = shared_from_this(), &request] {
      self->context_.finish_frees();
      self->write_if_room(request, false);
    });
    return;
  }
  request.refusal = Status::error(StatusCode::kNoSpace, "the drives have no room for this write");
  continue_write(request);
}

bool File::has_room(const WriteRequest& request, bool& in_flight) {
  const uint32_t chunk_size = context_.stripes.chunk_size;
  std::vector<uint64_t> needs(context_.stripes.member_count, 0);
  {
    MutexLock lock(mutex_);
    const uint64_t end = request.offset + request.length;
    if (context_.options.null_write || request.length == 0 || end > kFileSizeMax) return true;
    const uint64_t size = std::max(size_, end);
    if (size <= context_.options.inline_max && objects_ == nullptr && writes_in_flight_ == 0)
      return context_.room->fits_tree(round_up(size, kIoAlignment));
    for (ChunkIndex index = context_.stripes.chunk_of(request.offset); index * chunk_size < end; ++index) {
      const CachedChunk* chunk = table_.find(index);
      const Extent& extent = extents_.get(index);
      // Has its room, however far it will be filled.
      if ((chunk != nullptr && chunk->dirty) || reserved_.contains(index)) continue;
      // What was stored since the last commit is overwritten in place.
      const uint64_t has = extent.exists() && extent.epoch == epoch_ ? extent.allocated() : 0;
      needs[member_of(index)] += chunk_size - has;
    }
  }
  for (MemberIndex m = 0; m < needs.size(); ++m)
    if (needs[m] > 0 && !context_.room->fits(m, needs[m])) {
      in_flight = context_.room->is_in_flight(m);
      return false;
    }
  return true;
}

}  // namespace fpfs
