// The read path: pin every chunk of the range, load what is missing, answer from the buffers, read ahead.
//
// A request first pins what is in memory and acquires, all or nothing, buffers for what is not. From then on nothing it
// needs can be evicted, so it is evaluated again after each load until the last one is there. While it waits for
// buffers it holds none. Several readers of one chunk share one load. A short read at random of a chunk that is stored
// as blocks has those that it needs loaded for itself alone; who comes again has the chunk loaded (part_reads.h).
//
// Verification (P3), and decoding, are over when the load is (chunk_io.h), before anyone can see the bytes.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "engine/base/log.h"
#include "engine/file/file.h"

namespace fpfs {

void File::read(ReadRequest& request) {
  FPFS_CHECK(request.length <= kReadBytesMax, "a longer read is split by the caller");
  request.file = this;
  request.pinned_count = 0;
  request.bytes = 0;
  request.iov_count = 0;
  request.waiter.expired = false;
  continue_read(request);
}

void File::continue_read(ReadRequest& request) {
  const std::shared_ptr<File> self = shared_from_this();
  Deferred deferred;
  Status failure;
  Step step;
  {
    MutexLock lock(mutex_);
    step = pin_range(request, deferred, failure);
    if (step == Step::kDone) {
      build_reply(request);
      look_at_beginning(request);
    }
  }
  run(deferred);  // start loads first: the reply takes long enough for them to be useful
  if (step == Step::kParked) return;
  if (step == Step::kFailed) {
    // All else was logged when it failed: there are many who read.
    if (request.waiter.expired) log(LogLevel::kError, "{}: {}", path(), failure.message());
    request.complete(request, failure);
    return;
  }
  // The callback may free the request; what it pinned is remembered here.
  std::array<CachedChunk*, kReadChunksMax> pinned = request.pinned;
  const unsigned pinned_count = request.pinned_count;
  uint32_t begin = context_.stripes.offset_in_chunk(request.offset);
  uint32_t left = request.reader_caches ? request.bytes : 0;
  request.complete(request, Status::ok());
  Deferred after;
  {
    MutexLock lock(mutex_);
    for (unsigned i = 0; i < pinned_count; ++i) {
      const uint32_t in_chunk = std::min(left, context_.stripes.chunk_size - begin);
      if (pinned[i] != nullptr) unpin(*pinned[i], pinned[i]->content_within(begin, in_chunk), after);
      left -= in_chunk;
      begin = 0;
    }
  }
  run(after);
}

File::Step File::pin_range(ReadRequest& request, Deferred& deferred, Status& failure) {
  if (!error_.is_ok()) {
    unpin_all(request, deferred);
    failure = error_;
    return Step::kFailed;
  }
  if (request.waiter.expired) {
    failure = BufferPool::no_buffer_comes();
    return Step::kFailed;
  }
  if (request.pinned_count == 0) {
    request.bytes = static_cast<uint32_t>(content_.length_within(request.offset, request.length));
    if (request.bytes == 0) return Step::kDone;
    const Step step = pin_first(request, deferred);
    if (step != Step::kDone) return step;
    if (request.cursor != nullptr) read_ahead(request, deferred);
  }
  for (unsigned i = 0; i < request.pinned_count; ++i) {
    CachedChunk* chunk = request.pinned[i];
    if (chunk == nullptr) continue;
    if (chunk->state == CachedChunk::State::kLoading && !chunk->given_up) {
      chunk->waiting_reads.push_front(request);
      return Step::kParked;
    }
    if (chunk->state == CachedChunk::State::kFailed && !chunk->given_up && was_replaced(*chunk)) {
      // Its place was given to others while it was read: once more, from what there is now.
      unpin_all(request, deferred);
      return pin_range(request, deferred, failure);
    }
    if (chunk->state == CachedChunk::State::kFailed || chunk->given_up) {
      failure = chunk->failure;
      unpin_all(request, deferred);
      return Step::kFailed;
    }
  }
  return Step::kDone;
}

// Pins every chunk of the range, making and loading those that are not in memory; or parks the request with nothing
// pinned.
File::Step File::pin_first(ReadRequest& request, Deferred& deferred) {
  const ChunkIndex first = context_.stripes.chunk_of(request.offset);
  const unsigned count =
      static_cast<unsigned>(context_.stripes.chunk_of(request.offset + request.bytes - 1) - first) + 1;
  std::array<unsigned, kReadChunksMax> missing;
  unsigned missing_count = 0;
  for (unsigned i = 0; i < count; ++i) {
    CachedChunk* chunk = cache_.find(first + i);
    if (request.reader_caches && !read_out_.ask(first + i) && request.cursor != nullptr)
      request.cursor->ahead = ChunkIndex();
    request.pinned[i] = nullptr;
    request.pinned_count = i + 1;
    if (chunk != nullptr && chunk->filling) {
      unpin_all(request, deferred);
      chunk->waiting_reads.push_front(request);
      return Step::kParked;
    }
    if (chunk != nullptr)
      pin(*chunk, request.pinned[i]);
    else if (content_.extent(first + i).exists() || content_.is_in_sidecar(first + i))
      missing[missing_count++] = i;
  }
  if (missing_count == 0) return Step::kDone;
  std::array<Buffer*, kReadChunksMax> buffers;
  request.waiter.owner = &request;
  request.waiter.ready = [](BufferPool::Waiter& waiter) {
    auto& waiting = *static_cast<ReadRequest*>(waiter.owner);
    waiting.file->continue_read(waiting);
  };
  if (!context_.pool->acquire(missing_count, buffers.data(), &request.waiter, this)) {
    unpin_all(request, deferred);
    return Step::kParked;
  }
  if (count == 1 && is_part_enough(request) && part_reads_.note(first)) {
    CachedChunk& chunk = cache_.adopt_apart(*buffers[0], *this, first);
    begin_part_load(chunk, request, deferred);
    pin(chunk, request.pinned[0]);
    return Step::kDone;
  }
  for (unsigned k = 0; k < missing_count; ++k) {
    const ChunkIndex index = first + missing[k];
    CachedChunk& chunk = cache_.adopt(*buffers[k], *this, index);
    begin_load(chunk, deferred.submits);
    pin(chunk, request.pinned[missing[k]]);
  }
  return Step::kDone;
}

void File::pin(CachedChunk& chunk, CachedChunk*& slot) {
  const bool is_idle = !chunk.dirty && chunk.state == CachedChunk::State::kReady;
  if (chunk.readers++ == 0 && (is_idle || chunk.buffer->ahead)) context_.pool->make_busy(*chunk.buffer);
  slot = &chunk;
}

// `kept`: so much of it the reader has got and keeps. Requests of one reader come and end in any order: the chunk is read
// out when as much as there is of it is kept.
void File::unpin(CachedChunk& chunk, uint32_t kept, Deferred& deferred) {
  chunk.kept = std::min(chunk.kept + kept, chunk.length);
  if (--chunk.readers > 0) return;
  const bool is_read_out = chunk.kept == chunk.length;
  if (is_read_out) {
    chunk.kept = 0;
    if (!chunk.detached) read_out_.note(chunk.index);
  }
  cache_.release_if_idle(chunk, is_read_out, deferred);
}

void File::unpin_all(ReadRequest& request, Deferred& deferred) {
  for (unsigned i = 0; i < request.pinned_count; ++i)
    if (request.pinned[i] != nullptr) unpin(*request.pinned[i], 0, deferred);
  request.pinned_count = 0;
}

void File::build_reply(ReadRequest& request) {
  FileOffset offset = request.offset;
  uint32_t left = request.bytes;
  request.iov_count = 0;
  auto append = [&request](const std::byte* data, uint32_t length) {
    request.iov[request.iov_count++] = {const_cast<std::byte*>(data), length};
  };
  for (unsigned i = 0; left > 0; ++i) {
    const uint32_t begin = context_.stripes.offset_in_chunk(offset);
    const uint32_t length = std::min(left, context_.stripes.chunk_size - begin);
    const CachedChunk* chunk = request.pinned[i];
    const uint32_t content = chunk != nullptr ? chunk->content_within(begin, length) : 0;
    if (content > 0) append(chunk->buffer->data + begin, content);
    if (content < length) append(context_.zeros.get(), length - content);
    offset += length;
    left -= length;
  }
}

// --- read-ahead -----------------------------------------------------------------------------------------------------

namespace {
// The kernel reads ahead with several requests at once, which come in any order.
constexpr uint64_t kDisorderMax = 8 * kMiB;

// A sequential reader may ask for this.
bool leads_to(const ReadCursor& cursor, FileOffset offset) {
  const FileOffset expected = cursor.next_offset;
  const bool near = offset <= expected + kDisorderMax && expected <= offset + kDisorderMax;
  return near && (offset == expected || cursor.window > 0);
}
}  // namespace

// Sequential readers get their window doubled from a few of their requests up to the limit; a jump closes it. So who goes
// from one short header to the next has no chunks read that he jumps over, and who goes from tensor to tensor has those read
// that he jumps to (tensor_ahead.cpp). What is away takes longer: it begins with a few chunks, and of it no run
// (start_loads()) is begun that would not be whole.
void File::read_ahead(const ReadRequest& request, Deferred& deferred) {
  ReadCursor& cursor = *request.cursor;
  const FileOffset offset = request.offset;
  const uint32_t length = request.bytes;
  const ChunkIndex current = context_.stripes.chunk_of(offset + length);
  const FileOffset expected = cursor.next_offset;
  const bool is_jump = !leads_to(cursor, offset);
  const bool is_hop = (is_jump || cursor.window == 0) && tensors_.note(cursor.tensors, offset, length, is_jump) &&
                      read_tensors_ahead(request, deferred);
  if (is_jump && length >= TensorStarts::kRequestMin) look_for_tensors(deferred);
  if (is_jump || is_hop) {
    cursor.window = 0;
    cursor.ahead = current;
    cursor.next_offset = offset + length;
  } else {
    const bool is_away = content_.extent(current).is_away();
    const uint64_t limit = std::max(is_away ? context_.fetch_ahead : 0, context_.options.read_ahead);
    const uint64_t first = is_away ? uint64_t{4} * context_.stripes.chunk_size : uint64_t{4} * length;
    cursor.window = std::min(std::max(cursor.window * 2, first), limit * context_.stripes.chunk_size);
    cursor.next_offset = std::max(expected, offset + length);
  }
  if (cursor.window == 0) return;
  const ChunkIndex content_end = context_.stripes.chunks_end(content_.end());
  const ChunkIndex end = std::min(context_.stripes.chunk_of(offset + length + cursor.window), content_end);
  const ChunkIndex last_run(end < content_end ? round_down(end.value(), context_.fetch_run) : end.value());
  for (ChunkIndex index = std::max(cursor.ahead, current); index < end; ++index) {
    const Extent extent = content_.extent(index);
    if (extent.is_away() && index >= last_run) return;
    cursor.ahead = index + 1;
    if (!load_ahead(request, index, deferred)) {
      cursor.ahead = index;
      return;
    }
  }
}

// The chunk, if it is stored, not in memory, and not kept by the reader (but what is away comes in runs). False: there is no
// buffer for it.
bool File::load_ahead(const ReadRequest& request, ChunkIndex index, Deferred& deferred) {
  const Extent extent = content_.extent(index);
  if (!extent.exists() || cache_.find(index) != nullptr) return true;
  if (request.reader_caches && !extent.is_away() && read_out_.contains(index)) return true;
  Buffer* buffer = nullptr;
  if (!context_.pool->acquire_ahead(&buffer, this)) return false;
  begin_load(cache_.adopt(*buffer, *this, index), deferred.ahead);
  return true;
}

// --- loads ----------------------------------------------------------------------------------------------------------

void File::begin_load(CachedChunk& chunk, SubmitList& loads) {
  if (content_.is_in_sidecar(chunk.index)) return begin_load_inline(chunk);
  const Extent extent = content_.extent(chunk.index);
  chunk.state = CachedChunk::State::kLoading;
  chunk.length = extent.visible_length;
  chunk.keep = shared_from_this();
  ChunkTransfer& transfer = chunk.transfer;
  transfer.kind = IoRequest::Kind::kRead;
  transfer.chunk = chunk.index;
  transfer.extent = extent;
  transfer.part = {};
  chunk.drive = extent.is_away() ? kElsewhereDomain : domain_of(extent.member);
  transfer.objects = placement_.objects();
  transfer.data = chunk.buffer->data;
  transfer.done = &File::load_done;
  transfer.owner = &chunk;
  loads.push_back(chunk);
}

// Decoding more blocks than two for a read, or asking a drive for hardly more than a block twice, does not pay.
constexpr uint32_t kPartMax = 64 * kKiB, kWholeUpTo = 64 * kKiB;

bool File::is_part_enough(const ReadRequest& request) const {
  const Extent extent = content_.extent(context_.stripes.chunk_of(request.offset));
  return request.bytes <= kPartMax && extent.codec == Codec::kBlocks && extent.stored_length > kWholeUpTo &&
         context_.stripes.offset_in_chunk(request.offset) < extent.visible_length &&
         (request.cursor == nullptr || !leads_to(*request.cursor, request.offset));
}

void File::begin_part_load(CachedChunk& chunk, const ReadRequest& request, Deferred& deferred) {
  begin_load(chunk, deferred.submits);
  const uint32_t begin = context_.stripes.offset_in_chunk(request.offset);
  chunk.transfer.part = {begin, std::min(request.bytes, chunk.length - begin)};
}

// What the chunk was loaded from is no part of the content any more. One that nobody finds was not told: its place is
// looked at. (What has the same seeded checksum is the same content.)
bool File::was_replaced(const CachedChunk& chunk) const {
  if (!chunk.detached || chunk.transfer.part.length == 0) return chunk.detached;
  const Extent &was = chunk.transfer.extent, is = content_.extent(chunk.index);
  return is.member != was.member || is.slot != was.slot || is.checksum != was.checksum;
}

// It was moved while it was read, and the place that it was read from may be given back by now, which is no damage: it is
// read again, from where it is. Without checksums only this tells. False: it is what it is.
bool File::load_moved(CachedChunk& chunk, const Status& status) {
  if (status.is_ok() && context_.options.verify) return false;
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    const Extent &was = chunk.transfer.extent, is = content_.extent(chunk.index);
    const bool is_moved = was.is_here() && is.is_here() && (is.member != was.member || is.slot != was.slot);
    if (!is_moved || chunk.detached || chunk.given_up || abandoned_) return false;
    begin_load(chunk, deferred.submits);
  }
  run(deferred);
  return true;
}

