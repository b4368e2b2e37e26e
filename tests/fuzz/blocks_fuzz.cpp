// Any bytes as the blocks of a chunk, blocks as an input describes them, and blocks that the encoder makes of any
// content, whole or damaged in a few places. The checksums of the header are always right: what lies behind them is the
// target. They are refused, or all of the chunk is there: what was encoded when nothing was damaged, and any part of it
// the same.
#include <vector>

#include "engine/base/bytes.h"
#include "engine/codec/block_codec.h"
#include "engine/codec/block_format.h"
#include "tests/fuzz/fuzz.h"

namespace {

using fpfs::BlockIndex;
using fpfs::fuzz::Input;
using fpfs::fuzz::require;
using Bytes = std::vector<std::byte>;

constexpr size_t kChunkSize = 64 * 1024;
constexpr uint64_t kSeed = 3;

// Elements that count, that are noise, that repeat or are all one, behind each other, as an input says.
Bytes build_content(Input& input) {
  Bytes content;
  uint64_t state = 1;
  while (!input.empty() && content.size() < kChunkSize) {
    const size_t count = 1 + input.number(2) % 8192, width = size_t{1} << (input.byte() % 4), how = input.byte() % 4;
    const uint64_t start = input.size_like(), mask = input.size_like();
    for (size_t i = 0; i < count && content.size() < kChunkSize; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      uint64_t element = start;
      if (how == 1) element += i;
      if (how == 2) element += (state >> 20) & mask;
      if (how == 3) element = (state >> 20) % 16 == 0 ? start : mask;
      for (size_t k = 0; k < width; ++k) content.push_back(static_cast<std::byte>(element >> (8 * k)));
    }
    for (size_t i = input.byte() % 4; i > 0; --i) content.push_back(static_cast<std::byte>(input.byte()));
  }
  content.resize(std::clamp<size_t>(content.size(), 1, kChunkSize));
  return content;
}

void make_plausible(Bytes& stored) {
  if (stored.size() < BlockIndex::kHeaderLength) return;
  const auto length = BlockIndex::length_of(stored, fpfs::get_u32(&stored[4]));
  if (length.is_ok() && *length <= stored.size()) fpfs::blocks::put_checksums(stored, *length, kSeed);
}

// In memory of exactly its size, so that ASan sees a byte too many.
bool decode(const Bytes& stored, size_t raw_length, size_t offset, Bytes& out) {
  const fpfs::Status status = fpfs::decode_range(stored, raw_length, offset, out, kSeed);
  require(status.is_ok() || (status.code() == fpfs::StatusCode::kCorruption && !status.message().empty()),
          "a refusal says why");
  return status.is_ok();
}

void check(const Bytes& stored, size_t raw_length) {
  Bytes all(raw_length), part(raw_length / 3 + 1);
  const size_t offset = std::min(raw_length / 2, raw_length - part.size());
  const bool whole = decode(stored, raw_length, 0, all), partly = decode(stored, raw_length, offset, part);
  if (whole) {
    const auto index = BlockIndex::parse(stored, stored.size(), raw_length, kSeed);
    require(index.is_ok() && index->checksum() == fpfs::blocks_checksum(stored, kSeed), "the index vouches for all");
  }
  require(!whole || partly, "what decodes does so in part");
  require(!whole || std::equal(part.begin(), part.end(), all.begin() + static_cast<ptrdiff_t>(offset)),
          "a part is that of the whole");
  Bytes longer(raw_length + 1);
  require(!decode(stored, raw_length + 1, 0, longer), "it has no other length");
}

// Header and entries from the input, in the order of the fields, then the blocks.
void check_described(Input& input) {
  const size_t raw_length = 1 + input.number(3) % (2 * kChunkSize);
  Bytes stored(fpfs::blocks::index_length(raw_length, fpfs::kBlockSizeMin));
  for (size_t at = fpfs::blocks::kHeaderLength; at < stored.size(); at += fpfs::blocks::kEntryLength) {
    fpfs::blocks::Entry entry;
    entry.stored_length = static_cast<uint32_t>(input.number(2));
    entry.method = static_cast<fpfs::blocks::Method>(input.byte() % 6);
    if (entry.method == fpfs::blocks::Method::kPlanes) {
      entry.width = static_cast<uint8_t>(1 << input.byte() % 4);
      entry.phase = static_cast<uint8_t>(input.byte() % 8);
      entry.rotation = static_cast<uint8_t>(input.byte() % 65);
    }
    fpfs::blocks::put_entry(&stored[at], entry);
  }
  fpfs::blocks::put_header(stored, raw_length, fpfs::kBlockSizeMin);
  // The last block has all that is left.
  const std::span<const std::byte> rest = input.rest();
  size_t others = 0;
  const size_t last = stored.size() - fpfs::blocks::kEntryLength;
  for (size_t at = fpfs::blocks::kHeaderLength; at < last; at += fpfs::blocks::kEntryLength)
    others += fpfs::get_u32(&stored[at]);
  if (others <= rest.size()) fpfs::put_u32(&stored[last], static_cast<uint32_t>(rest.size() - others));
  stored.insert(stored.end(), rest.begin(), rest.end());
  make_plausible(stored);
  check(stored, raw_length);
}

void check_encoded(Input& input) {
  const int level = 1 + input.byte() % 4;
  const fpfs::fuzz::Damage damage(input);
  const Bytes content = build_content(input);
  Bytes stored(content.size()), decoded(content.size());
  const fpfs::BlockOptions options{.level = level, .block_size = fpfs::kBlockSizeMin, .seed = kSeed};
  stored.resize(fpfs::encode_blocks(content, stored, options));
  if (stored.empty()) return;
  require(decode(stored, content.size(), 0, decoded) && decoded == content, "what was encoded comes back");
  damage.apply(stored);
  make_plausible(stored);
  check(stored, content.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  switch (input.byte() % 3) {
    case 0: {
      const size_t raw_length = 1 + input.number(3) % (2 * kChunkSize);
      const std::span<const std::byte> rest = input.rest();
      Bytes stored(rest.begin(), rest.end());
      make_plausible(stored);
      check(stored, raw_length);
      break;
    }
    case 1:
      check_described(input);
      break;
    default:
      check_encoded(input);
  }
  return 0;
}
