// The write path: request → chunk buffer → reply → flush.
//
// A write copies its payload into chunk buffers (or finds it there: see landing.h), is answered, and only then are full
// chunks handed to their member's queue, whose thread hashes them and starts the O_DIRECT write. Whatever a write may
// have to wait for (a free buffer, a chunk being loaded for a partial overwrite, a chunk on its way to the drive, a
// commit that needs a consistent point) parks the request, payload and all, on a list of exactly that thing; no thread
// waits.
//
// Where a chunk goes: its natural place when it never was stored; over itself when what is stored there was written
// since the last commit and so is in nobody's record; otherwise a free slot, because a committed chunk is never
// overwritten.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

void File::write(WriteRequest& request) {
  FPFS_CHECK(request.length <= kRequestBytesMax, "a longer write is split by the caller");
  request.file = this;
  request.done = 0;
  request.active = false;
  request.granted = nullptr;
  request.waiter.expired = false;
  if (request.landing != nullptr) {
    FPFS_CHECK(request.landing->file.get() == this && request.landing->offset == request.offset,
               "what landed are the bytes of this write");
    request.active = true;  // begin_landing() has counted it
  }
  request.refusal = Status::ok();
  request.looks_for_room = 0;
  request.sent_before.clear();
  if (context_.indexes.is_full()) refuse_new_chunks(request);
  context_.room->keep_up();
  if (context_.room->is_scarce() && request.refusal.is_ok())
    write_if_room(request, true);
  else
    continue_write(request);
}

bool File::may_land() const {
  return writable_ && !gate_.has_controls() && !content_.is_inline() && error_.is_ok() &&
         !context_.options.null_write && context_.health.failure().is_ok();
}

bool File::begin_landing(Landing& landing) {
  MutexLock lock(mutex_);
  if (!fits_a_file(stream_end_, kRequestBytesMax) || !may_land()) return false;
  const uint32_t begin = context_.stripes.offset_in_chunk(stream_end_);
  const uint32_t rest = context_.stripes.chunk_size - begin;
  CachedChunk* const chunk = cache_.find(context_.stripes.chunk_of(stream_end_));
  if (begin == 0 ? chunk != nullptr
                 : chunk == nullptr || !chunk->dirty || chunk->state != CachedChunk::State::kReady || chunk->filling ||
                       chunk->readers > 0 || chunk->length != begin)
    return false;
  if (begin == 0 || rest < kRequestBytesMax) {
    if (!context_.pool->acquire(1, &landing.spare, nullptr, this) && begin == 0) return false;
  }
  landing.file = shared_from_this();
  landing.offset = stream_end_;
  landing.chunk = chunk;
  landing.part_count = 0;
  landing.capacity = 0;
  const auto add = [&landing](std::byte* data, uint32_t length) {
    landing.parts[landing.part_count++] = {data, length};
    landing.capacity += length;
  };
  if (chunk != nullptr) {
    chunk->filling = true;
    add(chunk->buffer->data + begin, rest);
  }
  if (landing.spare != nullptr) add(landing.spare->data, context_.stripes.chunk_size);
  (void)gate_.try_enter();  // no control waits
  return true;
}

void File::cancel_landing(Landing& landing) {
  const std::shared_ptr<File> self = shared_from_this();
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (landing.chunk != nullptr) {
      landing.chunk->filling = false;
      ChunkCache::wake(*landing.chunk, deferred);
    }
    end_landing(landing);
    gate_.leave();
    if (!error_.is_ok()) discard_dirty(deferred);
    run_controls(deferred);
  }
  run(deferred);
}

bool File::take_landing(Landing& landing, FileOffset offset, uint32_t length) {
  // In a buffer that is no chunk's yet.
  if (landing.chunk != nullptr || landing.part_count != 1 || !is_whole_chunk(offset, length)) return false;
  Landing taken = landing;
  {
    MutexLock lock(mutex_);
    if (!fits_a_file(offset, length) || !may_land() || cache_.find(context_.stripes.chunk_of(offset)) != nullptr)
      return false;
    (void)gate_.try_enter();  // no control waits
  }
  taken.file = shared_from_this();
  taken.offset = offset;
  landing.spare = nullptr;
  landing.file->cancel_landing(landing);
  landing = std::move(taken);
  return true;
}

void File::end_landing(Landing& landing) {
  if (landing.spare != nullptr) context_.pool->release(*landing.spare);
  landing.spare = nullptr;
  landing.chunk = nullptr;
  landing.file = nullptr;
}

