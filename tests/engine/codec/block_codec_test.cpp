#include "engine/codec/block_codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/bytes.h"
#include "engine/codec/block_format.h"
#include "tests/support/chunk_content.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;
using test::chunk_content;
using test::Content;
constexpr size_t kGuard = 64;
constexpr std::byte kUntouched{0xee};

// Memory that is watched on both sides.
class Watched {
 public:
  explicit Watched(size_t size) : memory_(size + 2 * kGuard, kUntouched) {}
  ~Watched() {
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    EXPECT_TRUE(std::all_of(memory_.begin(), memory_.begin() + kGuard, untouched));
    EXPECT_TRUE(std::all_of(memory_.end() - kGuard, memory_.end(), untouched));
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  std::span<std::byte> span() { return std::span(memory_).subspan(kGuard, memory_.size() - 2 * kGuard); }

 private:
  Bytes memory_;
};

// Empty: the chunk is to be stored as it is.
Bytes encode(const Bytes& raw, const BlockOptions& options = {}) {
  Watched out(raw.size());
  const size_t length = encode_blocks(raw, out.span(), options);
  EXPECT_LE(length, raw.size() - raw.size() / 32);
  return {out.span().begin(), out.span().begin() + static_cast<ptrdiff_t>(length)};
}

struct Decoded {
  Status status;
  Bytes bytes;
};

Decoded decode(std::span<const std::byte> stored, size_t size, uint64_t seed = 0) {
  Watched out(size);
  Decoded decoded{decode_blocks(stored, out.span(), seed), {}};
  decoded.bytes.assign(out.span().begin(), out.span().end());
  return decoded;
}

// --- The decoder that docs/format.md describes, without a check of anything. ---

Bytes frame_content(std::span<const std::byte> frame, size_t size) {
  Bytes content(size);
  EXPECT_EQ(ZSTD_decompress(content.data(), size, frame.data(), frame.size()), size);
  EXPECT_EQ(ZSTD_findFrameCompressedSize(frame.data(), frame.size()), frame.size());
  EXPECT_EQ(ZSTD_getDictID_fromFrame(frame.data(), frame.size()), 0u);
  EXPECT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), size);
  return content;
}

Bytes documented_planes(std::span<const std::byte> stored, size_t size, size_t width, size_t phase, size_t rotation) {
  const size_t count = (size - phase) / width, tail = size - phase - count * width;
  std::vector<Bytes> planes;
  size_t at = 4 * width + phase + tail;
  for (size_t k = 0; k < width; ++k) {
    const uint32_t entry = get_u32(&stored[4 * k]), length = entry & 0xffffff, method = entry >> 24;
    const auto bytes = stored.subspan(at, length);
    if (method == 1) planes.emplace_back(bytes.begin(), bytes.end());
    if (method == 2) planes.emplace_back(count, bytes[0]);
    if (method == 3) planes.push_back(frame_content(bytes, count));
    at += length;
  }
  EXPECT_EQ(at, stored.size());
  Bytes content(stored.begin() + static_cast<ptrdiff_t>(4 * width),
                stored.begin() + static_cast<ptrdiff_t>(4 * width + phase));
  for (size_t i = 0; i < count; ++i) {
    uint64_t rotated = 0;
    for (size_t k = 0; k < width; ++k) rotated |= std::to_integer<uint64_t>(planes[k][i]) << (8 * k);
    const uint64_t low = rotated & ((uint64_t{1} << rotation) - 1);
    const uint64_t lost = rotation == 0 ? 0 : low << (8 * width - rotation);
    const uint64_t element = (rotated >> rotation) | lost;
    for (size_t k = 0; k < width; ++k) content.push_back(static_cast<std::byte>(element >> (8 * k)));
  }
  const auto behind = stored.subspan(4 * width + phase, tail);
  content.insert(content.end(), behind.begin(), behind.end());
  return content;
}

