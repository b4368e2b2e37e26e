// Chunks by their codec: what pays is encoded, comes back, and takes fewer blocks on the drive.
#include "engine/codec/chunk_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/base/units.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;
constexpr uint64_t kSeed = 99;
constexpr Compression kZstd{.mode = Compression::Mode::kZstd, .level = 1};

Bytes content(size_t length, bool shrinks) {
  Bytes bytes(length);
  test::fill(bytes, length, 0);
  if (shrinks) test::make_shrink(bytes);
  return bytes;
}

TEST(ChunkCodec, WhatIsEncodedComesBackAndTakesFewerBlocks) {
  for (const size_t length : {size_t{8192}, size_t{12'345}, size_t{65'536}, size_t{kMiB}}) {
    const Bytes raw = content(length, true);
    Bytes stored(length);
    const std::optional<EncodedChunk> encoded = encode_chunk(kZstd, raw, stored, kSeed);
    ASSERT_TRUE(encoded.has_value()) << length;
    EXPECT_EQ(encoded->codec, Codec::kBlocks);
    EXPECT_LT(round_up(encoded->length, kIoAlignment), round_up(length, kIoAlignment));
    Bytes back(length);
    const Status decoded = decode_chunk(encoded->codec, std::span(stored).first(encoded->length), back, kSeed);
    ASSERT_TRUE(decoded.is_ok()) << decoded.message();
    EXPECT_EQ(back, raw);
    EXPECT_EQ(decode_chunk(encoded->codec, std::span(stored).first(encoded->length), back, kSeed + 1).code(),
              StatusCode::kCorruption)
        << "it belongs elsewhere";
  }
}

TEST(ChunkCodec, WhatDoesNotPayIsStoredAsItIs) {
  Bytes stored(kMiB);
  EXPECT_FALSE(encode_chunk(kZstd, content(kMiB, false), stored, kSeed)) << "it does not shrink";
  EXPECT_FALSE(encode_chunk(kZstd, content(kIoAlignment, true), stored, kSeed))
      << "a block is the least that is written";
  EXPECT_FALSE(encode_chunk(kZstd, content(1, true), stored, kSeed));
  EXPECT_FALSE(encode_chunk({}, content(kMiB, true), stored, kSeed)) << "nobody asked for it";
  // It shrinks, and takes the same number of blocks.
  Bytes almost = content(2 * kIoAlignment, false);
  std::fill(almost.end() - 1000, almost.end(), std::byte{0});
  EXPECT_FALSE(encode_chunk(kZstd, almost, stored, kSeed));
}

TEST(ChunkCodec, WhatIsAsItIsIsCopied) {
  const Bytes raw = content(5000, false);
  Bytes back(5000), shorter(4999);
  EXPECT_TRUE(decode_chunk(Codec::kRaw, raw, back, kSeed).is_ok());
  EXPECT_EQ(back, raw);
  EXPECT_EQ(decode_chunk(Codec::kRaw, raw, shorter, kSeed).code(), StatusCode::kCorruption);
  EXPECT_EQ(decode_chunk(Codec::kNone, raw, back, kSeed).code(), StatusCode::kCorruption);
}

}  // namespace
}  // namespace fpfs