const std::byte* File::source_of(const WriteRequest& request) {
  const std::byte* const landed = request.landing != nullptr ? request.landing->find(request.done) : nullptr;
  return landed != nullptr ? landed : request.data + request.done;
}

void File::continue_write(WriteRequest& request) {
  const std::shared_ptr<File> self = shared_from_this();  // the caller may drop its reference in complete()
  Deferred deferred;
  Status failure;
  Step step;
  {
    MutexLock lock(mutex_);
    step = write_some(request, deferred, failure);
    if (step != Step::kParked) end_active_write(request, deferred);
  }
  if (step != Step::kParked) request.complete(request, step == Step::kDone ? Status::ok() : failure);
  run(deferred);
  if (step != Step::kParked) context_.relieve_pressure();
}

// It waited for a buffer and has its turn, as one of many: what it does with the buffer must not keep the next waiting.
void File::take_buffer(WriteRequest& request) {
  const std::shared_ptr<File> self = shared_from_this();
  {
    MutexLock lock(mutex_);
    if (!request.waiter.expired && !context_.pool->acquire(1, &request.granted, &request.waiter, this)) return;
  }
  go_on(request);
}

File::Step File::write_some(WriteRequest& request, Deferred& deferred, Status& failure) {
  if (request.waiter.expired) {
    failure = BufferPool::no_buffer_comes();
    return Step::kFailed;
  }
  if (!request.active) {
    if (!gate_.try_enter()) {
      gate_.park(request);
      return Step::kParked;
    }
    request.active = true;
    if (!begin_write(request, failure)) return failure.is_ok() ? Step::kDone : Step::kFailed;
  }
  if (request.done == 0 && request.landing != nullptr) {
    // The first part lies behind what the chunk holds, which nobody could change so far: it is taken now or never.
    if (request.landing->chunk != nullptr) request.landing->chunk->filling = false;
    cut_to_content(request);
    if (request.length == 0) {
      if (request.landing->chunk != nullptr) ChunkCache::wake(*request.landing->chunk, deferred);
      return Step::kDone;
    }
  }
  if (!request.refusal.is_ok()) {
    // Half a replacement is worse than none: with the writer's failure the old content stays.
    if (!placement_.retired().objects.empty()) fail(request.refusal);
    failure = request.refusal;
    if (request.landing != nullptr && request.landing->chunk != nullptr)
      ChunkCache::wake(*request.landing->chunk, deferred);
    return Step::kFailed;
  }
  while (request.done < request.length) {
    const Step step = write_piece(request, deferred, failure);
    if (step != Step::kDone) return step;
  }
  // A short one that goes on where a long one ended stands between two of them, as the length before each tensor does.
  const bool is_of_stream = request.length >= kLandingWriteMin || request.offset == stream_end_;
  stream_end_ = is_of_stream ? request.offset + request.length : kNoStream;
  if (request.origin.writer != nullptr)
    request.origin.writer->wrote(request.origin.actor, request.length, content_.changed_at(),
                                 context_.stripes.chunk_size, context_.options.commit_interval_ms);
  return Step::kDone;
}

// Once no control is in its way. False: it ends here, with `failure` or because there is nothing to do.
bool File::begin_write(WriteRequest& request, Status& failure) {
  if (!writable_ || context_.array.read_only())
    failure = Status::error(StatusCode::kReadOnly, "the array is mounted read-only");
  else if (!fits_a_file(request.offset, request.length))
    failure = Status::error(StatusCode::kTooLarge, "write past the largest file offset");
  else
    failure = context_.health.failure();
  if (!failure.is_ok()) return false;
  cut_to_content(request);
  if (request.length == 0) return false;
  if (!context_.options.null_write) return true;
  request.done = request.length;
  content_.grow_to(request.offset + request.length);
  content_.set_mtime(context_.clock.now());
  return false;
}

// A mapping makes no file longer: it was cut off while these pages were on their way here. (The kernel waits for them
// before it truncates, but not before an open that does.)
void File::cut_to_content(WriteRequest& request) const {
  if (request.origin.by_mapping)
    request.length = static_cast<uint32_t>(content_.length_within(request.offset, request.length));
}

