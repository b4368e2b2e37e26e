// How a chunk of an open file moves to another member: it is read and checked as fpfs verify does it, and goes on as what
// was healed: to a free slot, then into a commit (healing.h). As it is stored: what is encoded stays so, and its checksum,
// which names array, file and chunk but no place, is the same.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/file/file.h"

namespace fpfs {

namespace {

struct MovingChunk {
  std::unique_ptr<std::byte, decltype(&std::free)> data{nullptr, &std::free};
  ChunkVerifier::Source::Place place;
};

}  // namespace

bool File::is_in_place(ChunkIndex chunk) const {
  MutexLock lock(mutex_);
  const Extent extent = content_.extent(chunk);
  return !extent.is_here() || extent.member == stripes_.member_of(content_.file_id(), chunk);
}

void File::move_chunk(ChunkIndex chunk, std::function<void()> arrived, std::function<void(bool)> told) {
  if (is_in_place(chunk)) {
    arrived();
    return told(true);
  }
  auto moving = std::make_shared<MovingChunk>();
  verifier_.verify(
      chunk, shared_from_this(),
      [self = shared_from_this(), chunk, moving, arrived = std::move(arrived), told = std::move(told)](
          const Status&, ChunkVerifier::Remedy) {
        if (moving->data == nullptr) {
          arrived();
          return told(self->is_in_place(chunk));  // it may be a hole by now, or was healed
        }
        self->write_home(chunk, moving->place.extent, moving->place.objects,
                         {.memory = moving, .data = moving->data.get(), .is_move = true, .arrived = arrived}, told);
      },
      [moving](const ChunkVerifier::Source::Place& place, const std::byte* stored) {
        const uint64_t size = round_up(place.extent.stored_length, kIoAlignment);
        moving->data.reset(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, size)));
        if (moving->data != nullptr) std::memcpy(moving->data.get(), stored, place.extent.stored_length);
        moving->place = place;
      });
}

}  // namespace fpfs
