// Reading ahead of who goes from tensor to tensor (tensor_starts.h). The header is looked at in chunk 0 when that is read;
// or when it is in memory, or worth loading, while somebody jumps. A worker finds in it where the tensors begin.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/file/file.h"
#include "engine/formats/safetensors.h"

namespace fpfs {
namespace {

// Longer ones are of files with thousands of tensors. One is looked at at a time, of all files.
constexpr uint64_t kHeaderMax = 512 * kKiB;

// Its bytes are what the file has, and nobody is changing them.
bool can_be_looked_at(const CachedChunk& chunk) {
  return (chunk.state == CachedChunk::State::kReady || chunk.state == CachedChunk::State::kWriting) && !chunk.filling;
}

}  // namespace

// Who reads a file from its beginning on may come to jump: its header is at hand now.
void File::look_at_beginning(const ReadRequest& request) {
  if (request.offset != FileOffset(0) || request.pinned_count == 0 || request.cursor == nullptr) return;
  if (!tensors_.is_unknown() || content_.is_edited()) return;
  const CachedChunk* const first = request.pinned[0];
  if (first != nullptr && !first->detached && can_be_looked_at(*first)) find_tensors(*first);
}

// He jumps already. While the file is changed its header is not what it will be.
void File::look_for_tensors(Deferred& deferred) {
  if (!tensors_.is_unknown() || content_.is_edited()) return;
  const ChunkIndex first(0);
  if (const CachedChunk* const chunk = cache_.find(first); chunk != nullptr) {
    if (can_be_looked_at(*chunk)) find_tensors(*chunk);
    return;
  }
  const Extent extent = content_.extent(first);
  Buffer* buffer = nullptr;
  if (!extent.exists() || extent.is_away() || !tensors_.count_jump() ||
      !context_.pool->acquire(1, &buffer, nullptr, this))
    return;
  tensors_.await_header();
  begin_load(cache_.adopt(*buffer, *this, first), deferred.ahead);
}

// A load of chunk 0 has ended.
void File::header_came(const CachedChunk& first, const Status& status) {
  if (!tensors_.awaits_header() || first.transfer.part.length > 0) return;
  if (status.is_ok() && !first.detached)
    find_tensors(first);
  else
    tensors_.forget();
}

// `first` is chunk 0, which has its bytes.
void File::find_tensors(const CachedChunk& first) {
  if (context_.looks_for_tensors.exchange(true)) return tensors_.forget();
  const uint64_t question = tensors_.ask(), file_size = content_.end().value();
  const std::span<const std::byte> content(first.buffer->data, first.length);
  const Result<uint64_t> length = decode_tensor_header_length(content, file_size);
  if (!length.is_ok() || *length > std::min(content.size() - kSafetensorsLengthBytes, kHeaderMax)) {
    context_.looks_for_tensors = false;
    return tensors_.know(question, {});
  }
  const std::span<const std::byte> header = content.subspan(kSafetensorsLengthBytes, *length);
  // Where there are more of them than chunks, nobody jumps far.
  const uint64_t count_max = context_.stripes.chunks_end(content_.end()).value();
  context_.tasks.post_work([self = shared_from_this(), question, file_size, count_max,
                            text = std::vector<std::byte>(header.begin(), header.end())] {
    const std::vector<uint64_t> begins = find_tensor_begins(text, file_size, count_max);
    self->context_.looks_for_tensors = false;
    const MutexLock lock(self->mutex_);
    self->tensors_.know(question, begins);
  });
}

// False: nothing can be read ahead in this way, where he is. (How far the kernel reads may not be known yet: true.)
bool File::read_tensors_ahead(const ReadRequest& request, Deferred& deferred) {
  TensorHops& hops = request.cursor->tensors;
  const uint64_t chunk_size = context_.stripes.chunk_size;
  const uint64_t chunks_each = round_up(2 * hops.reach, chunk_size) / chunk_size + 1;
  const uint64_t count_max = context_.options.read_ahead / chunks_each;
  if (count_max == 0) return false;
  const ChunkIndex content_end = context_.stripes.chunks_end(content_.end());
  while (const std::optional<uint64_t> page = tensors_.next(hops, count_max)) {
    const FileOffset begin(*page - std::min(*page, hops.reach)), end(*page + hops.reach);
    const ChunkIndex last = std::min(context_.stripes.chunks_end(end), content_end);
    for (ChunkIndex index = context_.stripes.chunk_of(begin); index < last; ++index) {
      if (content_.extent(index).is_away()) return false;
      if (!load_ahead(request, index, deferred)) return true;
    }
    hops.name(*page);
  }
  return true;
}

}  // namespace fpfs
