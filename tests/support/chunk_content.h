// What chunks of checkpoints hold, made from a seed.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/base/bytes.h"

namespace fpfs::test {

enum class Content {
  kBf16,
  kFp16,
  kFp32,
  kFp64,
  kSquares,
  kTokens32,
  kTokens64,
  kEven32,
  kEven64,
  kBytes,
  kText,
  kZeros,
  kNoise
};
inline constexpr Content kContents[] = {Content::kBf16,    Content::kFp16,     Content::kFp32,     Content::kFp64,
                                        Content::kSquares, Content::kTokens32, Content::kTokens64, Content::kEven32,
                                        Content::kEven64,  Content::kBytes,    Content::kText,     Content::kZeros,
                                        Content::kNoise};

inline size_t width_of(Content content) {
  switch (content) {
    case Content::kBf16:
    case Content::kFp16:
      return 2;
    case Content::kFp32:
    case Content::kSquares:
    case Content::kTokens32:
    case Content::kEven32:
      return 4;
    case Content::kFp64:
    case Content::kTokens64:
    case Content::kEven64:
      return 8;
    default:
      return 1;
  }
}

// One element, in its low bytes.
template <typename Random>
uint64_t element_of(Content content, Random& random) {
  std::normal_distribution<double> normal(0, 0.02);
  const double weight = normal(random);
  switch (content) {
    case Content::kBf16:
      return std::bit_cast<uint32_t>(static_cast<float>(weight)) >> 16;
    case Content::kFp16: {  // normal numbers only, towards zero
      const double size = std::max(std::abs(weight), 0x1p-14);
      const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(size)) - (112u << 23);
      return (weight < 0 ? 0x8000u : 0u) | bits >> 13;
    }
    case Content::kFp32:
      return std::bit_cast<uint32_t>(static_cast<float>(weight));
    case Content::kSquares:
      return std::bit_cast<uint32_t>(static_cast<float>(weight * weight * 1e-3));
    case Content::kFp64:
      return std::bit_cast<uint64_t>(weight);
    case Content::kTokens32:
    case Content::kTokens64:
      return static_cast<uint64_t>(std::exp(10.8 * std::generate_canonical<double, 53>(random)));
    case Content::kEven32:  // tokens, each as often as any other
    case Content::kEven64:
      return random() % 50'257;
    case Content::kBytes:
      return static_cast<uint64_t>(std::lround(weight * 1000));
    default:
      return random();
  }
}

// Behind `phase` bytes of something else.
inline std::vector<std::byte> chunk_content(Content content, size_t size, uint64_t seed, size_t phase = 0) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  if (content == Content::kZeros) return bytes;
  if (content == Content::kText) {
    const char* const words[] = {"layers.", "weight ", "bias ", "attention.", "mlp.", "torch", "\n", "{\"shape\": ["};
    for (size_t at = 0; at < size;) {
      const std::string word = words[random() % 8] + std::to_string(random() % 100);
      for (size_t i = 0; i < word.size() && at < size; ++i) bytes[at++] = static_cast<std::byte>(word[i]);
    }
    return bytes;
  }
  const size_t width = width_of(content);
  for (size_t at = 0; at < std::min(phase, size); ++at) bytes[at] = static_cast<std::byte>(random());
  for (size_t at = phase; at < size; at += width) {
    std::byte element[8];
    put_u64(element, element_of(content, random));
    for (size_t k = 0; k < width && at + k < size; ++k) bytes[at + k] = element[k];
  }
  return bytes;
}

}  // namespace fpfs::test
