#include "engine/file/context.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <fmt/format.h>

#include "engine/file/cached_chunk.h"

namespace fpfs {

namespace {

// For the indexes of open files: 6.5 TiB of them in chunks of 1 MiB.
constexpr uint64_t kIndexMemoryLeast = 256 * kMiB;

uint64_t index_entries_max(const StoreOptions& options) {
  return options.index_chunks != 0 ? options.index_chunks
                                   : std::max(options.buffer_memory, kIndexMemoryLeast) / ExtentTable::kEntryBytesMax;
}

// Buffers that requests need.
uint64_t buffers_least(uint32_t chunk_size) {
  return std::max<uint64_t>(BufferPool::kBuffersMin, 2 * (kRequestBytesMax / chunk_size + 1));
}

// As long as the parts that copies are sent by (TierCopyOptions): shorter ones cost a service more for each byte.
constexpr uint64_t kFetchBytes = 8 * kMiB;
constexpr uint64_t kFetchMemory = 64 * kMiB;

// Of each member (of those that there are now): as many as its queue may have on its way, and together no more than half of the buffers.
unsigned encoding_spaces(const StoreOptions& options, const StripeMap& stripes, uint64_t buffers) {
  return static_cast<unsigned>(std::clamp<uint64_t>(buffers / 2 / stripes.member_count, 1, options.queue_depth));
}

Status check_options(const StoreOptions& options, const StripeMap& stripes) {
  auto refuse = [](std::string what) { return Status::error(StatusCode::kInvalidArgument, std::move(what)); };
  if (options.queue_depth < 1 || options.queue_depth > 1024)
    return refuse(fmt::format("queue_depth={} is out of range; use 1 to 1024", options.queue_depth));
  if (options.submit_batch < 1 || options.submit_batch > StoreOptions::kSubmitBatchMax)
    return refuse(fmt::format("submit_batch={} is out of range; use 1 to {}", options.submit_batch,
                              StoreOptions::kSubmitBatchMax));
  if (options.transfer_size != 0 &&
      (options.transfer_size % kIoAlignment != 0 || options.transfer_size < StoreOptions::kTransferSizeMin ||
       options.transfer_size > StoreOptions::kTransferSizeMax))
    return refuse(fmt::format("transfer_size={} is out of range; use 0 (whole chunks) or {} to {}, in steps of {}",
                              options.transfer_size, format_size(StoreOptions::kTransferSizeMin),
                              format_size(StoreOptions::kTransferSizeMax), format_size(kIoAlignment)));
  if (options.read_ahead > 1024)
    return refuse(fmt::format("read_ahead={} is out of range; use 0 (automatic) to 1024 chunks", options.read_ahead));
  if (options.inline_max > kInlineSizeMax)
    return refuse(fmt::format("inline files of {} bytes; the limit is {}", options.inline_max, kInlineSizeMax));
  if (options.compression.level < Compression::kLevelMin || options.compression.level > Compression::kLevelMax)
    return refuse(fmt::format("zstd level {} is out of range; use {} to {}", options.compression.level,
                              Compression::kLevelMin, Compression::kLevelMax));
  const uint64_t least = stripes.chunk_size * buffers_least(stripes.chunk_size);
  if (options.buffer_memory < least)
    return refuse(fmt::format("buffer_memory={} is too small; chunks of {} need at least {}",
                              format_size(options.buffer_memory), format_size(stripes.chunk_size), format_size(least)));
  return Status::ok();
}

}  // namespace

FileContext::FileContext(Environment& where, Array& of, const StoreOptions& store_options)
    : environment(where),
      array(of),
      watch(where.watch()),
      stripes(of.stripes()),
      options(store_options),
      opened_at(where.now()),
      tasks(where.executor(), where.workers()),
      counters(of),
      clock(where),
      indexes(index_entries_max(store_options)),
      closes_lazily(store_options.durable == StoreOptions::Durable::kFsync) {}

Status FileContext::start() {
  FPFS_RETURN_IF_ERROR(check_options(options, stripes));
  FPFS_ASSIGN_OR_RETURN(pool, BufferPool::create(options.buffer_memory, stripes.chunk_size));
  chunks = std::make_unique<CachedChunk[]>(pool->total());
  // Deep enough to keep every member busy while the reader works through what arrived; never the whole pool.
  const bool reads_ahead = options.read_ahead > 0;
  if (!reads_ahead) options.read_ahead = std::max(8U, 4U * stripes.member_count);
  options.read_ahead = std::min(options.read_ahead, pool->total() / 4);
  // Not touched before they are read: then they cost no memory.
  zeros.reset(static_cast<std::byte*>(std::calloc(kReadBytesMax, 1)));
  if (zeros == nullptr) return Status::from_errno(ENOMEM, "allocate buffers");
  constexpr uint64_t kLooksEveryNs = 1'000'000'000;
  room = std::make_unique<Room>(storage(), array, pool->total() * uint64_t{pool->buffer_size()},
                                environment.is_simulated() ? 0 : kLooksEveryNs);
  spares = std::make_unique<SpareObjects>(environment, array, *room, health, options.spare_least);
  reclaimer = std::make_unique<Reclaimer>(Reclaimer::Parts{environment, array, tasks, health, counters, *spares},
                                          options.spare_life);
  new_names = std::make_unique<NewNames>(*reclaimer);
  io = std::make_unique<ChunkIo>(*this);
  ChunkHealer::Limits limits;
  limits.at_once = options.fetches_at_once > 0
                       ? options.fetches_at_once
                       : static_cast<unsigned>(std::clamp<uint64_t>(kFetchMemory / stripes.chunk_size, 16, 64));
  limits.timeout = std::chrono::milliseconds(options.heal_timeout_ms);
  healer = std::make_shared<ChunkHealer>(environment, tasks, array.id(), stripes.chunk_size, limits);
  fetch_ahead =
      reads_ahead ? options.read_ahead : std::min(std::max(options.read_ahead, limits.at_once), pool->total() / 4);
  // Two of them fit into what is read ahead, so that one is on its way while the other one is read.
  const uint64_t run = std::min<uint64_t>({kFetchBytes / stripes.chunk_size, healer->run_max(), fetch_ahead / 2});
  fetch_run = std::bit_floor(std::max(1U, static_cast<unsigned>(run)));
  if (!array.read_only()) {
    FPFS_ASSIGN_OR_RETURN(
        std::unique_ptr<ChunkEncoder> encoder,
        ChunkEncoder::create(array.member_capacity(), encoding_spaces(options, stripes, pool->total()),
                             stripes.chunk_size, tasks));
    io->encode(std::move(encoder));
    if (options.dedup == StoreOptions::Dedup::kPrevious) {
      FPFS_ASSIGN_OR_RETURN(std::unique_ptr<ChunkSharer> sharer, ChunkSharer::create(*this));
      io->share(std::move(sharer));
      previous_files = std::make_unique<PreviousFiles>(*this);
    }
  }
  for (const MemberIndex m : stripes.members()) {
    if (!array.member(m).present) continue;
    FPFS_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> queue, environment.make_queue(m, options.queue()));
    io->set_queue(m, std::move(queue));
  }
  return Status::ok();
}

}  // namespace fpfs
