#include "engine/codec/block_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace fpfs {
namespace {

constexpr size_t kRuns = 4;  // of a sample, evenly spread
constexpr size_t kSampleMin = 4 * 1024;
constexpr size_t kSampledShare = 16;      // of a block
constexpr size_t kTooShort = 256;         // a block that tables and frames do not pay for
constexpr size_t kElementsMin = 256;      // in a sample, for its entropy to say something
constexpr double kRawBits = 7.7;          // a plane with more entropy than this is stored raw: it would save 4 %
constexpr double kCodingBits = 0.3;       // what a plane's coding must save to be worth its time: it halves the speed
constexpr double kNumbersBitsMax = 7.75;  // what a block must come to, per byte: 1/32 less
constexpr double kPlainBitsMax = 7.2;     // zstd on plain bytes is slow: 10 % less
constexpr double kMargin = 0.985;         // more planes must save this much over fewer,
constexpr double kSmallMargin = 0.997;    // and a rotation over none
constexpr double kPlainMargin = 1.05;     // planes are several times as fast as zstd on plain bytes
constexpr double kRepeats = 0.15;         // so many more equal neighbours than chance explains
constexpr float kAlike = 0.25F;           // fingerprints of noise differ by a twentieth by chance
constexpr float kNoisePairs = 0.006F;     // 1/256 and some more
constexpr double kSameCost = 0.1;         // the numbers of another kind cost more or less than that
constexpr double kFewBits = 0.5;          // a Huffman code has one bit at least
constexpr double kFlat = 1.05;            // times as many equal pairs as the entropy alone explains
constexpr double kFlatBits = 7.4;         // of 170 values no one has a share of 1/128, which zstd asks for
constexpr size_t kNibble = 4;             // bits

// n * G(n) of Grassberger's estimator of entropy ("Entropy Estimates from Insufficient Samplings", 2003). The plain
// estimate is far too low for 256 symbols and a thousand samples, and the more so the more planes share the samples.
class CountTerms {
 public:
  static constexpr size_t kCountMax = 8 * 1024;
  CountTerms() {
    constexpr double kEulerGamma = 0.57721566490153286;
    double g = -kEulerGamma - std::log(2.0);  // G(1)
    for (size_t n = 1; n <= kCountMax; ++n) {
      if (n % 2 == 0) g += 2.0 / static_cast<double>(n - 1);
      terms_[n] = static_cast<float>(static_cast<double>(n) * g);
    }
  }
  float operator[](size_t count) const { return terms_[count]; }

 private:
  std::array<float, kCountMax + 1> terms_{};
};

struct PlaneStatistics {
  double bits = 8;     // entropy of a byte
  double repeats = 0;  // the share of bytes that equal the byte before, over what chance explains
  // All values that occur do so equally often. zstd stores many such values as they are, whatever they could save
  // (HUF_compress: "probably not compressible enough").
  bool is_flat = false;
};

PlaneStatistics statistics_of(std::span<const std::byte> plane) {
  static const CountTerms terms;
  if (plane.size() < 2) return {};
  std::array<uint16_t, 256> even{}, odd{};  // two, as a count that was just written is slow to read
  size_t repeats = 0;
  for (size_t i = 0; i + 1 < plane.size(); i += 2) {
    ++even[static_cast<size_t>(plane[i])];
    ++odd[static_cast<size_t>(plane[i + 1])];
    repeats += plane[i] == plane[i + 1] ? 1 : 0;
  }
  double sum = 0, pairs = 0;
  for (size_t i = 0; i < even.size(); ++i) {
    const size_t count = size_t{even[i]} + odd[i];
    sum += static_cast<double>(terms[count]);
    pairs += static_cast<double>(count) * static_cast<double>(count);
  }
  const size_t counted = plane.size() / 2 * 2;
  const auto n = static_cast<double>(counted);
  const double bits = (std::log(n) - sum / n) / std::log(2.0);
  const bool is_flat = bits > kFlatBits && (pairs - n) / (n * (n - 1)) < kFlat * std::exp2(-bits);
  return {std::clamp(bits, 0.0, 8.0), static_cast<double>(repeats) / (n / 2) - pairs / (n * n), is_flat};
}

bool alike(float a, float b) {
  return std::abs(a - b) <= kAlike * std::max(a, b);
}

// Where the noise of mantissas is, and where exponents are, says the width and the phase.
bool same_places(float a, float b) {
  return (a < kNoisePairs) == (b < kNoisePairs);
}

}  // namespace

// Starts at multiples of 8, so that the phase of an element in the sample is its phase in the block.
void BlockChooser::take_sample(std::span<const std::byte> block, size_t length) {
  if (block.size() <= length) {
    sample_ = block;
    return;
  }
  const size_t run = length / kRuns;
  for (size_t i = 0; i < kRuns; ++i) {
    const size_t from = (block.size() - run) * i / (kRuns - 1) / 8 * 8;
    std::memcpy(&memory_[i * run], &block[from], run);
  }
  sample_ = std::span(memory_).first(length);
}

