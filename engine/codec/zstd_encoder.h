// Writes zstd frames (RFC 8878): with the size of their content, without a checksum or a dictionary.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <memory>
#include <span>

namespace fpfs {

// Not thread-safe. Takes its memory with the first frames of each kind and keeps it.
class ZstdEncoder {
 public:
  // Both return the length of the frame, or 0: it has no room in `out`, or there is no memory.

  // Any content, at a level of zstd. Runs at the speed that the level has.
  size_t encode(std::span<const std::byte> content, std::span<std::byte> out, int level);
  // Bytes that do not depend on each other, such as exponents: only entropy coding, hardly any search for matches.
  size_t encode_entropy(std::span<const std::byte> content, std::span<std::byte> out);

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  using Context = std::unique_ptr<ZSTD_CCtx, Free>;

  Context levels_;
  int level_ = 0;  // of levels_
  Context entropy_;
};

}  // namespace fpfs
