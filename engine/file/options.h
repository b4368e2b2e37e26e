// StoreOptions: every knob of an open array. Command lines, profiles and tests all end here.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/array/array.h"
#include "engine/base/units.h"
#include "engine/codec/compression.h"
#include "engine/file/durable.h"
#include "engine/io/io_queue.h"

namespace fpfs {

struct StoreOptions {
  using Durable = fpfs::Durable;

  ArrayOptions array;
  Durable durable = Durable::kClose;  // of what does not say otherwise (Store::durable()); not kTier
  // Bytes of the buffer pool. At least BufferPool::kBuffersMin chunks and 2 * kRequestBytesMax per member.
  uint64_t buffer_memory = 256 * kMiB;
  // Chunks that the indexes of all open files may have; 0: what fits a part of memory as large as the pool, at least
  // 256 MiB (IndexMemory).
  uint64_t index_chunks = 0;
  // Transfers in flight per member, 1 .. 1024. 16 MiB in flight saturate any NVMe drive at the default chunk size.
  unsigned queue_depth = 16;
  // Bytes of one transfer: a chunk goes to its member and comes from it in so many pieces, one after another. A
  // multiple of kIoAlignment, kTransferSizeMin .. kTransferSizeMax; 0: whole chunks.
  uint32_t transfer_size = 0;
  static constexpr uint32_t kTransferSizeMin = 64 * kKiB, kTransferSizeMax = 64 * kMiB;
  // Transfers that share one call to the kernel, 1 .. kSubmitBatchMax; 1: each has its own.
  unsigned submit_batch = QueueSettings().batch;
  static constexpr unsigned kSubmitBatchMax = 64;
  QueueSettings queue() const { return {queue_depth, submit_batch, transfer_size}; }
  // Chunks read ahead of a sequential reader, over all members; 0: chosen from the member count. At most 1024.
  unsigned read_ahead = 0;
  // How new chunks are stored.
  Compression compression;
  // kPrevious: chunks that a file has in common with the file before it in a rotation of checkpoints, or with what it
  // held before, share blocks with them (chunk_sharer.h). All members' filesystems must be able to.
  enum class Dedup : uint8_t { kOff, kPrevious };
  Dedup dedup = Dedup::kOff;
  // Check what is read against its checksum. Off only to measure.
  bool verify = true;
  // Discard what is written: measures the path to the engine.
  bool null_write = false;
  // Small new files may be durable before their indexes are, where the drive's filesystem allows for it (commit_log.h).
  bool commit_log = true;
  // Files up to this many bytes live inside their sidecar. 0 .. kInlineSizeMax.
  uint32_t inline_max = 32 * 1024;
  // Objects that became free are kept for the next file when they are at least this long (spare_objects.h).
  uint64_t spare_least = 4 * kMiB;
  // And for so long at most; zero: for as long as there is room.
  std::chrono::minutes spare_life{60};
  // With Durable::kFsync: a file that was closed is committed in the background after this long.
  unsigned background_commit_ms = 1000;
  // A trickle (a log that stays open; engine/file/writer.h) is committed by itself after this long since the last
  // commit, and when nothing was written for so long. 0: not.
  unsigned commit_interval_ms = 30'000;
  unsigned commit_idle_ms = 5'000;
  // Handles that users of the store may make it hold: with their open files, and with the nodes that they look up
  // (Store::shares()). Not counted in there: what the store needs besides, and ArrayOptions::handles_kept.
  size_t shared_handles = 1024 * 1024;
  // A member that does not answer for this long is given up on until it does (engine/io/stall_watch.h). 0: never.
  // Well above the 30 s that kernels give an NVMe command before they reset the drive, so that resets are survived.
  unsigned io_timeout_ms = 120'000;
  // A read waits for so long at most for the copy of a chunk that its member does not give (Store::set_chunk_source).
  // 0: for as long as that takes.
  unsigned heal_timeout_ms = 30'000;
  // Chunks that are fetched from copies at a time, with memory beside the pool. 0: of 32 MiB, but 16 to 64.
  unsigned fetches_at_once = 0;
  // What was fetched is committed as soon as nothing of the file is away any more, and not only a moment later. For
  // tests, which want both.
  bool commits_when_all_came = true;
};

}  // namespace fpfs
