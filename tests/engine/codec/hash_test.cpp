#include "engine/codec/hash.h"

#include <array>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

// The reference: the same algorithm, compiled here without any vector unit.
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

namespace fpfs {
namespace {

std::vector<std::byte> pattern(size_t length) {
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 131 + (i >> 8) * 29 + 7);
  return bytes;
}

TEST(HashTest, MatchesPublishedValues) {
  // From xxHash's own list of test vectors: the empty input.
  EXPECT_EQ(hash_bytes({}), 0x2d06800538d394c2u);
}

TEST(HashTest, MatchesTheScalarAlgorithmAtEveryLengthClass) {
  const std::vector<std::byte> bytes = pattern(100'000);
  const size_t lengths[] = {0,   1,   3,   4,   8,    9,    16,   17,   64,     128,
                            129, 240, 241, 512, 1023, 1024, 1025, 4096, 65'536, 99'999};
  for (const size_t length : lengths) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{0x9e3779b97f4a7c15}, UINT64_MAX}) {
      for (const size_t start : {0, 1, 33}) {
        if (start + length > bytes.size()) continue;
        ASSERT_EQ(hash_bytes(std::span(bytes).subspan(start, length), seed),
                  XXH3_64bits_withSeed(bytes.data() + start, length, seed))
            << "length " << length << " seed " << seed << " start " << start;
      }
    }
  }
}

TEST(HashTest, EverySingleBitCounts) {
  std::vector<std::byte> bytes = pattern(4096);
  const uint64_t whole = hash_bytes(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(hash_bytes(bytes), whole) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(HashTest, BackendIsWhatThisCpuHas) {
  const std::string backend = hash_backend();
#if defined(__x86_64__)
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line) && line.rfind("flags", 0) != 0) {
  }
  line += ' ';
  const bool avx512 = line.find(" avx512f ") != std::string::npos;
  const bool avx2 = line.find(" avx2 ") != std::string::npos;
  EXPECT_EQ(backend, avx512 ? "avx512" : avx2 ? "avx2" : "sse2");
#else
  EXPECT_TRUE((std::set<std::string>{"scalar", "neon", "vector"}).contains(backend)) << backend;
#endif
}

class ChunkSeedTest : public testing::Test {
 protected:
  ChunkSeedTest() {
    for (size_t i = 0; i < array_.size(); ++i) array_[i] = static_cast<std::byte>(0xa0 + i);
  }
  std::array<std::byte, 16> array_;
};

TEST_F(ChunkSeedTest, IsTheHashThatTheFormatNames) {
  std::array<uint8_t, 36> place{};
  for (size_t i = 0; i < 16; ++i) place[i] = static_cast<uint8_t>(0xa0 + i);
  const uint64_t file = 0x1122334455667788, chunk = 0x99;
  for (size_t i = 0; i < 8; ++i) place[16 + i] = static_cast<uint8_t>(file >> (8 * i));
  for (size_t i = 0; i < 8; ++i) place[24 + i] = static_cast<uint8_t>(chunk >> (8 * i));
  place[32] = 3;
  EXPECT_EQ(chunk_seed(array_.data(), FileId(file), Generation(3), ChunkIndex(chunk)),
            XXH3_64bits(place.data(), place.size()));
  // For ever: a changed value is a changed format.
  EXPECT_EQ(chunk_seed(array_.data(), FileId(file), Generation(3), ChunkIndex(chunk)), 0xecc96cf049815f10u);
}

TEST_F(ChunkSeedTest, EveryPlaceHasItsOwn) {
  std::set<uint64_t> seeds;
  size_t places = 0;
  std::array<std::byte, 16> other = array_;
  other[15] ^= std::byte{1};
  for (const auto* array : {&array_, &other})
    for (const FileId file : {FileId(1), FileId(2), FileId(uint64_t{1} << 63)})
      for (const uint32_t generation : {0u, 1u, 2u, UINT32_MAX})
        for (uint64_t chunk = 0; chunk < 100; ++chunk, ++places)
          seeds.insert(chunk_seed(array->data(), file, Generation(generation), ChunkIndex(chunk)));
  EXPECT_EQ(seeds.size(), places);
}

TEST_F(ChunkSeedTest, AChunkFoundElsewhereFailsItsChecksum) {
  const std::vector<std::byte> bytes = pattern(65'536);
  EXPECT_NE(hash_bytes(bytes, chunk_seed(array_.data(), FileId(7), Generation(0), ChunkIndex(3))),
            hash_bytes(bytes, chunk_seed(array_.data(), FileId(7), Generation(0), ChunkIndex(4))));
}

}  // namespace
}  // namespace fpfs