BlockChooser::Fingerprint BlockChooser::fingerprint() const {
  std::array<std::array<uint16_t, 256>, 8> counts{};
  std::array<uint32_t, 8> pairs{};
  const size_t rows = sample_.size() / 8;
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < 8; ++k) pairs[k] += counts[k][static_cast<size_t>(sample_[8 * i + k])]++;
  Fingerprint result;
  for (size_t k = 0; k < 8; ++k)
    result[k] = static_cast<float>(pairs[k]) / (static_cast<float>(rows) * static_cast<float>(rows - 1) / 2);
  return result;
}

BlockChoice BlockChooser::choose(std::span<const std::byte> block) {
  if (block.size() < kTooShort) return {};
  take_sample(block, kSampleMin);
  const Fingerprint now = fingerprint();
  if (has_last_ && std::equal(now.begin(), now.end(), last_fingerprint_.begin(), alike)) return last_.choice;
  take_sample(block, std::clamp(block.size() / kSampledShare, kSampleMin, kSampleMax));
  const bool may_suit = has_last_ && std::equal(now.begin(), now.end(), last_fingerprint_.begin(), same_places);
  if (!may_suit || !suits_as_well()) last_ = search();
  last_fingerprint_ = now;
  has_last_ = true;
  return last_.choice;
}

// Rows of one tensor differ in size, and fingerprints of tokens, which have few frequent values, by chance. The form
// stays the same then; which planes are worth coding may not. A fifth of the time of a search.
bool BlockChooser::suits_as_well() {
  if (last_.choice.method != blocks::Method::kPlanes) return false;
  const Cost now = cost_of(last_.choice.format, last_.choice.phase);
  if (std::abs(now.bits - last_.bits) > kSameCost * last_.bits) return false;
  last_.choice = now.choice;
  return true;
}

BlockChooser::Cost BlockChooser::search() {
  const Cost numbers = best_numbers();
  const auto first = numbers.choice.planes.begin(), end = first + static_cast<ptrdiff_t>(numbers.choice.format.width);
  const bool has_noise = std::find(first, end, PlaneCoding::kRaw) != end;
  if (has_noise && numbers.bits < kNumbersBitsMax) return numbers;  // zstd finds no matches across it
  const double plain = plain_bits();
  if (numbers.bits < kNumbersBitsMax && numbers.bits < plain * kPlainMargin) return numbers;
  Cost cost;
  if (plain < kPlainBitsMax) cost.choice.method = blocks::Method::kZstd;
  return cost;
}

// Without a rotation, planes of another phase hold the same bytes, and show which of them has the exponents. Tokens of a
// vocabulary below 65,536 may have two flat planes, of which the upper could save a little. By a rotation of 4 their
// upper and lower four bits are planes of few values, and the eight bits in between stay.
BlockChooser::Cost BlockChooser::best_numbers() {
  Cost best = cost_of({1, 0}, 0);
  for (size_t width = 2; width <= kPlanesMax && width * kElementsMin <= sample_.size(); width *= 2) {
    Cost of_width = cost_of({width, 0}, 0);
    if (of_width.bits < kNumbersBitsMax) {
      const Cost rotated = cost_of({width, 1}, (of_width.lowest_plane + 1) % width);
      if (rotated.bits < of_width.bits * kSmallMargin) of_width = rotated;
    }
    if (of_width.has_flat) {
      const Cost nibbles = cost_of({width, kNibble}, 0);
      if (nibbles.stored_bits < of_width.stored_bits * kSmallMargin) of_width = nibbles;
    }
    if (of_width.bits < best.bits * kMargin) best = of_width;
  }
  return best;
}

BlockChooser::Cost BlockChooser::cost_of(NumberFormat format, size_t phase) {
  Cost cost;
  const size_t count = (sample_.size() - phase) / format.width;
  Planes planes{};
  for (size_t k = 0; k < format.width; ++k) planes[k] = scratch_.data() + k * count;
  split_planes(sample_.subspan(phase, count * format.width), format, planes);
  cost.choice = {.method = blocks::Method::kPlanes, .format = format, .phase = phase, .planes = {}};
  double bits = 0, stored_bits = 0, lowest = 9;
  for (size_t k = 0; k < format.width; ++k) {
    const PlaneStatistics plane = statistics_of({planes[k], count});
    if (plane.bits < lowest) cost.lowest_plane = k;
    lowest = std::min(lowest, plane.bits);
    PlaneCoding& coding = cost.choice.planes[k];
    if (plane.bits < kRawBits && !plane.is_flat) coding = PlaneCoding::kEntropy;
    if (plane.bits < kFewBits || plane.repeats > kRepeats) coding = PlaneCoding::kMatches;
    if (coding == PlaneCoding::kRaw && plane.bits < kRawBits) cost.has_flat = true;
    bits += coding == PlaneCoding::kRaw ? 8 : std::min(8.0, plane.bits + std::min(plane.bits, kCodingBits));
    stored_bits += coding == PlaneCoding::kRaw ? 8 : plane.bits;
  }
  cost.bits = bits / static_cast<double>(format.width);
  cost.stored_bits = stored_bits / static_cast<double>(format.width);
  return cost;
}

double BlockChooser::plain_bits() {
  const size_t length = zstd_.encode(sample_, scratch_, 1);
  return length == 0 ? 8 : 8 * static_cast<double>(length) / static_cast<double>(sample_.size());
}

}  // namespace fpfs