void File::load_done(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status) {
  CachedChunk& chunk = *static_cast<CachedChunk*>(transfer.owner);
  const std::shared_ptr<File> file = std::move(chunk.keep);
  if (file->load_moved(chunk, status)) return;
  const auto is_damage = [&] {
    const MutexLock lock(file->mutex_);
    return !file->was_replaced(chunk);
  };
  Status outcome = status;
  if (!outcome.is_ok() && is_damage()) {
    outcome = file->context_.io->report(status, transfer, objects, file->path());
    if (file->heal_load(chunk, objects, outcome)) return;
    log_about(outcome.message(), LogLevel::kError, "{}; the read fails with an I/O error", outcome.message());
  }
  file->finish_load(chunk, outcome);
}

void File::finish_load(CachedChunk& chunk, const Status& status) {
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (abandoned_) return;
    chunk.state = status.is_ok() ? CachedChunk::State::kReady : CachedChunk::State::kFailed;
    chunk.failure = status;
    if (chunk.index == ChunkIndex(0)) header_came(chunk, status);
    // A write that waited to overwrite part of the chunk must find the failure; it lets go of the chunk then.
    const bool leave_for_writer = !status.is_ok() && !chunk.waiting_writes.is_empty();
    ChunkCache::wake(chunk, deferred);
    if (!leave_for_writer) cache_.release_if_idle(chunk, false, deferred);
  }
  run(deferred);
}

}  // namespace fpfs
