// The lossless block codec: a chunk as a row of blocks, each stored in the form that suits what it holds.
//
// A chunk of a checkpoint holds tensors, headers and text. Each block is raw, one repeated element, a zstd frame of its
// plain bytes, or numbers split into byte planes of which those that shrink are zstd frames (engine/codec/
// number_planes.h). Samples of each block decide (engine/codec/block_choice.h). The stored form is in docs/format.md,
// "Blocks"; any zstd decodes it.
//
// All functions are pure, and safe to call from any thread. A thread takes some MiB for its first calls (at high levels
// of zstd some dozen) and keeps them; nothing else is allocated, whatever the stored bytes say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/status.h"

namespace fpfs {

inline constexpr size_t kBlockSizeMin = 16 * 1024;
inline constexpr size_t kBlockSizeMax = 1024 * 1024;
inline constexpr size_t kBlockCodecRawMax = 16 * 1024 * 1024;

struct BlockOptions {
  int level = 1;  // of zstd, 1 to 19; for what is not numbers
  // A power of two, kBlockSizeMin to kBlockSizeMax. A read decodes whole blocks. 64 KiB is within 0.1 % of the size and
  // about 10 % of the speed of 128 KiB; 32 KiB takes a sixth longer, 16 KiB half as long again.
  size_t block_size = 64 * 1024;
  uint64_t seed = 0;  // of the checksums: binds the stored bytes to their place, see chunk_seed()
};

// Encodes `raw`, 1 byte to kBlockCodecRawMax, into `out`, which is as large at least. Returns the stored length, or 0
// if that would not be smaller than raw by 1/32 at least. What `out` holds then means nothing: store the chunk as is.
// Where samples promise nothing, that is found out without encoding.
size_t encode_blocks(std::span<const std::byte> raw, std::span<std::byte> out, const BlockOptions& options);

// Decodes `stored` into all of `out`. kCorruption: it is not blocks of out.size() bytes, whole and alone, made with
// this seed; what `out` holds then means nothing. Never writes outside of `out`.
Status decode_blocks(std::span<const std::byte> stored, std::span<std::byte> out, uint64_t seed = 0);

// The same for out.size() bytes of the content at `offset`, of `raw_length` in all. Decodes the blocks that cover them.
Status decode_range(std::span<const std::byte> stored, size_t raw_length, size_t offset, std::span<std::byte> out,
                    uint64_t seed = 0);

// What vouches for all of `stored`, which are blocks, whole and alone: the checksum of their index, which has one of all
// that lies behind it. Of other bytes it is some other number.
uint64_t blocks_checksum(std::span<const std::byte> stored, uint64_t seed);

// What of `stored`, which are blocks, whole and alone, of `raw`, is bound to their place: `stored` becomes what
// encode_blocks() would have made of them with this seed. Returns its blocks_checksum().
uint64_t rebind_blocks(std::span<std::byte> stored, std::span<const std::byte> raw, uint64_t seed);

// Where the blocks of one chunk lie: for a reader who fetches only those that it needs.
//
//   Read kHeaderLength bytes; length_of() says how many the index has.
//   Read those; parse().
//   Read stored_range(); decode().
//
// Every block has a checksum of its content in the index, and the index one of its own, which is that of the whole chunk:
// when checksum() is what the chunk is said to have, what is decoded was verified. Refers to the bytes that were parsed.
class BlockIndex {
 public:
  static constexpr size_t kHeaderLength = 32;

  // In bytes of stored and of raw content.
  struct Range {
    size_t offset = 0;
    size_t length = 0;
  };

  // How long the index is that begins with `header`, for a chunk of `raw_length` bytes.
  static Result<size_t> length_of(std::span<const std::byte> header, size_t raw_length);
  // `index` is as long as length_of() says, or longer.
  static Result<BlockIndex> parse(std::span<const std::byte> index, size_t stored_length, size_t raw_length,
                                  uint64_t seed);

  // blocks_checksum() of all of them.
  uint64_t checksum() const { return checksum_; }
  // The stored bytes of the blocks that hold `raw`, which lies within the content and is not empty.
  Range stored_range(Range raw) const;
  // Decodes the bytes from `offset` on into all of `out`, given stored_range() of them.
  Status decode(size_t offset, std::span<const std::byte> stored, std::span<std::byte> out) const;

 private:
  BlockIndex(std::span<const std::byte> index, size_t raw_length, size_t block_size, uint64_t seed);

  std::span<const std::byte> table_;
  uint64_t checksum_;
  size_t raw_length_;
  size_t block_size_;
  uint64_t seed_;
};

}  // namespace fpfs
