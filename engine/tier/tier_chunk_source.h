// TierChunkSource: the copies in a store, as a source of chunks that the array cannot read any more
// (engine/file/chunk_source.h).
//
// A copy is looked for under the path that is said. Any commit's copy of this file will do, as long as the chunk
// is the same: ChunkHealer proves that. What cannot be proven is not fetched.
//
// Of a chunk that is away no manifest is asked for: while a copy is replaced, its content is new and its manifest old,
// and the chunk is in both contents.
//
// Thread safety: all methods from any thread.
#pragma once

#include <memory>

#include "engine/file/chunk_source.h"
#include "engine/tier/tier_reader.h"

namespace fpfs {

class TierChunkSource final : public ChunkSource {
 public:
  TierChunkSource(std::shared_ptr<TierReader> reader, const Uuid& array_id)
      : reader_(std::move(reader)), array_id_(array_id) {}

  void fetch(const Wanted& wanted, std::span<std::byte> into, Done done) override;
  void fetch_run(const Wanted& first, uint64_t offset, std::span<std::byte> into, Done done) override;

 private:
  const std::shared_ptr<TierReader> reader_;
  const Uuid array_id_;
};

}  // namespace fpfs
