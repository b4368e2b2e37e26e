// PartReads: which chunks were read in part lately.
//
// A short read at a place that nothing led to, of a chunk with many blocks, is answered from the block that it needs:
// a chunk that nobody looks at again is not worth loading. Whoever comes to the same chunk again gets it loaded as a
// whole, for those after him: pages of a mapping, the members of an archive. What is remembered is a few chunks, so in
// content that is much larger than that a second read by chance means nothing.
//
// Thread safety: none; the file's lock.
#pragma once

#include <array>

#include "engine/base/units.h"

namespace fpfs {

class PartReads {
 public:
  PartReads() { chunks_.fill(kChunksEnd); }
  // The chunk is about to be read in part. False: it was lately, and is to be loaded now (and is forgotten).
  bool note(ChunkIndex chunk) {
    ChunkIndex& last = chunks_[chunk.value() % chunks_.size()];
    const bool is_new = last != chunk;
    last = is_new ? chunk : kChunksEnd;
    return is_new;
  }

 private:
  std::array<ChunkIndex, 64> chunks_;
};

}  // namespace fpfs
