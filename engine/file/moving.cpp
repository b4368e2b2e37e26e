// How a chunk of an open file moves to another member: it is read and checked as fpfs verify does it, and goes on as what
// was healed: to a free slot, then into a commit (healing.h). As it is stored: what is encoded stays so, and its checksum,
// which names array, file and chunk but no place, is the same.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

namespace {

struct MovingChunk {
  std::unique_ptr<std::byte, decltype(&std::free)> data{nullptr, &std::free};
  ChunkVerifier::Source::Place place;
};

}  // namespace

StripeMap File::stripes() const {
  MutexLock lock(mutex_);
  return stripes_;
}

// What is in memory, and what is set aside, is counted for other members from here on. What is on its way arrives.
void File::follow_members() {
  MutexLock lock(mutex_);
  const std::optional<StripeMap> now = context_.array.stripes_among(member_count_);
  if (!now || now->order == stripes_.order) return;
  const auto for_each_dirty = [this](auto count) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    cache_.for_each_dirty([&](const CachedChunk& chunk)
                              FPFS_NO_THREAD_SAFETY_ANALYSIS { count(member_of(chunk.index), stripes_.chunk_size); });
  };
  for_each_dirty([this](MemberIndex member, uint64_t bytes) { context_.room->remove_unstored(member, bytes); });
  reserved_.recount(content_.file_id(), [&]() FPFS_NO_THREAD_SAFETY_ANALYSIS { stripes_ = *now; });
  for_each_dirty([this](MemberIndex member, uint64_t bytes) { context_.room->add_unstored(member, bytes); });
}

bool File::is_on(MemberIndex member) const {
  MutexLock lock(mutex_);
  return member.value() < member_count_ && (stripes_.takes_part(member) || !placement_.holds_nothing_on(member));
}

// Nothing is written to these members, so what is empty stays so; and none is taken back meanwhile. (The file may not
// have followed yet, or cannot as it knows no other member: it may still write there.)
void File::drop_left_objects() {
  if (!context_.array.is_any_leaving()) return;
  const MutexLock dropping(context_.dropping);
  // What is known of the file may come from a commit that is not on the drive, and never will be.
  if (!context_.health.failure().is_ok()) return;
  std::shared_ptr<ObjectSet> objects;
  std::vector<MemberIndex> empty;
  {
    MutexLock lock(mutex_);
    objects = placement_.objects();
    if (objects == nullptr || abandoned_ || context_.array.read_only()) return;
    for (const MemberIndex m : objects->members())
      if (context_.array.is_leaving(m) && !stripes_.takes_part(m) && placement_.holds_nothing_on(m)) empty.push_back(m);
  }
  for (const MemberIndex m : empty) {
    const Result<bool> dropped = objects->drop(m);
    if (!dropped.is_ok())
      log(LogLevel::kWarning, "{}: its object on member {}, which is leaving, cannot be removed: {}", path(), m,
          dropped.status().message());
  }
}

bool File::is_in_place(ChunkIndex chunk) const {
  MutexLock lock(mutex_);
  const Extent extent = content_.extent(chunk);
  return !extent.is_here() || extent.member == stripes_.member_of(content_.file_id(), chunk);
}

// Of a chunk that was read, a moment after it was not moved: what stands against it now.
Status File::why_left(ChunkIndex chunk, const Extent& extent) {
  if (context_.array.read_only()) return Status::error(StatusCode::kReadOnly, "the array turned read-only");
  MutexLock lock(mutex_);
  if (!error_.is_ok()) return error_;
  if (names_.is_nameless()) return Status::error(StatusCode::kBusy, "it was removed, and is open still; close it");
  if (content_.is_changed() || writers_.is_unfinished(false))
    return Status::error(StatusCode::kBusy, "it is being written; try again when its writer has closed it");
  if (!home_of(chunk, extent, true))
    return Status::error(StatusCode::kNoSpace,
                         context_.array.is_leaving(extent.member)
                             ? "no other member has room for it; make room"
                             : fmt::format("member {0} ({1}), where it belongs, has no room; make room there",
                                           member_of(chunk), context_.array.member(member_of(chunk)).path));
  if (healing_.is_refused())
    return Status::error(StatusCode::kIoError, "what was written of it elsewhere failed, see the log");
  return Status::error(StatusCode::kBusy, "it was changed meanwhile; try again");
}

void File::move_chunk(ChunkIndex chunk, std::function<void()> arrived,
                      std::function<void(const Status& why_left)> told) {
  if (is_in_place(chunk)) {
    arrived();
    return told(Status::ok());
  }
  auto moving = std::make_shared<MovingChunk>();
  verifier_.verify(
      chunk, shared_from_this(),
      [self = shared_from_this(), chunk, moving, arrived = std::move(arrived), told = std::move(told)](
          const Status& status, ChunkVerifier::Remedy) {
        if (moving->data == nullptr) {
          arrived();
          if (self->is_in_place(chunk)) return told(Status::ok());  // it may be a hole by now, or was healed
          return told(status.is_ok() ? Status::from_errno(ENOMEM, "allocate a chunk")
                                     : status.with_context("it cannot be read"));
        }
        const Extent extent = moving->place.extent;
        // The file keeps what waits for its commit, which must not keep the file.
        const std::weak_ptr<File> weak = self;
        self->write_home(chunk, moving->place.extent, moving->place.objects,
                         {.memory = moving, .data = moving->data.get(), .is_move = true, .arrived = arrived},
                         [weak, chunk, extent, told](bool is_in_place) {
                           if (is_in_place) return told(Status::ok());
                           const std::shared_ptr<File> file = weak.lock();
                           told(file != nullptr ? file->why_left(chunk, extent)
                                                : Status::error(StatusCode::kCancelled, "the array was closed"));
                         });
      },
      [moving](const ChunkVerifier::Source::Place& place, const std::byte* stored) {
        const uint64_t size = round_up(place.extent.stored_length, kIoAlignment);
        moving->data.reset(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, size)));
        if (moving->data != nullptr) std::memcpy(moving->data.get(), stored, place.extent.stored_length);
        moving->place = place;
      });
}

}  // namespace fpfs
