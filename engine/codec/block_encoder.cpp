#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>

#include "engine/base/check.h"
#include "engine/codec/block_choice.h"
#include "engine/codec/block_codec.h"
#include "engine/codec/block_format.h"
#include "engine/codec/number_planes.h"
#include "engine/codec/zstd_encoder.h"

namespace fpfs {
namespace {

using blocks::Entry;
using blocks::Method;
using blocks::PlaneMethod;

constexpr size_t kBlocksMax = kBlockCodecRawMax / kBlockSizeMin;

// Every byte equals the byte `period` before it.
bool repeats(std::span<const std::byte> bytes, size_t period) {
  return bytes.size() >= period && std::memcmp(bytes.data(), bytes.data() + period, bytes.size() - period) == 0;
}

class Encoder {
 public:
  size_t encode(std::span<const std::byte> raw, std::span<std::byte> out, const BlockOptions& options);

 private:
  struct Plan {
    bool constant = false;
    BlockChoice choice;  // where it is not constant
  };

  bool plan(std::span<const std::byte> raw, size_t block_size);
  // Each returns the stored length, or 0 where `room` is too small or nothing is gained.
  size_t encode_planes(std::span<const std::byte> block, const BlockChoice& choice, std::span<std::byte> room,
                       int level);
  size_t encode_plane(std::span<const std::byte> plane, PlaneCoding coding, std::span<std::byte> room, int level,
                      PlaneMethod* method);
  Entry encode_block(std::span<const std::byte> block, const Plan& plan, std::span<std::byte> room, int level);