// What of the request goes to one chunk; or the content of the sidecar becomes chunk 0, before the file may have
// others.
File::Step File::write_piece(WriteRequest& request, Deferred& deferred, Status& failure) {
  if (!error_.is_ok()) {
    failure = error_;
    return Step::kFailed;
  }
  const uint32_t chunk_size = context_.stripes.chunk_size;
  const FileOffset offset = request.offset + request.done;
  const ChunkIndex index = context_.stripes.chunk_of(offset);
  const uint32_t begin = context_.stripes.offset_in_chunk(offset);
  const uint32_t end = std::min(chunk_size, begin + (request.length - request.done));
  if (content_.inline_length() == 0)
    content_.forget_inline();  // of an empty file: a chunk of no bytes cannot be stored
  const bool from_inline = content_.is_inline() && index != ChunkIndex(0);
  CachedChunk* chunk = from_inline ? chunk_for_write(ChunkIndex(0), 0, 0, request, deferred)
                                   : chunk_for_write(index, begin, end, request, deferred);
  if (chunk == nullptr) return Step::kParked;
  if (chunk->state == CachedChunk::State::kFailed) {
    failure = chunk->failure;
    cache_.release_if_idle(*chunk, true, deferred);
    return Step::kFailed;
  }
  if (from_inline) {
    context_.pool->make_busy(*chunk->buffer);
    mark_dirty(*chunk);
    mark_modified(request.origin);
    content_.forget_inline();
    return Step::kDone;
  }
  if (index == ChunkIndex(0)) content_.forget_inline();
  if (!chunk->dirty) context_.pool->make_busy(*chunk->buffer);
  fill(*chunk, begin, end, source_of(request));
  if (index == ChunkIndex(0)) tensors_.forget();
  mark_dirty(*chunk);
  mark_modified(request.origin);
  request.done += end - begin;
  content_.grow_to(offset + (end - begin));
  const bool is_full = end == chunk_size && chunk->length == chunk_size;
  if (!is_full || !may_flush() || waits_for_previous())
    ChunkCache::wake(*chunk, deferred);
  else if (previous_ != nullptr && placement_.objects() == nullptr)
    flush_dirty(true, deferred);  // with what has waited
  else
    begin_flush(*chunk, true, deferred);
  // A random writer's chunks go out one by one before the pool runs dry. A stream has one partly filled chunk, which
  // is left alone: flushing it early would write it twice.
  CachedChunk* const oldest = cache_.oldest_dirty();
  if (cache_.dirty_count() > 1 && oldest != chunk && may_flush() && context_.pool->is_low() && !oldest->filling)
    begin_flush(*oldest, false, deferred);
  return Step::kDone;
}

// Copies, without the lock, unless the bytes have landed in their place.
void File::fill(CachedChunk& chunk, uint32_t begin, uint32_t end, const std::byte* source) {
  chunk.filling = true;
  std::byte* const data = chunk.buffer->data;
  const uint32_t old_length = chunk.length;
  if (source != data + begin) {
    mutex_.unlock();
    if (begin > old_length) std::memset(data + old_length, 0, begin - old_length);
    std::memcpy(data + begin, source, end - begin);
    mutex_.lock();
  }
  chunk.filling = false;
  chunk.length = std::max(chunk.length, end);
}

// The chunk, ready to take bytes [begin, end); or null after parking the request (or after parking is needed until a
// load completes). A chunk that was stored before and is not overwritten as a whole is loaded first.
CachedChunk* File::chunk_for_write(ChunkIndex index, uint32_t begin, uint32_t end, WriteRequest& request,
                                   Deferred& deferred) {
  CachedChunk* chunk = cache_.find(index);
  if (chunk == nullptr) {
    const bool loads = data_end(index) > 0 && !(begin == 0 && end >= data_end(index));
    // What landed there stays where it is, unless the rest of the chunk has to be loaded around it.
    Landing* const landing = request.landing;
    if (landing != nullptr && landing->spare != nullptr && !loads && request.granted == nullptr &&
        source_of(request) == landing->spare->data)
      request.granted = std::exchange(landing->spare, nullptr);
    if (request.granted == nullptr) {
      request.waiter.owner = &request;
      request.waiter.ready = [](BufferPool::Waiter& waiter) {
        auto& waiting = *static_cast<WriteRequest*>(waiter.owner);
        waiting.file->take_buffer(waiting);
      };
      if (!context_.pool->acquire(1, &request.granted, &request.waiter, this)) return nullptr;
    }
    chunk = &cache_.adopt(*request.granted, *this, index);
    request.granted = nullptr;
    if (loads) begin_load(*chunk, deferred.submits);
    if (chunk->state == CachedChunk::State::kReady) return chunk;
  }
  const bool usable = chunk->state == CachedChunk::State::kReady || chunk->state == CachedChunk::State::kFailed;
  if (usable && !chunk->filling && chunk->readers == 0) return chunk;
  chunk->waiting_writes.push_front(request);
  return nullptr;
}

