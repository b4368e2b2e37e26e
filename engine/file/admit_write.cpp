// Whether a write may be taken: it still fits the drives, asked while some drive is nearly full (room.h), and the
// memory for the indexes of open files, asked when there is none left.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

namespace {
constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
constexpr unsigned kLooksForRoomMax = 2000;  // a drive may hang
}  // namespace

// A write that does not fit is refused before any of it is taken: what was written before is not touched. First
// everything that is about to be freed is, and what is on its way to the drives arrives; of both, what was there when
// the write came, as others may go on for ever.
void File::write_if_room(WriteRequest& request, bool may_free) {
  bool in_flight = false;
  if (has_room(request, in_flight)) return continue_write(request);
  if (in_flight && request.looks_for_room++ < kLooksForRoomMax) {
    context_.environment.executor().post_after(
        kBetweenLooks, [self = shared_from_this(), &request, may_free] { self->write_if_room(request, may_free); });
    return;
  }
  if (may_free) {
    context_.tasks.post([self = shared_from_this(), &request] {
      self->context_.reclaimer->finish();
      self->write_if_room(request, false);
    });
    return;
  }
  const std::string name = path();  // a line for each file, whichever of the members is full at the moment
  log_about("no room: " + name, LogLevel::kWarning, "{}: {}; it fails with ENOSPC", name, request.refusal.message());
  continue_write(request);
}

// Refused as a whole, like a write that does not fit the drives.
void File::refuse_new_chunks(WriteRequest& request) {
  MutexLock lock(mutex_);
  const FileOffset end = request.offset + request.length;
  if (context_.options.null_write || request.length == 0 || !fits_a_file(request.offset, request.length)) return;
  if (content_.size_with(end) <= context_.options.inline_max && placement_.objects() == nullptr)
    return;  // goes to the sidecar
  uint64_t added = 0;
  for (const ChunkIndex index : context_.stripes.chunks_of(request.offset, end))
    if (cache_.find(index) == nullptr && !content_.extent(index).exists()) ++added;
  if (added > 0) request.refusal = context_.indexes.refuse(added);
}

// If not, request.refusal says what is full.
bool File::has_room(WriteRequest& request, bool& in_flight) {
  request.refusal = Status::ok();
  const auto refuse = [&request](const std::string& place) {
    request.refusal = Status::error(StatusCode::kNoSpace, fmt::format("{} has no room for what is written", place));
    return false;
  };
  const uint32_t chunk_size = context_.stripes.chunk_size;
  PerMember<uint64_t> needs(member_count_, 0);
  {
    MutexLock lock(mutex_);
    const FileOffset end = request.offset + request.length;
    if (context_.options.null_write || request.length == 0 || !fits_a_file(request.offset, request.length)) return true;
    const uint64_t size = content_.size_with(end);
    if (size <= context_.options.inline_max && placement_.objects() == nullptr && writes_in_flight_ == 0)
      return context_.room->fits_tree(round_up(size, kIoAlignment)) ||
             refuse(context_.array.metadata_path() + ", where the names are,");
    for (const ChunkIndex index : context_.stripes.chunks_of(request.offset, end)) {
      const CachedChunk* chunk = cache_.find(index);
      const Extent extent = content_.extent(index);
      // Has its room, however far it will be filled.
      if ((chunk != nullptr && chunk->dirty) || reserved_.contains(index)) continue;
      // What was stored since the last commit is overwritten in place.
      const MemberIndex member = member_of(index);
      const bool is_there = extent.is_here() && content_.is_new(extent) && extent.member == member;
      needs[member] += chunk_size - (is_there ? extent.allocated() : 0);
    }
  }
  for (const MemberIndex m : needs.indices())
    if (needs[m] > 0 && !context_.room->fits(m, needs[m])) {
      if (request.sent_before.empty()) request.sent_before = context_.room->sent();
      in_flight = context_.room->is_in_flight(m, request.sent_before);
      return refuse(context_.array.name_of(m));
    }
  return true;
}

}  // namespace fpfs
