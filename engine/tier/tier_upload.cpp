#include "engine/tier/tier_upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr const char* kMarkName = "fastpersistfs";

uint64_t divide_up(uint64_t value, uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

uint64_t now_ns(Environment& environment) {
  const struct timespec now = environment.now();
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

// A part on its way: read, summed up, sent.
struct TierUpload::Part : std::enable_shared_from_this<Part> {
  struct Chunk {
    ChunkTransfer transfer;
    Part* part = nullptr;
    uint32_t length = 0;   // of the content
    uint32_t visible = 0;  // that is stored; the rest is zeros
    uint64_t checksum = 0;
  };

  Self upload;
  uint64_t number = 0;  // from 0
  uint64_t offset = 0, length = 0;
  std::span<std::byte> memory;  // whole chunks
  size_t count = 0;
  std::unique_ptr<Chunk[]> chunks;
  unsigned attempt = 0;
  std::atomic<size_t> pending{0};
  std::atomic<size_t> pending_here{0};  // of those: from members
  std::shared_ptr<Part> self;           // while such are read
  Mutex mutex;
  Status failure FPFS_GUARDED_BY(mutex);

  std::span<const std::byte> content() const { return memory.first(length); }
  // It needs no keeping any more.
  void chunk_was_here() {
    if (pending_here.fetch_sub(1) == 1) self = nullptr;
  }
};

uint64_t TierUpload::part_size_for(const TierTools& tools, uint64_t size) {
  const uint64_t least = std::max(divide_up(size, tools.store.part_count_max()), tools.store.part_size_min());
  const uint64_t part = std::max(tools.part_size, round_up(least, tools.chunk_size));
  return part <= tools.memory.largest() && part <= tools.store.part_size_max() ? part : 0;
}

TierUpload::TierUpload(const TierTools& tools, Source source, Done done)
    : tools_(tools),
      source_(std::move(source)),
      done_(std::move(done)),
      metadata_({{kMarkName, source_.mark}}),
      size_(source_.image.size),
      part_size_(part_size_for(tools, source_.image.size)) {}

void TierUpload::start(const TierTools& tools, Source source, Done done) {
  std::make_shared<TierUpload>(tools, std::move(source), std::move(done))->begin();
}

uint64_t TierUpload::part_count() const {
  return std::max<uint64_t>(1, divide_up(size_, part_size_));
}

bool TierUpload::has_failed() const {
  const MutexLock lock(mutex_);
  return !failure_.status.is_ok();
}

void TierUpload::begin() {
  if (part_size_ == 0) {
    fail(Status::error(
             StatusCode::kTooLarge,
             fmt::format("{} need larger parts than the memory for copies allows, or the store", format_size(size_))),
         false);
    return end();
  }
  {
    const MutexLock lock(mutex_);
    content_.checksums.resize(divide_up(size_, tools_.chunk_size));
    parts_.resize(part_count());
  }
  if (source_.version != nullptr) objects_ = source_.version->objects(source_.image);
  if (part_count() > 1) return clear_leftovers();
  take_next_part();
}

// --- parts -----------------------------------------------------------------------------------------------------------

void TierUpload::take_next_part() {
  uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    if (!failure_.status.is_ok() || next_part_ == parts_.size()) return;
    number = next_part_++;
    ++in_flight_;
  }
  const uint64_t bytes = std::min(part_size_, size_ - number * part_size_);
  tools_.memory.take(bytes, [self = shared_from_this(), number](std::span<std::byte> memory) {
    self->part_has_memory(number, memory);
  });
}

void TierUpload::part_has_memory(uint64_t number, std::span<std::byte> memory) {
  const auto part = std::make_shared<Part>();
  part->upload = shared_from_this();
  part->number = number;
  part->offset = number * part_size_;
  part->length = std::min(part_size_, size_ - part->offset);
  part->memory = memory;
  if (memory.empty()) {
    fail(Status::error(StatusCode::kCancelled, "copying has ended"), true);
    return end_part(part);
  }
  read(part);
  take_next_part();
}

// Only the chunks that lie on members take a transfer each.
void TierUpload::read(const std::shared_ptr<Part>& part) {
  const uint32_t chunk_size = tools_.chunk_size;
  part->count = divide_up(part->length, chunk_size);
  part->chunks = std::make_unique<Part::Chunk[]>(part->count);
  part->pending = part->count + 1;
  part->pending_here = part->count + 1;
  part->self = part;
  const ChunkIndex first = chunk_of(FileOffset(part->offset), chunk_size);
  for (size_t i = 0; i < part->count; ++i) {
    Part::Chunk& chunk = part->chunks[i];
    const Extent extent = source_.image.extents.get(first + i);
    chunk.part = part.get();
    chunk.length = static_cast<uint32_t>(std::min<uint64_t>(chunk_size, part->length - i * chunk_size));
    if (!extent.exists()) {
      const std::vector<std::byte>& inlined = source_.image.inline_data;
      if (first + i == ChunkIndex(0) && !inlined.empty()) {
        chunk.visible = static_cast<uint32_t>(std::min<uint64_t>(inlined.size(), chunk.length));
        std::memcpy(part->memory.data(), inlined.data(), chunk.visible);
      }
      chunk_read(part, first + i, Status::ok());
      part->chunk_was_here();
      continue;
    }
    chunk.visible = std::min(extent.visible_length, chunk.length);
    chunk.transfer.chunk = first + i;
    chunk.transfer.extent = extent;
    chunk.transfer.objects = objects_;
    chunk.transfer.data = part->memory.data() + i * chunk_size;
    chunk.transfer.owner = &chunk;
    chunk.transfer.done = [](ChunkTransfer& transfer, const ObjectSet&, const Status& status) {
      const std::shared_ptr<Part> read_part = static_cast<Part::Chunk*>(transfer.owner)->part->shared_from_this();
      const bool is_here = transfer.extent.is_here();
      read_part->upload->chunk_read(read_part, transfer.chunk, status);
      if (is_here) read_part->chunk_was_here();
    };
    source_.version->read(chunk.transfer, part);
    if (extent.is_away()) part->chunk_was_here();
  }
  chunk_read(part, first, Status::ok());
  part->chunk_was_here();
}

void TierUpload::chunk_read(const std::shared_ptr<Part>& part, ChunkIndex chunk, const Status& status) {
  if (!status.is_ok()) {
    const MutexLock lock(part->mutex);
    part->failure = status.with_context(fmt::format("chunk {}", chunk));
  }
  if (part->pending.fetch_sub(1) > 1) return;
  tools_.environment.workers().post([part] { part->upload->sum_up(part); });
}

void TierUpload::sum_up(const std::shared_ptr<Part>& part) {
  Status failure;
  {
    const MutexLock lock(part->mutex);
    failure = part->failure;
  }
  if (!failure.is_ok()) {
    fail(failure, false);
    return end_part(part);
  }
  for (size_t i = 0; i < part->count; ++i) {
    Part::Chunk& chunk = part->chunks[i];
    const std::span<std::byte> bytes = part->memory.subspan(i * tools_.chunk_size, chunk.length);
    std::fill(bytes.begin() + chunk.visible, bytes.end(), std::byte{0});
    chunk.checksum = hash_bytes(bytes);
  }
  {
    const MutexLock lock(mutex_);
    uint64_t* const sums = content_.checksums.data() + part->offset / tools_.chunk_size;
    for (size_t i = 0; i < part->count; ++i) sums[i] = part->chunks[i].checksum;
  }
  const auto delay = tools_.pace.send(part->length, now_ns(tools_.environment));
  if (delay.count() == 0) return send(part);
  tools_.timer.after(delay, [self = shared_from_this(), part] { self->send(part); });
}

void TierUpload::send(const std::shared_ptr<Part>& part) {
  if (has_failed()) return end_part(part);
  if (tools_.timer.is_stopping()) {
    fail(Status::error(StatusCode::kCancelled, "copying has ended"), true);
    return end_part(part);
  }
  const Self self = shared_from_this();
  if (!is_begun_) {
    return tools_.store.put(source_.key, part->content(), metadata_, [self, part](Result<StoredObject> stored) {
      if (stored.is_ok()) {
        const MutexLock lock(self->mutex_);
        self->content_.tag = stored->tag;
        self->content_.verified = stored->verified;
      }
      self->part_sent(part, stored.status());
    });
  }
  tools_.store.put_part(upload_, static_cast<uint32_t>(part->number + 1), part->offset, part->content(),
                        [self, part](Result<StoredPart> stored) {
                          if (stored.is_ok()) {
                            const MutexLock lock(self->mutex_);
                            self->parts_[part->number] = *stored;
                          }
                          self->part_sent(part, stored.status());
                        });
}

void TierUpload::part_sent(const std::shared_ptr<Part>& part, const Status& status) {
  if (status.is_ok()) {
    tools_.bytes_sent.fetch_add(part->length);
  } else {
    const Self self = shared_from_this();
    if (tries_again(status, part->attempt++, [self, part] { self->send(part); })) return;
    fail(status, true);
  }
  end_part(part);
}

void TierUpload::end_part(const std::shared_ptr<Part>& part) {
  if (!part->memory.empty()) tools_.memory.give_back(std::exchange(part->memory, {}));
  bool has_failed = false;
  {
    const MutexLock lock(mutex_);
    --in_flight_;
    has_failed = !failure_.status.is_ok();
    if (in_flight_ > 0 || (!has_failed && next_part_ < parts_.size())) return;
  }
  if (has_failed || !is_begun_) return end();
  finish_upload(0);
}

// --- an upload in parts ----------------------------------------------------------------------------------------------

// What an upload of this key has left that was cut off. Nobody else writes this key.
void TierUpload::clear_leftovers() {
  tools_.store.uploads(source_.key, [self = shared_from_this()](Result<std::vector<Upload>> found) {
    if (found.is_ok())
      for (const Upload& upload : *found)
        if (upload.key == self->source_.key) self->tools_.store.abort_upload(upload, [self](const Status&) {});
    self->begin_upload(0);
  });
}

void TierUpload::begin_upload(unsigned attempt) {
  if (tools_.timer.is_stopping()) {
    fail(Status::error(StatusCode::kCancelled, "copying has ended"), true);
    return end();
  }
  tools_.store.begin_upload(source_.key, metadata_, [self = shared_from_this(), attempt](Result<Upload> begun) {
    if (begun.is_ok()) {
      self->upload_ = *std::move(begun);
      self->is_begun_ = true;
      return self->take_next_part();
    }
    if (self->tries_again(begun.status(), attempt, [self, attempt] { self->begin_upload(attempt + 1); })) return;
    self->fail(begun.status(), true);
    self->end();
  });
}

void TierUpload::finish_upload(unsigned attempt) {
  std::vector<StoredPart> parts;
  {
    const MutexLock lock(mutex_);
    parts = parts_;
  }
  tools_.store.finish_upload(upload_, std::move(parts),
                             [self = shared_from_this(), attempt](Result<StoredObject> stored) {
                               if (!stored.is_ok()) return self->look_whether_finished(stored.status(), attempt);
                               {
                                 const MutexLock lock(self->mutex_);
                                 self->content_.tag = stored->tag;
                                 self->content_.verified = stored->verified;
                               }
                               self->end();
                             });
}

// What is reported failed may have happened.
void TierUpload::look_whether_finished(const Status& failure, unsigned attempt) {
  tools_.store.head(source_.key, [self = shared_from_this(), failure, attempt](Result<ObjectInfo> found) {
    const auto mark = found.is_ok() ? found->metadata.find(kMarkName) : ObjectMetadata::const_iterator();
    if (found.is_ok() && mark != found->metadata.end() && mark->second == self->source_.mark &&
        found->size == self->size_) {
      {
        const MutexLock lock(self->mutex_);
        self->content_.tag = found->tag;
      }
      return self->end();
    }
    const bool is_known = found.is_ok() || found.status().code() == StatusCode::kNotFound;
    if (self->tries_again(is_known ? failure : found.status(), attempt,
                          [self, attempt] { self->finish_upload(attempt + 1); }))
      return;
    self->fail(failure, true);
    self->end();
  });
}

// --- ends ------------------------------------------------------------------------------------------------------------

bool TierUpload::tries_again(const Status& status, unsigned attempt, std::function<void()> again) {
  if (status.code() != StatusCode::kUnreachable || attempt + 1 >= kAttempts) return false;
  if (tools_.timer.is_stopping() || has_failed()) return false;
  tools_.timer.after(tools_.timer.pause(attempt + 1), std::move(again));
  return true;
}

void TierUpload::fail(const Status& status, bool is_of_store) {
  const MutexLock lock(mutex_);
  if (failure_.status.is_ok()) failure_ = {status, is_of_store};
}

void TierUpload::end() {
  objects_ = nullptr;
  source_.version = nullptr;
  const auto tell = [self = shared_from_this()] {
    Outcome outcome;
    {
      const MutexLock lock(self->mutex_);
      outcome = {std::move(self->content_), self->failure_};
    }
    std::exchange(self->done_, nullptr)(std::move(outcome));
  };
  if (!has_failed() || !is_begun_) return tell();
  tools_.store.abort_upload(upload_, [tell](const Status&) { tell(); });
}

}  // namespace fpfs