void File::mark_dirty(CachedChunk& chunk) {
  if (chunk.dirty) return;
  context_.room->add_unstored(member_of(chunk.index), context_.stripes.chunk_size);
  reserved_.remove(content_.file_id(), chunk.index, chunk.index + 1);
  if (cache_.dirty_count() == 0) context_.dirty_files.add(inode_, weak_from_this());
  cache_.mark_dirty(chunk);
}

void File::mark_clean(CachedChunk& chunk) {
  context_.room->remove_unstored(member_of(chunk.index), context_.stripes.chunk_size);
  cache_.mark_clean(chunk);
  if (cache_.dirty_count() == 0) context_.dirty_files.remove(inode_);
}

// Chosen when it first matters. Chunks share blocks within a member, so they begin where those of the previous file do.
FileId File::file_id() {
  while (content_.file_id() == FileId()) {
    const FileId id(context_.environment.random_u64());
    const std::optional<MemberIndex> start = previous_ != nullptr ? previous_->start() : std::nullopt;
    content_.set_file_id(start ? stripes_.with_start(id, *start) : id);
  }
  return content_.file_id();
}

// What the file is compared with may have been found since its id was chosen. Until something is on its way to the
// members, or a record is being made, the id may be another: only what is in memory was counted for members by it.
void File::settle_start() {
  if (previous_ == nullptr || content_.file_id() == FileId()) return;
  const bool is_free = log_.sequence == 0 && commit_ == nullptr && placement_.objects() == nullptr &&
                       placement_.retired().is_empty() && reserved_.is_empty() && content_.extents().count() == 0;
  const MemberIndex now = stripes_.start(content_.file_id());
  const std::optional<MemberIndex> start = previous_->start();
  if (!start || !is_free) return previous_->set_start(now);
  if (*start == now) return;
  const uint32_t chunk_size = context_.stripes.chunk_size;
  cache_.for_each_dirty([&](const CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    context_.room->remove_unstored(member_of(chunk.index), chunk_size);
  });
  content_.set_file_id(stripes_.with_start(content_.file_id(), *start));
  cache_.for_each_dirty([&](const CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    context_.room->add_unstored(member_of(chunk.index), chunk_size);
  });
}

// Nothing of the file is on its way yet, and what it is compared with will be known in a moment.
bool File::waits_for_previous() const {
  constexpr size_t kChunksMax = 16;
  return previous_ != nullptr && placement_.objects() == nullptr && cache_.dirty_count() < kChunksMax &&
         !context_.pool->is_low() && previous_->is_looked_for();
}

MemberIndex File::member_of(ChunkIndex chunk) {
  return stripes_.member_of(file_id(), chunk);
}

// The content changed: there is something to commit.
void File::mark_modified(const Origin& origin) {
  content_.note_change(context_.clock.now());
  writers_.changed(origin);
  if (origin.writer != nullptr && !origin.by_mapping) context_.watch_trickles();
  keep_alive();
}

void File::end_active_write(WriteRequest& request, Deferred& deferred) {
  if (request.granted != nullptr) {
    context_.pool->release(*request.granted);
    request.granted = nullptr;
  }
  if (request.landing != nullptr) end_landing(*request.landing);
  request.active = false;
  gate_.leave();
  if (!error_.is_ok()) discard_dirty(deferred);
  run_controls(deferred);
}

// --- flush ----------------------------------------------------------------------------------------------------------

