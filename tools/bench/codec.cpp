// What the codec of compress=zstd makes of files, and how fast, on one core: chunk by chunk, as the daemon's workers do.
//
//   fpfs-bench-codec ROUNDS FILE...      a JSON object per file, each in a line
//
// `stored`: the share of the file that is left, in whole blocks of the drive. `encoding`, `decoding`: bytes of the file per
// second, one figure per round; chunks that are stored as they are take no time to decode, and none is counted for them.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/codec/chunk_codec.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr size_t kChunk = 1 << 20;

struct Stored {
  std::span<const std::byte> raw;
  std::optional<EncodedChunk> encoded;  // none: as it is
  size_t at = 0;                        // where its space begins
};

std::optional<Bytes> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  Bytes bytes(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) return {};
  return bytes;
}

size_t in_blocks(size_t length) {
  return (length + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
}

template <typename Work>
double rate(size_t bytes, Work work) {
  const auto began = Clock::now();
  work();
  return static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - began).count();
}

// Nullopt: something did not come back as it was.
std::optional<nlohmann::json> measure(const Bytes& file, int rounds) {
  const Compression compression{.mode = Compression::Mode::kZstd};
  std::vector<Stored> chunks;
  for (size_t at = 0; at < file.size(); at += kChunk)
    chunks.push_back({.raw = std::span(file).subspan(at, std::min(kChunk, file.size() - at)), .encoded = {}, .at = at});
  Bytes space(file.size()), back(file.size());
  const auto encode = [&] {
    for (Stored& chunk : chunks)
      chunk.encoded =
          encode_chunk(compression, chunk.raw, std::span(space).subspan(chunk.at, chunk.raw.size()), chunk.at);
  };
  bool right = true;
  const auto decode = [&] {
    for (const Stored& chunk : chunks) {
      if (!chunk.encoded) continue;
      const std::span stored = std::span(space).subspan(chunk.at, chunk.encoded->length);
      right &= decode_chunk(chunk.encoded->codec, stored, std::span(back).subspan(chunk.at, chunk.raw.size()), chunk.at)
                   .is_ok();
    }
  };
  std::vector<double> encoding, decoding;
  for (int round = 0; round <= rounds; ++round) {  // the first for the caches
    const double encoded = rate(file.size(), encode);
    size_t decoded = 0;
    for (const Stored& chunk : chunks) decoded += chunk.encoded ? chunk.raw.size() : 0;
    const double decoded_rate = rate(decoded, decode);
    if (round == 0) continue;
    encoding.push_back(encoded);
    if (decoded > 0) decoding.push_back(decoded_rate);
  }
  size_t stored = 0;
  for (const Stored& chunk : chunks) {
    stored += in_blocks(chunk.encoded ? chunk.encoded->length : chunk.raw.size());
    right &= !chunk.encoded || std::equal(chunk.raw.begin(), chunk.raw.end(), &back[chunk.at]);
  }
  if (!right) return {};
  return nlohmann::json{{"stored", static_cast<double>(stored) / static_cast<double>(file.size())},
                        {"encoding", encoding},
                        {"decoding", decoding}};
}

}  // namespace
}  // namespace fpfs

int main(int count, char** words) {
  const int rounds = count > 2 ? std::atoi(words[1]) : 0;
  if (rounds < 1) {
    std::fputs("usage: fpfs-bench-codec ROUNDS FILE...\n", stderr);
    return 16;
  }
  for (int index = 2; index < count; ++index) {
    const auto file = fpfs::read_file(words[index]);
    const auto found = file && !file->empty() ? fpfs::measure(*file, rounds) : std::nullopt;
    if (!found) {
      std::fprintf(stderr, "fpfs-bench-codec: %s: cannot be read, or did not come back as it was\n", words[index]);
      return 1;
    }
    std::puts(found->dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}
