#include "engine/file/chunk_encoder.h"

#include <ctime>
#include <optional>
#include <utility>

namespace fpfs {

namespace {

// Of the calling thread.
uint64_t processor_ns() {
  struct timespec time {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

Result<std::unique_ptr<ChunkEncoder>> ChunkEncoder::create(uint16_t members, unsigned spaces, uint32_t chunk_size,
                                                           TaskCounter& tasks) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<MemberSpaces> memory,
                        MemberSpaces::create(members, spaces, chunk_size, tasks, MemberSpaces::Tasks::kWork));
  return std::unique_ptr<ChunkEncoder>(new ChunkEncoder(std::move(memory)));
}

void ChunkEncoder::start(EncodeRequest& request) {
  request.encoder = this;
  request.run = [](SpaceRequest& turn, const Status& status) {
    auto& encoding = static_cast<EncodeRequest&>(turn);
    if (status.is_ok()) encoding.encoder->encode(encoding);
    encoding.ready(encoding, status);
  };
  if (request.compression.mode == Compression::Mode::kOff)
    spaces_->start_without_space(request);
  else
    spaces_->start(request);
}

void ChunkEncoder::encode(EncodeRequest& request) {
  const uint64_t begin = processor_ns();
  std::optional<EncodedChunk> encoded;
  if (request.space != nullptr)
    encoded =
        encode_chunk(request.compression, request.raw, {request.space->data, spaces_->space_size()}, request.seed);
  if (encoded) {
    request.encoded = *encoded;
  } else {
    release(request);
    request.encoded = {Codec::kRaw, static_cast<uint32_t>(request.raw.size()),
                       stored_checksum(Codec::kRaw, request.raw, request.seed)};
  }
  request.processor_ns = processor_ns() - begin;
}

}  // namespace fpfs
