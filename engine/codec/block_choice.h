// How one block is stored best, judged by samples of it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "engine/codec/block_format.h"
#include "engine/codec/number_planes.h"
#include "engine/codec/zstd_encoder.h"

namespace fpfs {

enum class PlaneCoding : uint8_t {
  kRaw,      // what it could shrink is not worth the time
  kEntropy,  // ZstdEncoder::encode_entropy
  kMatches,  // ZstdEncoder::encode: it repeats itself
};

// Never kConstant: that is no matter of samples.
struct BlockChoice {
  blocks::Method method = blocks::Method::kRaw;
  // For kPlanes:
  NumberFormat format;
  size_t phase = 0;  // bytes before the first element
  std::array<PlaneCoding, kPlanesMax> planes{};
};

// Judges the blocks of a chunk in their order. A block whose sample looks like that of the block before it is stored
// like it; any other is tried with every element width, phase and filter. Not thread-safe.
class BlockChooser {
 public:
  explicit BlockChooser(ZstdEncoder* zstd) : zstd_(*zstd) {}

  // Forgets the block before: what is chosen for a chunk depends on nothing else.
  void begin_chunk() { has_last_ = false; }
  BlockChoice choose(std::span<const std::byte> block);

 private:
  static constexpr size_t kSampleMax = 8 * 1024;
  // For each of eight positions, the probability that two bytes of the sample at it are equal: 1/256 for noise.
  using Fingerprint = std::array<float, 8>;
  struct Cost {
    double bits = 8;          // per byte, with what the time to code them is worth
    double stored_bits = 8;   // without that
    size_t lowest_plane = 0;  // the one with the least entropy
    bool has_flat = false;    // a plane is stored raw although it has less entropy
    BlockChoice choice;
  };

  void take_sample(std::span<const std::byte> block, size_t length);
  Fingerprint fingerprint() const;
  bool suits_as_well();
  Cost search();
  Cost best_numbers();
  Cost cost_of(NumberFormat format, size_t phase);
  double plain_bits();

  ZstdEncoder& zstd_;
  bool has_last_ = false;
  Cost last_;
  Fingerprint last_fingerprint_{};
  std::span<const std::byte> sample_;  // of memory_, or the block itself
  std::array<std::byte, kSampleMax> memory_;
  std::array<std::byte, 2 * kSampleMax> scratch_;
};

}  // namespace fpfs