  ZstdEncoder zstd_;
  BlockChooser chooser_{&zstd_};
  std::array<Plan, kBlocksMax> plans_;
  std::array<std::byte, kBlockSizeMax> planes_;
};

// Samples alone; false: all blocks are raw. Noise is found out at the speed of that, before anything is copied.
bool Encoder::plan(std::span<const std::byte> raw, size_t block_size) {
  bool gains = false;
  chooser_.begin_chunk();
  for (size_t i = 0; i * block_size < raw.size(); ++i) {
    const auto block = raw.subspan(i * block_size, std::min(block_size, raw.size() - i * block_size));
    Plan& plan = plans_[i];
    plan.constant = repeats(block, blocks::kElementLength);
    plan.choice = plan.constant ? BlockChoice{} : chooser_.choose(block);
    gains = gains || plan.constant || plan.choice.method != Method::kRaw;
  }
  return gains;
}

size_t Encoder::encode_plane(std::span<const std::byte> plane, PlaneCoding coding, std::span<std::byte> room, int level,
                             PlaneMethod* method) {
  *method = PlaneMethod::kRaw;
  if (coding != PlaneCoding::kRaw && !room.empty() && repeats(plane, 1)) {
    *method = PlaneMethod::kConstant;
    room[0] = plane[0];
    return 1;
  }
  size_t length = 0;
  if (coding == PlaneCoding::kEntropy) length = zstd_.encode_entropy(plane, room);
  if (coding == PlaneCoding::kMatches) length = zstd_.encode(plane, room, level);
  if (length != 0 && length < plane.size()) {
    *method = PlaneMethod::kZstd;
    return length;
  }
  if (room.size() < plane.size()) return 0;
  if (plane.data() != room.data()) std::memcpy(room.data(), plane.data(), plane.size());
  return plane.size();
}

size_t Encoder::encode_planes(std::span<const std::byte> block, const BlockChoice& choice, std::span<std::byte> room,
                              int level) {
  const size_t width = choice.format.width, phase = choice.phase;
  const size_t count = (block.size() - phase) / width, numbers = count * width;
  const size_t directory = width * blocks::kPlaneEntryLength;
  size_t at = directory + block.size() - numbers;
  if (room.size() < at) return 0;
  std::memcpy(room.data() + directory, block.data(), phase);
  std::memcpy(room.data() + directory + phase, block.data() + phase + numbers, block.size() - phase - numbers);

  // The low planes of floats are raw, and where they go is known: they are split right to their place.
  Planes planes{};
  bool in_place = true;
  for (size_t k = 0; k < width; ++k) {
    in_place = in_place && choice.planes[k] == PlaneCoding::kRaw && room.size() - at >= (k + 1) * count;
    planes[k] = in_place ? room.data() + at + k * count : planes_.data() + k * count;
  }
  split_planes(block.subspan(phase, numbers), choice.format, planes);
  for (size_t k = 0; k < width; ++k) {
    PlaneMethod method{};
    const size_t length = encode_plane({planes[k], count}, choice.planes[k], room.subspan(at), level, &method);
    if (length == 0) return 0;
    blocks::put_plane_entry(&room[k * blocks::kPlaneEntryLength], {static_cast<uint32_t>(length), method});
    at += length;
  }
  return at < block.size() ? at : 0;
}

// A stored length of 0: no room.
Entry Encoder::encode_block(std::span<const std::byte> block, const Plan& plan, std::span<std::byte> room, int level) {
  Entry entry;
  size_t length = 0;
  if (plan.constant && room.size() >= blocks::kElementLength) {
    entry.method = Method::kConstant;
    length = blocks::kElementLength;
    std::memcpy(room.data(), block.data(), length);
  } else if (plan.choice.method == Method::kZstd) {
    entry.method = Method::kZstd;
    length = zstd_.encode(block, room, level);
  } else if (plan.choice.method == Method::kPlanes) {
    const NumberFormat format = plan.choice.format;
    entry.method = Method::kPlanes;
    entry.width = static_cast<uint8_t>(format.width);
    entry.phase = static_cast<uint8_t>(plan.choice.phase);
    entry.rotation = static_cast<uint8_t>(format.rotation);
    length = encode_planes(block, plan.choice, room, level);
  }
  if (length == 0 || length >= block.size()) {
    entry = Entry{};
    length = room.size() < block.size() ? 0 : block.size();
    std::memcpy(room.data(), block.data(), length);
  }
  entry.stored_length = static_cast<uint32_t>(length);
  return entry;
}

size_t Encoder::encode(std::span<const std::byte> raw, std::span<std::byte> out, const BlockOptions& options) {
  const size_t block_size = options.block_size, length_max = raw.size() - (raw.size() + 31) / 32;
  const size_t index_length = blocks::index_length(raw.size(), block_size);
  if (length_max <= index_length || !plan(raw, block_size)) return 0;
  out = out.first(length_max);
  size_t at = index_length;
  for (size_t i = 0; i * block_size < raw.size(); ++i) {
    const auto block = raw.subspan(i * block_size, std::min(block_size, raw.size() - i * block_size));
    Entry entry = encode_block(block, plans_[i], out.subspan(at), options.level);
    if (entry.stored_length == 0) return 0;
    entry.checksum = hash_bytes(block, options.seed);
    blocks::put_entry(&out[blocks::kHeaderLength + i * blocks::kEntryLength], entry);
    at += entry.stored_length;
  }
  blocks::put_header(out, raw.size(), block_size);
  blocks::put_checksums(out.first(at), index_length, options.seed);
  return at;
}

}  // namespace

size_t encode_blocks(std::span<const std::byte> raw, std::span<std::byte> out, const BlockOptions& options) {
  FPFS_CHECK(!raw.empty() && raw.size() <= kBlockCodecRawMax && out.size() >= raw.size(), "a chunk and room for it");
  FPFS_CHECK(std::has_single_bit(options.block_size) && options.block_size >= kBlockSizeMin &&
                 options.block_size <= kBlockSizeMax,
             "a block size of the format");
  thread_local const auto encoder = std::make_unique_for_overwrite<Encoder>();
  return encoder->encode(raw, out, options);
}

}  // namespace fpfs
