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
  // The chunk is about to be read in part. False: it was lately, and is to be loaded now (and is forgotten).
  bool note(ChunkIndex chunk) {
    uint32_t& last = last_[chunk.value() % kPlaces];
    const auto name = static_cast<uint32_t>(chunk.value() / kPlaces + 1);
    const bool is_new = last != name;
    last = is_new ? name : 0;
    return is_new;
  }

 private:
  static constexpr uint64_t kPlaces = 64;
  std::array<uint32_t, kPlaces> last_{};  // of the chunks that have this place; 0: none
};

}  // namespace fpfs
