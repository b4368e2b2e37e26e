// Reading ahead of who goes from tensor to tensor (tensor_starts.h). The header of the file is looked at on its first
// jump, in chunk 0, which is loaded for that if need be, and decoded by a worker.
#include <utility>
#include <vector>

#include "engine/file/file.h"
#include "engine/formats/safetensors.h"

namespace fpfs {

void File::look_for_tensors(Deferred& deferred) {
  const ChunkIndex first(0);
  if (const CachedChunk* const chunk = cache_.find(first); chunk != nullptr) {
    tensors_.ask();
    if (chunk->state == CachedChunk::State::kReady) find_tensors(*chunk);
    return;
  }
  const Extent extent = content_.extent(first);
  Buffer* buffer = nullptr;
  if (!extent.exists() || extent.is_away() || !context_.pool->acquire_ahead(&buffer, this)) return;
  tensors_.ask();
  begin_load(cache_.adopt(*buffer, *this, first), deferred.ahead);
}

// `first` is chunk 0, with what it holds. A longer header is left alone: thousands of tensors for each file.
void File::find_tensors(const CachedChunk& first) {
  const std::span<const std::byte> content(first.buffer->data, first.length);
  const uint64_t file_size = content_.end().value();
  const Result<uint64_t> length = decode_tensor_header_length(content, file_size);
  if (!length.is_ok() || *length > content.size() - kSafetensorsLengthBytes) return tensors_.know({});
  const std::span<const std::byte> header = content.subspan(kSafetensorsLengthBytes, *length);
  context_.tasks.post_work(
      [self = shared_from_this(), file_size, text = std::vector<std::byte>(header.begin(), header.end())] {
        std::vector<uint64_t> begins;
        if (const Result<TensorHeader> decoded = decode_tensor_header(text, file_size); decoded.is_ok())
          for (const TensorDescription& tensor : decoded->tensors)
            begins.push_back(decoded->content_begin + tensor.begin);
        const MutexLock lock(self->mutex_);
        if (self->tensors_.state() == TensorStarts::State::kAsked) self->tensors_.know(std::move(begins));
      });
}

void File::read_tensors_ahead(TensorHops& hops, Deferred& deferred) {
  const uint64_t limit = uint64_t{context_.options.read_ahead} * context_.stripes.chunk_size;
  const ChunkIndex content_end = context_.stripes.chunks_end(content_.end());
  while (const auto range = tensors_.next_range(hops, limit)) {
    const ChunkIndex end = std::min(context_.stripes.chunks_end(range->second), content_end);
    for (ChunkIndex index = context_.stripes.chunk_of(range->first); index < end; ++index) {
      const Extent extent = content_.extent(index);
      if (!extent.exists() || extent.is_away() || cache_.find(index) != nullptr) continue;
      Buffer* buffer = nullptr;
      if (!context_.pool->acquire_ahead(&buffer, this)) return;
      begin_load(cache_.adopt(*buffer, *this, index), deferred.ahead);
    }
  }
}

}  // namespace fpfs