Bytes documented_decode(std::span<const std::byte> stored) {
  const size_t raw_length = get_u32(&stored[4]), block_size = size_t{1} << static_cast<int>(stored[8]);
  const size_t blocks = (raw_length + block_size - 1) / block_size;
  Bytes content;
  size_t at = 32 + 16 * blocks;
  for (size_t i = 0; i < blocks; ++i) {
    const std::byte* const entry = &stored[32 + 16 * i];
    const auto bytes = stored.subspan(at, get_u32(entry));
    const size_t size = std::min(block_size, raw_length - i * block_size);
    const auto number = [&](size_t offset) { return std::to_integer<size_t>(entry[offset]); };
    Bytes block;
    if (number(4) == 1) block.assign(bytes.begin(), bytes.end());
    if (number(4) == 2)
      for (size_t k = 0; k < size; ++k) block.push_back(bytes[k % 8]);
    if (number(4) == 3) block = frame_content(bytes, size);
    if (number(4) == 4) block = documented_planes(bytes, size, number(5), number(6), number(7));
    EXPECT_EQ(block.size(), size);
    content.insert(content.end(), block.begin(), block.end());
    at += bytes.size();
  }
  EXPECT_EQ(at, stored.size());
  return content;
}

// Returns the stored length, or the raw one.
size_t expect_comes_back(const Bytes& raw, const BlockOptions& options = {}) {
  const Bytes stored = encode(raw, options);
  if (stored.empty()) return raw.size();
  const Decoded decoded = decode(stored, raw.size(), options.seed);
  EXPECT_TRUE(decoded.status.is_ok()) << decoded.status.message();
  EXPECT_EQ(decoded.bytes, raw);
  EXPECT_EQ(documented_decode(stored), raw);
  return stored.size();
}

