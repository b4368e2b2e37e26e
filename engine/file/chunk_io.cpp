#include "engine/file/chunk_io.h"

#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/codec/chunk_codec.h"
#include "engine/codec/hash.h"
#include "engine/file/context.h"
#include "engine/io/awaited_thread.h"

namespace fpfs {

// With so many writes on its way to it a drive is busy for longer than a chunk takes to encode.
constexpr unsigned kBusyFrom = 3;

ChunkIo::ChunkIo(FileContext& context)
    : context_(context),
      auto_compression_(context.environment),
      writes_at_queue_(context.array.member_capacity()),
      queues_(context.array.member_capacity()) {}

void ChunkIo::close_queues() {
  if (sharer_ != nullptr) sharer_->stop();    // it hands chunks to the encoder
  if (encoder_ != nullptr) encoder_->stop();  // it hands chunks to the queues
  for (std::unique_ptr<IoQueue>& queue : queues_) queue.reset();
}

void ChunkIo::add_member(MemberIndex member, std::unique_ptr<IoQueue> queue) {
  set_queue(member, std::move(queue));
  if (sharer_ != nullptr) sharer_->add_member(member);
}

void ChunkIo::fail_waiting(MemberIndex member, const Status& failure) {
  if (sharer_ != nullptr) sharer_->fail_waiting(member, failure);
  if (encoder_ != nullptr) encoder_->fail_waiting(member, failure);
  if (queues_[member] != nullptr) queues_[member]->fail_waiting(failure);
}

void ChunkIo::start(ChunkTransfer& transfer) {
  transfer.io = this;
  transfer.encoding = EncodeRequest();
  under_way_.fetch_add(1, std::memory_order_relaxed);
  if (transfer.kind != IoRequest::Kind::kWrite)
    return transfer.part.length > 0 ? start_part(transfer) : submit(transfer);
  if (transfer.as_stored) {
    transfer.encoding.encoded.codec = transfer.extent.codec;  // nothing is hashed
    writes_at_queue_[transfer.extent.member].fetch_add(1, std::memory_order_relaxed);
    return submit(transfer);
  }
  ShareRequest& sharing = transfer.sharing;
  if (sharing.previous == nullptr) return store(transfer);
  sharing.chunk = transfer.chunk;
  sharing.member = transfer.extent.member;
  sharing.slot = transfer.extent.slot;
  sharing.objects = transfer.objects;
  sharing.raw = {transfer.data, transfer.extent.raw_length};
  sharing.seed = seed_of(transfer);
  sharing.done = &ChunkIo::shared;
  sharing.owner = &transfer;
  sharer_->start(sharing);
}

void ChunkIo::shared(ShareRequest& sharing, const Status& status) {
  auto& transfer = *static_cast<ChunkTransfer*>(sharing.owner);
  ChunkIo& io = *transfer.io;
  if (!status.is_ok()) return io.end(transfer, status);
  if (sharing.shared.codec == Codec::kNone) return io.store(transfer);
  Extent& extent = transfer.extent;
  extent.codec = sharing.shared.codec;
  extent.stored_length = sharing.shared.length;
  extent.checksum = sharing.shared.checksum;
  io.end(transfer, Status::ok());
}

void ChunkIo::store(ChunkTransfer& transfer) {
  transfer.extent.codec = Codec::kRaw;
  transfer.extent.stored_length = transfer.extent.raw_length;
  EncodeRequest& encoding = transfer.encoding;
  encoding.member = transfer.extent.member;
  encoding.raw = {transfer.data, transfer.extent.raw_length};
  encoding.seed = seed_of(transfer);
  encoding.ready = &ChunkIo::encoded;
  encoding.owner = &transfer;
  if (!is_to_be_encoded(transfer)) return store_raw(transfer);
  encoding.compression = transfer.compression;
  encoder_->start(encoding);
}

// Hashed by its queue's thread when that has nothing else to do.
void ChunkIo::store_raw(ChunkTransfer& transfer) {
  const MemberIndex member = transfer.extent.member;
  writes_at_queue_[member].fetch_add(1, std::memory_order_relaxed);
  const IoQueue* const queue = queues_[member].get();
  if (queue == nullptr || queue->is_idle() || transfer.extent.raw_length < kHandedOverMin) return submit(transfer);
  encoder_->start(transfer.encoding);
}

bool ChunkIo::is_to_be_encoded(const ChunkTransfer& transfer) {
  switch (transfer.compression.mode) {
    case Compression::Mode::kOff:
      return false;
    case Compression::Mode::kAuto:
      return auto_compression_.encodes(
          monotonic_ns(), transfer.extent.raw_length,
          writes_at_queue_[transfer.extent.member].load(std::memory_order_relaxed) >= kBusyFrom);
    case Compression::Mode::kZstd:
      break;
  }
  return true;
}

void ChunkIo::encoded(EncodeRequest& encoding, const Status& status) {
  auto& transfer = *static_cast<ChunkTransfer*>(encoding.owner);
  ChunkIo& io = *transfer.io;
  std::atomic<unsigned>& at_queue = io.writes_at_queue_[transfer.extent.member];
  const bool was_at_queue = encoding.compression.mode == Compression::Mode::kOff;
  if (encoding.compression.mode == Compression::Mode::kAuto) {
    if (status.is_ok())
      io.auto_compression_.encoded(encoding.raw.size(), encoding.processor_ns);
    else
      io.auto_compression_.not_encoded();
  }
  if (!status.is_ok()) {
    if (was_at_queue) at_queue.fetch_sub(1, std::memory_order_relaxed);
    return io.end(transfer, status);
  }
  if (!was_at_queue) at_queue.fetch_add(1, std::memory_order_relaxed);
  Extent& extent = transfer.extent;
  extent.codec = encoding.encoded.codec;
  extent.stored_length = encoding.encoded.length;
  extent.checksum = encoding.encoded.checksum;
  if (extent.codec != Codec::kRaw) {
    ArrayCounters& counters = io.context_.counters;
    counters.chunks_encoded.fetch_add(1, std::memory_order_relaxed);
    counters.bytes_before_encoding.fetch_add(extent.raw_length, std::memory_order_relaxed);
    counters.bytes_encoded.fetch_add(extent.stored_length, std::memory_order_relaxed);
  }
  io.submit(transfer);
}

void ChunkIo::submit(ChunkTransfer& transfer) {
  const Buffer* const space = transfer.encoding.space;
  transfer.request = IoRequest();
  IoRequest& request = transfer.request;
  request.kind = transfer.kind;
  request.data = space != nullptr ? space->data : transfer.data;
  request.offset = offset_of(transfer.extent.slot, context_.stripes.chunk_size).value();
  request.length = static_cast<uint32_t>(round_up(transfer.extent.stored_length, kIoAlignment));
  request.prepare = &ChunkIo::prepare;
  request.complete = &ChunkIo::complete;
  request.owner = &transfer;
  hand_over(transfer);
}

void ChunkIo::hand_over(ChunkTransfer& transfer) {
  const MemberIndex member = transfer.extent.member;
  IoRequest& request = transfer.request;
  transfer.queue = queues_[member].get();
  if (transfer.queue == nullptr)
    request.complete(request, Status::error(StatusCode::kIoError, "the member is missing"));
  else if (is_stalled(transfer))
    request.complete(request, context_.watch->check(domain_of(member)));
  else
    transfer.queue->submit(request);
}

bool ChunkIo::is_stalled(const ChunkTransfer& transfer) const {
  return context_.watch != nullptr && context_.watch->is_stalled(domain_of(transfer.extent.member));
}

uint64_t ChunkIo::seed_of(const ChunkTransfer& transfer) const {
  const ObjectSet& objects = *transfer.objects;
  return chunk_seed(context_.array.id().data(), objects.file(), objects.generation(), transfer.chunk);
}

uint64_t ChunkIo::checksum_of(const ChunkTransfer& transfer, const std::byte* stored) const {
  return stored_checksum(transfer.extent.codec, {stored, transfer.extent.stored_length}, seed_of(transfer));
}

Status ChunkIo::prepare(IoRequest& request) {
  auto& transfer = *static_cast<ChunkTransfer*>(request.owner);
  return request.kind == IoRequest::Kind::kWrite ? transfer.io->prepare_write(transfer) : prepare_read(transfer);
}

Status ChunkIo::prepare_write(ChunkTransfer& transfer) {
  IoRequest& request = transfer.request;
  Extent& extent = transfer.extent;
  ObjectSet& objects = *transfer.objects;
  std::memset(request.data + extent.stored_length, 0, request.length - extent.stored_length);
  const bool is_hashed = transfer.encoding.encoded.codec != Codec::kNone;
  if (!is_hashed) extent.checksum = checksum_of(transfer, request.data);
  const ObjectOffset allocated = objects.allocated_end(extent.member);
  const uint64_t ahead_max = transfer.streaming ? context_.room->ahead_max(extent.member) : 0;
  const auto use = transfer.streaming ? ObjectSet::Use::kStream : ObjectSet::Use::kWrite;
  const Status placed = context_.reclaimer->with_space([&]() -> Status {
    FPFS_ASSIGN_OR_RETURN(transfer.object, objects.open_for_transfer(extent.member, use));
    request.handle = transfer.object.get();
    return objects.preallocate(extent.member, request.handle, ObjectOffset(request.offset),
                               ObjectOffset(request.offset + request.length), ahead_max);
  });
  if (objects.allocated_end(extent.member) != allocated) context_.room->refresh(extent.member);
  return placed;
}

// An object that a record names and that is not there is damage (EIO), whatever open(2) calls it.
Status ChunkIo::prepare_read(ChunkTransfer& transfer) {
  Result<HandleCache::Pin> opened = transfer.objects->open_for_transfer(transfer.extent.member, ObjectSet::Use::kRead);
  if (opened.is_ok()) {
    transfer.object = std::move(*opened);
    transfer.request.handle = transfer.object.get();
    return Status::ok();
  }
  if (opened.status().code() != StatusCode::kNotFound) return opened.status();
  return Status::error(StatusCode::kCorruption, kObjectMissing);
}

void ChunkIo::complete(IoRequest& request, const Status& status) {
  auto& transfer = *static_cast<ChunkTransfer*>(request.owner);
  ChunkIo& io = *transfer.io;
  if (transfer.kind == IoRequest::Kind::kWrite) {
    io.writes_at_queue_[transfer.extent.member].fetch_sub(1, std::memory_order_relaxed);
    if (io.encoder_ != nullptr) io.encoder_->release(transfer.encoding);
    return io.end(transfer, io.after_write(transfer, status));
  }
  if (!status.is_ok()) return io.after_read(transfer, status);
  if (!io.is_left_to_workers(transfer)) return io.after_read(transfer, io.check(transfer));
  io.context_.tasks.post_work([&io, &transfer] { io.after_read(transfer, io.check(transfer)); });
}

bool ChunkIo::is_left_to_workers(const ChunkTransfer& transfer) const {
  if (transfer.extent.codec != Codec::kRaw) return true;
  return AwaitedThread::is_this() && context_.options.verify && transfer.extent.stored_length >= kHandedOverMin;
}

// Verifies what was read, and decodes it: what is left as it is stored, too, as only that checks all of it.
Status ChunkIo::check(const ChunkTransfer& transfer) const {
  FPFS_RETURN_IF_ERROR(verify(transfer));
  const Extent& extent = transfer.extent;
  if (extent.codec == Codec::kRaw) return Status::ok();
  // A worker keeps the memory: pages that are new to it cost more than the decoding.
  thread_local std::vector<std::byte> stored;
  if (transfer.as_stored) {
    stored.resize(extent.raw_length);
    return decode_chunk(extent.codec, {transfer.data, extent.stored_length}, stored, seed_of(transfer));
  }
  stored.assign(transfer.data, transfer.data + extent.stored_length);
  return decode_chunk(extent.codec, stored, {transfer.data, extent.raw_length}, seed_of(transfer));
}

Status ChunkIo::after_write(const ChunkTransfer& transfer, const Status& status) {
  if (status.is_ok()) {
    MemberCounters& counters = context_.counters[transfer.extent.member];
    counters.bytes_written.fetch_add(transfer.request.length, std::memory_order_relaxed);
    if (transfer.is_saved) counters.bytes_saved.fetch_add(transfer.request.length, std::memory_order_relaxed);
    transfer.objects->touch(transfer.extent.member);
    return status;
  }
  return status.code() == StatusCode::kNotFound && transfer.objects->is_superseded() ? Status::ok() : status;
}

Status ChunkIo::verify(const ChunkTransfer& transfer) const {
  const Extent& extent = transfer.extent;
  if (transfer.request.transferred < extent.stored_length)
    return Status::error(StatusCode::kCorruption, fmt::format("the object ends after {} of {} bytes",
                                                              transfer.request.transferred, extent.stored_length));
  // What moves is always checked: what was read wrong once would be so for ever.
  if (!context_.options.verify && !transfer.as_stored && !transfer.is_checked) return Status::ok();
  if (checksum_of(transfer, transfer.data) == extent.checksum) return Status::ok();
  return Status::error(StatusCode::kCorruption, "the checksum does not match what was written");
}

void ChunkIo::after_read(ChunkTransfer& transfer, const Status& outcome) {
  if (outcome.is_ok()) count_read(transfer);
  end(transfer, outcome);
}

void ChunkIo::count_read(const ChunkTransfer& transfer) {
  context_.counters[transfer.extent.member].bytes_read.fetch_add(transfer.request.transferred,
                                                                 std::memory_order_relaxed);
}

void ChunkIo::end(ChunkTransfer& transfer, const Status& status) {
  {
    const std::shared_ptr<PreviousContent> previous = std::move(transfer.sharing.previous);
    transfer.sharing.objects = nullptr;
    const std::shared_ptr<ObjectSet> objects = std::move(transfer.objects);
    const HandleCache::Pin object = std::move(transfer.object);
    transfer.done(transfer, *objects, status);
  }
  context_.relieve_pressure();
  under_way_.fetch_sub(1, std::memory_order_release);
}

Status ChunkIo::report(const Status& failure, const ChunkTransfer& transfer, const ObjectSet& objects,
                       const std::string& path) {
  const Extent& extent = transfer.extent;
  MemberCounters& counters = context_.counters[extent.member];
  std::atomic<uint64_t>& errors = transfer.kind == IoRequest::Kind::kWrite    ? counters.write_errors
                                  : failure.code() == StatusCode::kCorruption ? counters.checksum_errors
                                                                              : counters.read_errors;
  errors.fetch_add(1, std::memory_order_relaxed);
  const ObjectOffset offset = offset_of(extent.slot, context_.stripes.chunk_size);
  return failure
      .with_context(fmt::format("{}, chunk {}: {}, object {} at offset {}", path, transfer.chunk,
                                context_.array.name_of(extent.member),
                                Array::object_name(objects.file(), objects.generation()), offset))
      .at(extent.member.value(), offset.value(), extent.stored_length);
}

Status ChunkIo::locate(const Status& failure, const ChunkTransfer& transfer, const ObjectSet& objects) const {
  const Extent& extent = transfer.extent;
  const ObjectOffset offset = offset_of(extent.slot, context_.stripes.chunk_size);
  const Member& member = context_.array.member(extent.member);
  // A member that is missing has no path: the failure says that it is.
  const Status placed =
      member.present ? failure.with_context(fmt::format("{}/objects/{}", member.path,
                                                        Array::object_path(objects.file(), objects.generation())))
                     : failure;
  return placed.at(extent.member.value(), offset.value(), extent.stored_length);
}

}  // namespace fpfs
