#include "engine/file/chunk_sharer.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/codec/block_codec.h"
#include "engine/codec/block_format.h"
#include "engine/codec/hash.h"
#include "engine/file/committed_version.h"
#include "engine/file/context.h"
#include "engine/file/previous_files.h"

namespace fpfs {

namespace {

// Over all members, if each has two at least: as many as the executor has threads.
constexpr unsigned kSpaces = 8;

bool is_zeros(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

bool are_same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// What refuses for good, whatever the files hold.
bool cannot_share(const Status& status) {
  switch (status.errno_value()) {
    case EOPNOTSUPP:
    case ENOTTY:
    case ENOSYS:
    case EXDEV:
    case EINVAL:
      return true;
    default:
      return false;
  }
}

// Tried out, in two files without a name: by nothing else can all filesystems be told. A block in the middle, so that
// larger ones than kIoAlignment are found out, too. A drive that is full or damaged is no reason to refuse.
Status try_to_share(Storage& storage, Handle directory) {
  const auto open = [&] { return storage.open_at(directory, ".", O_TMPFILE | O_RDWR, 0600); };
  ScopedHandle files[2];
  for (ScopedHandle& file : files) {
    const Result<Handle> opened = open();
    if (!opened.is_ok()) return cannot_share(opened.status()) ? opened.status() : Status::ok();
    file = ScopedHandle(storage, *opened);
  }
  const std::array<std::byte, 3 * kIoAlignment> bytes{std::byte{1}};
  if (!storage.pwrite(files[0].get(), bytes, 0).is_ok()) return Status::ok();
  const Status status = storage.clone_range(files[0].get(), kIoAlignment, kIoAlignment, files[1].get(), kIoAlignment);
  return status.is_ok() || !cannot_share(status) ? Status::ok() : status;
}

}  // namespace

Result<std::unique_ptr<ChunkSharer>> ChunkSharer::create(FileContext& context) {
  for (const MemberIndex m : context.array.members()) {
    const Member& member = context.array.member(m);
    if (!member.present) continue;
    const Status status = try_to_share(context.storage(), member.objects);
    if (!status.is_ok())
      return Status::error(
          StatusCode::kUnsupported,
          fmt::format("dedup=previous: files on member {} ({}) cannot share blocks ({}); use XFS (made "
                      "with reflink=1, the default) or btrfs there, or dedup=off",
                      m, member.path, std::generic_category().message(status.errno_value())));
  }
  const uint16_t members = context.array.member_count();
  FPFS_ASSIGN_OR_RETURN(
      std::unique_ptr<MemberSpaces> spaces,
      MemberSpaces::create(context.array.member_capacity(), std::max(2U, kSpaces / members),
                           2 * context.stripes.chunk_size, context.tasks, MemberSpaces::Tasks::kCalls));
  return std::unique_ptr<ChunkSharer>(new ChunkSharer(context, std::move(spaces)));
}

ChunkSharer::ChunkSharer(FileContext& context, std::unique_ptr<MemberSpaces> spaces)
    : context_(context), spaces_(std::move(spaces)), is_unable_(context.array.member_capacity()) {}

void ChunkSharer::add_member(MemberIndex member) {
  const Status status = try_to_share(context_.storage(), context_.array.member(member).objects);
  if (status.is_ok()) return;
  is_unable_[member].store(true);
  log(LogLevel::kWarning, "dedup=previous does nothing on member {} ({}): {}", member,
      context_.array.member(member).path, status.message());
}

std::byte* ChunkSharer::decoded_in(const ShareRequest& request) const {
  return request.space->data + context_.stripes.chunk_size;
}

// --- in its turn -----------------------------------------------------------------------------------------------------

void ChunkSharer::start(ShareRequest& request) {
  request.sharer = this;
  request.shared = {};
  if (request.previous->wait(request)) return;
  if (is_unable_[request.member].load(std::memory_order_relaxed) || !request.previous->is_worth_a_try())
    return request.done(request, Status::ok());
  request.run = [](SpaceRequest& turn, const Status& status) {
    auto& sharing = static_cast<ShareRequest&>(turn);
    ChunkSharer& sharer = *sharing.sharer;
    if (status.is_ok()) sharer.compare(sharing);
    sharer.spaces_->release(sharing);
    sharing.done(sharing, status);
  };
  spaces_->start(request);
}

void ChunkSharer::compare(ShareRequest& request) {
  const std::shared_ptr<PreviousContent> previous = request.previous;
  const bool shared = share(request);
  if (previous->note(shared)) context_.previous_files->look_for(previous);
}

// --- one chunk -------------------------------------------------------------------------------------------------------

bool ChunkSharer::share(ShareRequest& request) {
  const std::optional<PreviousContent::Place> place = request.previous->place_of(request.chunk);
  if (!place) return false;
  const Extent& old = place->extent;
  // What the file does not show of a chunk is content no more, but it is in what is stored.
  if (old.member != request.member || old.raw_length != request.raw.size() || old.visible_length != old.raw_length)
    return false;
  const Result<HandleCache::Pin> from = place->objects->open_for_transfer(request.member, ObjectSet::Use::kRead);
  if (!from.is_ok()) {
    report(request, *place, from.status());
    return false;
  }
  const Result<bool> same = is_same(request, *place, from->get());
  if (!same.is_ok()) report(request, *place, same.status());
  if (!same.is_ok() || !*same) return false;
  const Status cloned = clone(request, *place, from->get());
  if (!cloned.is_ok()) {
    if (cannot_share(cloned) && !is_unable_[request.member].exchange(true))
      log(LogLevel::kWarning, "dedup=previous does nothing on member {} ({}) from now on: {}", request.member,
          context_.array.member(request.member).path, cloned.message());
    request.shared = {};
    return false;
  }
  return request.shared.codec != Codec::kNone;
}

// Whether the old chunk, as it lies on the drive, is the new one. A failure is one of the old chunk.
Result<bool> ChunkSharer::is_same(const ShareRequest& request, const PreviousContent::Place& place, Handle from) {
  const Extent& old = place.extent;
  const std::span<const std::byte> raw = request.raw;
  const uint64_t seed =
      chunk_seed(context_.array.id().data(), place.objects->file(), place.objects->generation(), request.chunk);
  const uint64_t offset = offset_of(old.slot, context_.stripes.chunk_size).value();
  const std::span<std::byte> taken(stored_in(request), round_up(old.stored_length, kIoAlignment));
  const std::span<std::byte> stored = taken.first(old.stored_length);
  const auto read = [&](size_t begin, size_t end) -> Status {
    FPFS_ASSIGN_OR_RETURN(const size_t length,
                          context_.storage().pread(from, taken.subspan(begin, end - begin), offset + begin));
    if (length == end - begin) return Status::ok();
    return Status::error(StatusCode::kCorruption,
                         fmt::format("the object ends after {} of {} bytes", begin + length, old.stored_length));
  };
  size_t have = 0;
  switch (old.codec) {
    case Codec::kRaw:
      if (hash_bytes(raw, seed) != old.checksum) return false;
      break;
    case Codec::kBlocks: {
      have = std::min<size_t>(taken.size(), kIoAlignment);
      FPFS_RETURN_IF_ERROR(read(0, have));
      const size_t block = std::min(raw.size(), size_t{1} << std::min<unsigned>(static_cast<unsigned>(stored[8]), 30));
      const uint64_t first = blocks::get_entry(stored.data() + blocks::kHeaderLength).checksum;
      // Damage there looks like another content, which costs nothing but the space.
      if (first != hash_bytes(raw.first(block), seed)) return false;
      break;
    }
    case Codec::kZstd:
    case Codec::kNone:
    case Codec::kAway:
      return false;
  }
  if (have < taken.size()) FPFS_RETURN_IF_ERROR(read(have, taken.size()));
  context_.counters[request.member].bytes_read.fetch_add(taken.size(), std::memory_order_relaxed);
  const bool is_raw = old.codec == Codec::kRaw;
  const bool is_same = is_raw && are_same(stored, raw);  // which has the checksum
  if (!is_same && stored_checksum(old.codec, stored, seed) != old.checksum)
    return Status::error(StatusCode::kCorruption, "the checksum does not match what was written");
  if (!is_zeros(taken.subspan(stored.size()))) return false;
  if (is_raw) return is_same;
  const std::span<std::byte> decoded(decoded_in(request), raw.size());
  FPFS_RETURN_IF_ERROR(decode_chunk(old.codec, stored, decoded, seed));
  return are_same(decoded, raw);
}

Status ChunkSharer::clone(ShareRequest& request, const PreviousContent::Place& place, Handle from) {
  const Extent& old = place.extent;
  const uint64_t chunk_size = context_.stripes.chunk_size;
  const std::span<std::byte> stored(stored_in(request), old.stored_length);
  const uint64_t taken = round_up(old.stored_length, kIoAlignment);
  uint64_t bound = 0;  // the first bytes, which are not the same
  EncodedChunk shared{old.codec, old.stored_length, 0};
  if (old.codec == Codec::kRaw) {
    shared.checksum = hash_bytes(request.raw, request.seed);
  } else {
    shared.checksum = rebind_blocks(stored, request.raw, request.seed);
    bound =
        round_up(blocks::index_length(request.raw.size(), size_t{1} << static_cast<unsigned>(stored[8])), kIoAlignment);
  }
  if (bound >= taken) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin to,
                        request.objects->open_for_transfer(request.member, ObjectSet::Use::kWrite));
  const ObjectOffset begin = offset_of(request.slot, chunk_size);
  Status status = context_.storage().clone_range(from, offset_of(old.slot, chunk_size).value() + bound, taken - bound,
                                                 to.get(), begin.value() + bound);
  if (status.is_ok() && bound > 0)
    status = context_.storage().pwrite(to.get(), std::span(stored_in(request), bound), begin.value());
  request.objects->note_shared(request.member, begin + taken);
  FPFS_RETURN_IF_ERROR(status);
  MemberCounters& counters = context_.counters[request.member];
  for (std::atomic<uint64_t>* const count : {&counters.bytes_written, &counters.bytes_saved})
    count->fetch_add(bound, std::memory_order_relaxed);
  chunks_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(taken - bound, std::memory_order_relaxed);
  request.shared = shared;
  return status;
}

// Of the old chunk.
void ChunkSharer::report(const ShareRequest& request, const PreviousContent::Place& place, const Status& failure) {
  ChunkTransfer transfer;
  transfer.chunk = request.chunk;
  transfer.extent = place.extent;
  const Status told = context_.io->report(failure, transfer, *place.objects,
                                          place.held != nullptr ? place.held->path() : "what was replaced");
  log(LogLevel::kError, "{}; what is written now is stored anew", told.message());
}

}  // namespace fpfs