// Weights behind text behind zeros behind noise, in blocks of 16 KiB.
Bytes mixed_content() {
  Bytes all;
  for (const Content content : {Content::kText, Content::kBf16, Content::kZeros, Content::kNoise, Content::kTokens64,
                                Content::kFp32, Content::kText}) {
    const Bytes part = chunk_content(content, 16 * 1024 + 5, 9);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
constexpr BlockOptions kSmallBlocks{.level = 1, .block_size = kBlockSizeMin, .seed = 77};

TEST(BlockCodec, GivesBackEveryContentAtEveryPhase) {
  for (const Content content : test::kContents)
    for (size_t phase = 0; phase < 9; phase += content < Content::kBytes ? 1 : 4)
      for (const size_t size : {size_t{40'003}, size_t{200'000}, size_t{3 * 65536}}) {
        if (test::kIsSanitized && size == 3 * 65536) continue;  // the same code as for the one before
        SCOPED_TRACE(testing::Message() << "content " << static_cast<int>(content) << ", phase " << phase << ", "
                                        << size);
        expect_comes_back(chunk_content(content, size, phase, phase), kSmallBlocks);
        expect_comes_back(chunk_content(content, size, phase, phase));
      }
}

TEST(BlockCodec, GivesBackEverySize) {
  for (const Content content : {Content::kFp32, Content::kZeros, Content::kText, Content::kTokens64})
    for (size_t size = 1; size < 1200; size += size < 300 ? 1 : 37) expect_comes_back(chunk_content(content, size, 1));
  for (const size_t size : {kBlockSizeMin - 1, kBlockSizeMin, kBlockSizeMin + 1, kBlockSizeMax, kBlockCodecRawMax})
    for (const size_t block_size : {kBlockSizeMin, kBlockSizeMax})
      expect_comes_back(chunk_content(Content::kBf16, size, 1), {.block_size = block_size});
}

TEST(BlockCodec, GivesBackEveryBitOfAFloat) {
  Bytes raw(4 * 65536), wide(8 * 16384);
  std::mt19937_64 random(5);
  const uint32_t special[] = {0x80000000, 0x7fc00001, 0xffffffff, 0x7f800001, 0x00000001, 0x807fffff, 0x7f800000};
  for (size_t i = 0; i < 65536; ++i)
    put_u32(&raw[4 * i],
            random() % 4 == 0 ? special[random() % 7] : 0x3c000000 | (static_cast<uint32_t>(random()) >> 9));
  EXPECT_LT(expect_comes_back(raw), raw.size());
  const double numbers[] = {-0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::signaling_NaN(), -std::numeric_limits<double>::quiet_NaN()};
  for (size_t i = 0; i < 16384; ++i) put_u64(&wide[8 * i], std::bit_cast<uint64_t>(numbers[random() % 5]) ^ (i % 3));
  EXPECT_LT(expect_comes_back(wide), wide.size());
}

TEST(BlockCodec, MakesThemAsSmallAsPromised) {
  const std::pair<Content, double> promised[] = {
      {Content::kBf16, 0.67},    {Content::kFp16, 0.85},     {Content::kFp32, 0.84},     {Content::kFp64, 0.89},
      {Content::kSquares, 0.84}, {Content::kTokens32, 0.50}, {Content::kTokens64, 0.25}, {Content::kBytes, 0.85},
      {Content::kText, 0.50},    {Content::kZeros, 0.002},   {Content::kEven32, 0.497},  {Content::kEven64, 0.25}};
  for (const auto& [content, share] : promised)
    for (const size_t phase : {0, 1, 3, 7}) {
      if (test::kIsSanitized && phase > 0) continue;  // sizes are the same there
      const Bytes raw = chunk_content(content, 1 << 20, 3, phase);
      EXPECT_LE(static_cast<double>(expect_comes_back(raw)), share * static_cast<double>(raw.size()))
          << "content " << static_cast<int>(content) << ", phase " << phase;
    }
}

TEST(BlockCodec, LeavesNoiseAlone) {
  for (const size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{1} << 20})
    EXPECT_TRUE(encode(chunk_content(Content::kNoise, size, 4)).empty());
  Bytes nearly = chunk_content(Content::kNoise, 1 << 20, 4);  // a 64th of zeros gains less than a 32nd
  std::fill_n(nearly.begin(), kBlockSizeMin, std::byte{0});
  EXPECT_TRUE(encode(nearly, kSmallBlocks).empty());
}

TEST(BlockCodec, RepeatsElementsOfEveryWidth) {
  for (const size_t period : {1, 2, 4, 8})
    for (const size_t size : {size_t{64}, size_t{65'543}, size_t{300'001}}) {
      Bytes raw(size);
      for (size_t i = 0; i < size; ++i) raw[i] = test::byte_at(6, i % period);
      EXPECT_LE(expect_comes_back(raw), 32 + 24 * (size / 65536 + 1));
    }
}

TEST(BlockCodec, TakesEveryLevel) {
  const Bytes raw = chunk_content(Content::kText, 300'000, 1);
  for (const int level : {1, 3, 9, 19}) EXPECT_LT(expect_comes_back(raw, {.level = level}), raw.size() / 2);
}

TEST(BlockCodec, DependsOnNothingBefore) {
  const Bytes raw = mixed_content(), first = encode(raw, kSmallBlocks);
  for (const Content content : test::kContents) {
    (void)encode(chunk_content(content, 100'000, 2), {.level = 5});
    EXPECT_EQ(encode(raw, kSmallBlocks), first);
  }
}

TEST(BlockCodec, IsBoundToAnotherPlace) {
  for (const size_t size : {size_t{70'000}, size_t{1} << 20}) {
    const Bytes raw = chunk_content(Content::kBf16, size, 0);
    Bytes stored = encode(raw, {.seed = 5});
    ASSERT_FALSE(stored.empty());
    const uint64_t checksum = rebind_blocks(stored, raw, 77);
    EXPECT_EQ(checksum, blocks_checksum(stored, 77));
    EXPECT_EQ(stored, encode(raw, {.seed = 77}));
    EXPECT_TRUE(decode(stored, size, 77).status.is_ok());
    EXPECT_FALSE(decode(stored, size, 5).status.is_ok());
  }
}

TEST(BlockCodec, DecodesAnyPart) {
  const Bytes raw = mixed_content(), stored = encode(raw, kSmallBlocks);
  ASSERT_FALSE(stored.empty());
  std::mt19937_64 random(8);
  for (int i = 0; i < 2000; ++i) {
    const size_t offset = random() % raw.size();
    const size_t length = 1 + random() % std::min<size_t>(raw.size() - offset, i % 2 == 0 ? 5000 : raw.size());
    Watched out(length);
    ASSERT_TRUE(decode_range(stored, raw.size(), offset, out.span(), kSmallBlocks.seed).is_ok());
    ASSERT_TRUE(std::equal(out.span().begin(), out.span().end(), raw.begin() + static_cast<ptrdiff_t>(offset)));
  }
  EXPECT_TRUE(decode_range(stored, raw.size(), raw.size(), {}, kSmallBlocks.seed).is_ok());
}

TEST(BlockCodec, NeedsOnlyTheBlocksThatAreAskedFor) {
  const Bytes raw = mixed_content(), stored = encode(raw, kSmallBlocks);
  const auto length = BlockIndex::length_of(std::span(stored).first(BlockIndex::kHeaderLength), raw.size());
  ASSERT_TRUE(length.is_ok());
  const Bytes head(stored.begin(), stored.begin() + static_cast<ptrdiff_t>(*length));
  const auto index = BlockIndex::parse(head, stored.size(), raw.size(), kSmallBlocks.seed);
  ASSERT_TRUE(index.is_ok());
  for (const size_t offset : {size_t{0}, size_t{20'000}, size_t{16'384 * 3}, raw.size() - 100}) {
    const BlockIndex::Range range = index->stored_range({offset, 100});
    const Bytes part(stored.begin() + static_cast<ptrdiff_t>(range.offset),
                     stored.begin() + static_cast<ptrdiff_t>(range.offset + range.length));
    EXPECT_LE(part.size(), kBlockSizeMin);
    Watched out(100);
    ASSERT_TRUE(index->decode(offset, part, out.span()).is_ok());
    EXPECT_TRUE(std::equal(out.span().begin(), out.span().end(), raw.begin() + static_cast<ptrdiff_t>(offset)));
  }
  const BlockIndex::Range all = index->stored_range({0, raw.size()});
  EXPECT_EQ(all.offset, *length);
  EXPECT_EQ(all.offset + all.length, stored.size());
}

void expect_refused(std::span<const std::byte> stored, size_t size, uint64_t seed = kSmallBlocks.seed) {
  const Status status = decode(stored, size, seed).status;
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_FALSE(status.message().empty());
}

TEST(BlockCodec, RefusesAnotherLengthOrPlace) {
  const Bytes raw = mixed_content(), stored = encode(raw, kSmallBlocks);
  for (const size_t size : {size_t{0}, size_t{1}, raw.size() - 1, raw.size() + 1, 2 * raw.size()})
    expect_refused(stored, size);
  expect_refused(stored, raw.size(), kSmallBlocks.seed + 1);
  Bytes longer = stored;
  longer.push_back(std::byte{0});
  expect_refused(longer, raw.size());
}

TEST(BlockCodec, RefusesEveryTruncation) {
  const Bytes raw = mixed_content(), stored = encode(raw, kSmallBlocks);
  for (size_t length = 0; length < stored.size(); length += length < 400 ? 1 : 29)
    expect_refused(std::span(stored).first(length), raw.size());
}

// As a hostile writer would: the checksums are still right.
void make_plausible(Bytes& stored) {
  const auto length = BlockIndex::length_of(stored, get_u32(&stored[4]));
  if (length.is_ok() && *length <= stored.size()) blocks::put_checksums(stored, *length, kSmallBlocks.seed);
}

TEST(BlockCodec, SurvivesAnyDamage) {
  const Bytes raw = mixed_content(), stored = encode(raw, kSmallBlocks);
  const size_t index = 32 + 16 * ((raw.size() + kBlockSizeMin - 1) / kBlockSizeMin);
  std::mt19937_64 random(10);
  for (int i = 0; i < 6000; ++i) {
    Bytes damaged = stored;
    const size_t places = 1 + random() % 3;
    for (size_t k = 0; k < places; ++k) {
      const size_t within = random() % 2 == 0 ? index : damaged.size();
      damaged[random() % within] ^= static_cast<std::byte>(1 << random() % 8);
    }
    if (i % 4 != 0) make_plausible(damaged);
    const Decoded decoded = decode(damaged, raw.size(), kSmallBlocks.seed);
    if (decoded.status.is_ok())
      ASSERT_EQ(decoded.bytes, raw) << i;  // a bit that means nothing
    else
      ASSERT_EQ(decoded.status.code(), StatusCode::kCorruption) << i;
  }
}

// A reader of single blocks verifies the index alone against what the chunk is said to have.
TEST(BlockCodec, OneChecksumVouchesForAllOfThem) {
  const Bytes raw = mixed_content(), stored = encode(raw, kSmallBlocks);
  const uint64_t checksum = blocks_checksum(stored, kSmallBlocks.seed);
  const auto index = BlockIndex::parse(stored, stored.size(), raw.size(), kSmallBlocks.seed);
  ASSERT_TRUE(index.is_ok());
  EXPECT_EQ(index->checksum(), checksum);
  EXPECT_NE(blocks_checksum(stored, kSmallBlocks.seed + 1), checksum);
  EXPECT_NE(blocks_checksum(std::span(stored).first(stored.size() - 1), kSmallBlocks.seed), checksum);
  EXPECT_NE(blocks_checksum({}, kSmallBlocks.seed), checksum);
  const size_t head = 32 + 16 * ((raw.size() + kBlockSizeMin - 1) / kBlockSizeMin);
  for (size_t at = 0; at < stored.size(); at += at < head ? 1 : 17)
    for (const int bit : {0, 3, 7}) {
      Bytes damaged = stored;
      damaged[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(blocks_checksum(damaged, kSmallBlocks.seed), checksum) << at;
    }
}

// One block of planes, of which header, entry and directory are changed a byte at a time.
TEST(BlockCodec, RefusesEveryInvalidField) {
  Bytes raw(4096);
  for (uint32_t i = 0; i < 1024; ++i) put_u32(&raw[4 * i], i);
  const Bytes stored = encode(raw, kSmallBlocks);
  ASSERT_EQ(stored[32 + 4], std::byte{4});
  const size_t fields[] = {0, 4, 8, 9, 15, 32, 33, 34, 35, 36, 37, 38, 39, 48, 50, 51, 55, 59, 63};
  for (const size_t field : fields)
    for (int value = 0; value < 256; ++value) {
      Bytes changed = stored;
      changed[field] = static_cast<std::byte>(value);
      if (changed == stored || (field == 8 && value >= 14 && value <= 20)) continue;  // it is one block in any case
      make_plausible(changed);
      expect_refused(changed, raw.size());
    }
}

// docs/format.md, "Blocks": the example.
TEST(BlockCodec, WritesTheDocumentedExample) {
  const uint8_t head[] = {0x46, 0x42, 0x4c, 0x4b, 0x00, 0x04, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00,
                          0x00, 0x00, 0x00, 0x56, 0x94, 0xb8, 0x74, 0xc1, 0x10, 0x39, 0x3a, 0xa8, 0xfa,
                          0x36, 0x1e, 0x4e, 0xa2, 0xc7, 0x77, 0x13, 0x01, 0x00, 0x00, 0x04, 0x04, 0x00,
                          0x00, 0xed, 0xc7, 0x64, 0x39, 0xba, 0xa3, 0x2b, 0xd1, 0x00, 0x01, 0x00, 0x01,
                          0x01, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00, 0x02};
  Bytes stored;
  for (const uint8_t byte : head) stored.push_back(static_cast<std::byte>(byte));
  for (size_t i = 0; i < 256; ++i) stored.push_back(static_cast<std::byte>(i));
  stored.resize(stored.size() + 3);
  Bytes raw(1024);
  for (uint32_t i = 0; i < 256; ++i) put_u32(&raw[4 * i], i);
  EXPECT_EQ(encode(raw), stored);
  const Decoded decoded = decode(stored, raw.size());
  EXPECT_TRUE(decoded.status.is_ok()) << decoded.status.message();
  EXPECT_EQ(decoded.bytes, raw);
}

}  // namespace
}  // namespace fpfs
