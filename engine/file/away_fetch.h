// One chunk that is away, and is asked for: by a reader (away.cpp), or to stay (recall.cpp).
#pragma once

#include "engine/file/chunk_healer.h"
#include "engine/file/file.h"

namespace fpfs {

struct File::Fetch {
  ChunkIndex chunk;
  Extent extent;
  std::byte* into = nullptr;
  ChunkHealer::Done done = nullptr;
  unsigned attempt = 0;
  bool is_in_run = false;  // it is asked for together with others
};

}  // namespace fpfs
