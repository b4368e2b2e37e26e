// ChunkIo: the way of a part of a chunk that is stored as blocks (docs/format.md, "Blocks").
//
// Two reads, the index and then the blocks that hold the part, each to where it would lie if all that is stored were
// read: so the buffer has room for them, whatever the index says. The part is decoded to where it lies in the chunk,
// over them; the worker that does it takes them out of the way first.
//
// The extent's checksum is that of the index, which has one of each block's content (P3). `verify=off` makes no
// difference: decoding looks at both anyway.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/codec/block_format.h"
#include "engine/file/context.h"

namespace fpfs {

namespace {

// What is read for the index, whichever block size it has.
uint32_t index_span(const Extent& extent) {
  const uint64_t longest = blocks::index_length(extent.raw_length, kBlockSizeMin);
  return static_cast<uint32_t>(round_up(std::min<uint64_t>(longest, extent.stored_length), kIoAlignment));
}

Status too_short() {
  return Status::error(StatusCode::kCorruption, "the object ends before the chunk does");
}

}  // namespace

void ChunkIo::start_part(ChunkTransfer& transfer) {
  transfer.request = IoRequest();
  IoRequest& request = transfer.request;
  request.kind = transfer.kind;
  request.data = transfer.data;
  request.offset = offset_of(transfer.extent.slot, context_.stripes.chunk_size).value();
  request.length = index_span(transfer.extent);
  request.prepare = &ChunkIo::prepare;
  request.complete = &ChunkIo::index_read;
  request.owner = &transfer;
  hand_over(transfer);
}

void ChunkIo::index_read(IoRequest& request, const Status& status) {
  auto& transfer = *static_cast<ChunkTransfer*>(request.owner);
  ChunkIo& io = *transfer.io;
  const Status outcome = status.is_ok() ? io.plan_blocks(transfer) : status;
  if (!outcome.is_ok()) return io.end(transfer, outcome);
  io.count_read(transfer);
  const auto begin = std::max<uint64_t>(request.length, round_down(transfer.blocks.offset, kIoAlignment));
  const uint64_t end = round_up(transfer.blocks.offset + transfer.blocks.length, kIoAlignment);
  if (end <= begin)
    return request.transferred < transfer.blocks.offset + transfer.blocks.length ? io.end(transfer, too_short())
                                                                                 : io.decode_part(transfer);
  const uint64_t slot = request.offset;
  const Handle object = request.handle;  // stays pinned
  request = IoRequest();
  request.kind = transfer.kind;
  request.handle = object;
  request.data = transfer.data + begin;
  request.offset = slot + begin;
  request.length = static_cast<uint32_t>(end - begin);
  request.complete = &ChunkIo::blocks_read;
  request.owner = &transfer;
  if (io.is_stalled(transfer)) return io.end(transfer, io.context_.watch->check(domain_of(transfer.extent.member)));
  transfer.queue->submit(request);  // on its own thread: it is still there, also while it is being closed
}

// Finds where the blocks lie, by an index that is the one that was committed.
Status ChunkIo::plan_blocks(ChunkTransfer& transfer) const {
  const std::span<const std::byte> stored(transfer.data,
                                          std::min(transfer.request.transferred, transfer.extent.stored_length));
  FPFS_ASSIGN_OR_RETURN(const BlockIndex index, index_of(transfer, stored));
  transfer.blocks = index.stored_range(transfer.part);
  return Status::ok();
}

Result<BlockIndex> ChunkIo::index_of(const ChunkTransfer& transfer, std::span<const std::byte> stored) const {
  const Extent& extent = transfer.extent;
  FPFS_ASSIGN_OR_RETURN(const BlockIndex index,
                        BlockIndex::parse(stored, extent.stored_length, extent.raw_length, seed_of(transfer)));
  if (index.checksum() == extent.checksum) return index;
  return Status::error(StatusCode::kCorruption, "the checksum does not match what was written");
}

void ChunkIo::blocks_read(IoRequest& request, const Status& status) {
  auto& transfer = *static_cast<ChunkTransfer*>(request.owner);
  ChunkIo& io = *transfer.io;
  const uint64_t end =
      request.offset - offset_of(transfer.extent.slot, io.context_.stripes.chunk_size).value() + request.transferred;
  const bool all_there = end >= transfer.blocks.offset + transfer.blocks.length;
  const Status outcome = status.is_ok() && !all_there ? too_short() : status;
  if (!outcome.is_ok()) return io.end(transfer, outcome);
  io.count_read(transfer);
  io.decode_part(transfer);
}

void ChunkIo::decode_part(ChunkTransfer& transfer) {
  context_.tasks.post_work([this, &transfer] {
    const size_t index_length = std::min(index_span(transfer.extent), transfer.extent.stored_length);
    // A worker keeps the memory, as for whole chunks.
    thread_local std::vector<std::byte> stored;
    stored.resize(index_length + transfer.blocks.length);
    std::memcpy(stored.data(), transfer.data, index_length);
    std::memcpy(stored.data() + index_length, transfer.data + transfer.blocks.offset, transfer.blocks.length);
    const std::span<const std::byte> all(stored);
    const Result<BlockIndex> index = index_of(transfer, all.first(index_length));
    end(transfer, index.is_ok() ? index->decode(transfer.part.offset, all.subspan(index_length),
                                                {transfer.data + transfer.part.offset, transfer.part.length})
                                : index.status());
  });
}

}  // namespace fpfs