void File::begin_flush(CachedChunk& chunk, bool streaming, Deferred& deferred) {
  FPFS_CHECK(chunk.dirty && chunk.state == CachedChunk::State::kReady && !chunk.filling,
             "only dirty chunks are flushed");
  if (placement_.objects() == nullptr) settle_start();
  mark_clean(chunk);
  context_.room->add_in_flight(member_of(chunk.index), context_.stripes.chunk_size);
  chunk.state = CachedChunk::State::kWriting;
  if (placement_.objects() == nullptr) {
    content_.set_generation(context_.generations.claim(content_.file_id(), content_.generation()));
    placement_.set_objects(std::make_shared<ObjectSet>(context_.storage(), context_.array, context_.spares.get(),
                                                       member_count_, content_.file_id(), content_.generation(),
                                                       false));
  }
  const Extent old = content_.extent(chunk.index);
  const MemberIndex member = member_of(chunk.index);
  ChunkTransfer& transfer = chunk.transfer;
  transfer.kind = IoRequest::Kind::kWrite;
  transfer.chunk = chunk.index;
  transfer.extent = Extent();
  transfer.extent.member = member;
  chunk.drive = domain_of(member);
  if (old.is_here() && content_.is_new(old) && old.member == member) {
    // Written since the last commit: overwritten in place. The slot belongs to the chunk until the write is done.
    transfer.extent.slot = old.slot;
    content_.lift(chunk.index);
  } else {
    transfer.extent.slot = placement_.allocate(member, stripes_.natural_slot(chunk.index));
    transfer.sharing.previous = previous_;
  }
  transfer.extent.raw_length = chunk.length;
  transfer.extent.epoch = content_.epoch();
  transfer.objects = placement_.objects();
  transfer.data = chunk.buffer->data;
  transfer.streaming = streaming;
  transfer.compression = compression_;
  transfer.done = &File::flush_done;
  transfer.owner = &chunk;
  chunk.keep = shared_from_this();
  ++writes_in_flight_;
  context_.writes_in_flight.fetch_add(1, std::memory_order_relaxed);
  deferred.submits.push_back(chunk);
}

void File::flush_dirty(bool only_full, Deferred& deferred) {
  cache_.for_each_dirty([&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    const bool full = chunk.length == context_.stripes.chunk_size;
    if (!chunk.filling && (full || !only_full)) begin_flush(chunk, full, deferred);
  });
}

void File::flush_done(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status) {
  CachedChunk& chunk = *static_cast<CachedChunk*>(transfer.owner);
  const std::shared_ptr<File> file = std::move(chunk.keep);
  file->finish_flush(chunk, objects,
                     status.is_ok() ? status : file->context_.io->report(status, transfer, objects, file->path()));
}

void File::finish_flush(CachedChunk& chunk, const ObjectSet& objects, const Status& status) {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    --writes_in_flight_;
    context_.room->remove_in_flight(chunk.transfer.extent.member, context_.stripes.chunk_size);
    if (!chunk.given_up) context_.writes_in_flight.fetch_sub(1, std::memory_order_relaxed);
    if (abandoned_) return;
    chunk.state = CachedChunk::State::kReady;
    // After a truncation to nothing the slots counted here are those of a new generation's objects.
    const bool same_generation = &objects == placement_.objects().get();
    if (!status.is_ok()) {
      chunk.state = CachedChunk::State::kFailed;
      chunk.failure = status;
      fail(status);
      discard_dirty(deferred);
    }
    if (status.is_ok() && !chunk.detached) {
      Extent stored = chunk.transfer.extent;
      stored.visible_length = std::min(stored.raw_length, chunk.length);
      set_extent(chunk.index, stored);
      placement_.note_written(chunk.index, stored, context_.stripes.chunk_size);
    } else if (same_generation) {
      placement_.release(chunk.transfer.extent.member, chunk.transfer.extent.slot);
    }
    // What was streamed is not likely to be wanted again soon, unlike the pages of a database.
    cache_.release_if_idle(chunk, chunk.transfer.streaming, deferred);
    advance_commit(deferred);
    if (writes_in_flight_ == 0) run_controls(deferred);
  }
  run(deferred);
}

// An extent that the content no longer uses: its slot is free at once when no record names it, else after the commit
// that says so.
void File::forget_extent(const Extent& extent) {
  if (!extent.is_here()) return;
  if (content_.is_new(extent))
    placement_.release(extent.member, extent.slot);
  else if (phase_ == Phase::kDraining)
    commit_->retired.slots.push_back(placement_.dead_slot(extent.member, extent.slot));
  else
    placement_.retire(extent.member, extent.slot);
}

void File::set_extent(ChunkIndex chunk, const Extent& extent) {
  const Extent old = content_.extent(chunk);
  if (old.exists()) forget_extent(old);
  content_.set_extent(chunk, extent, content_.is_new(extent) ? content_.edit() : commit_->edit);
}

// After a failure: what was acknowledged and cannot be stored is given up, so that other files get the buffers.
void File::discard_dirty(Deferred& deferred) {
  cache_.for_each_dirty([&](CachedChunk& chunk) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (!chunk.filling) detach(chunk, deferred);
  });
}

}  // namespace fpfs
