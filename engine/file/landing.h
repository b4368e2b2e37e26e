// Landing: memory of the engine that the next write of a stream may be received into by whoever copies its bytes anyway
// (for FUSE the kernel, out of the writer's memory), so that File::write() need not copy them a second time.
//
//   File::begin_landing()       where bytes from `offset` on would go; false when nothing speaks for a stream
//   ... the caller fills the parts from their start, and learns whose bytes they are ...
//   File::write()               with request.landing set, when they are this file's next ones, or
//   File::take_landing()        of the file whose they are, then its write(), when no copy is needed for that, or
//   File::cancel_landing()      when they are not: nothing has happened
//
// Held no longer than that one copy takes: commits of the file, and readers and other writers of the chunk, wait for
// it.
//
// Thread safety: none; one owner.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>

#include "engine/base/units.h"
#include "engine/io/buffer_pool.h"

namespace fpfs {

class File;
struct CachedChunk;

struct Landing {
  std::shared_ptr<File> file;  // null: not held
  FileOffset offset;           // of the first byte
  uint32_t capacity = 0;       // bytes in all parts
  std::array<struct iovec, 2> parts{};
  unsigned part_count = 0;

  // The engine's own: the chunk that the first part lies in (unless the stream stands at a chunk's start), and the
  // buffer for the chunk behind it.
  CachedChunk* chunk = nullptr;
  Buffer* spare = nullptr;

  // Where byte `position` of the write is, counted from `offset`; nullptr behind the last part.
  std::byte* find(uint32_t position) const {
    for (unsigned i = 0; i < part_count; ++i) {
      if (position < parts[i].iov_len) return static_cast<std::byte*>(parts[i].iov_base) + position;
      position -= static_cast<uint32_t>(parts[i].iov_len);
    }
    return nullptr;
  }
};

}  // namespace fpfs
