// ReadOut: the chunks of a file that its readers have got whole and keep themselves, as the kernel does in its page cache, for
// all who have the file open. None of these readers has them read ahead: who goes from tensor to tensor first gets whole
// chunks where they begin, and comes by there once more when he reads all of them.
//
// It is a hint, as what they keep they may drop: when such a reader asks for one of these chunks again, all is forgotten,
// and what he was not given is read ahead of him.
//
// Thread safety: none; the file's lock.
#pragma once

#include "engine/base/units.h"
#include "engine/file/chunk_ranges.h"

namespace fpfs {

class ReadOut {
 public:
  // Who reads here and there does not come by again; what is kept in more ranges is forgotten.
  static constexpr size_t kRangesMax = 1024;

  void note(ChunkIndex chunk) {
    chunks_.add(chunk, chunk + 1, [](ChunkIndex, ChunkIndex) {});
    if (chunks_.count() > kRangesMax) forget();
  }
  // A reader who keeps what he gets asks for it. False: what nobody had read ahead may be needed after all.
  bool ask(ChunkIndex chunk) {
    if (!chunks_.contains(chunk)) return true;
    forget();
    return false;
  }
  bool contains(ChunkIndex chunk) const { return chunks_.contains(chunk); }

 private:
  void forget() { chunks_ = {}; }

  ChunkRanges chunks_;
};

}  // namespace fpfs
