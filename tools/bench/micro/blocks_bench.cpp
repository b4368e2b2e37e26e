// The block codec on 4 MiB of what checkpoints hold, both ways, and plain zstd beside it. "stored" is the share of the
// size that is left.
#include <benchmark/benchmark.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/codec/block_codec.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kChunk = 4 << 20;

uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Rounds to nearest, ties away; no infinities are needed here.
uint16_t fp16_of(float value) {
  const float size = std::abs(value);
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  if (size < 0x1p-14F) return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::lround(size * 0x1p24F)));
  return static_cast<uint16_t>(sign | ((std::bit_cast<uint32_t>(size) - (112u << 23) + (1u << 12)) >> 13));
}

template <typename Store>
Bytes numbers(size_t width, Store store) {
  Bytes bytes(kChunk);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  for (size_t at = 0; at < kChunk; at += width) store(&bytes[at], normal(random));
  return bytes;
}

// Words of a vocabulary of 50,000, the frequent ones first, as a tokenizer numbers them.
Bytes tokens() {
  Bytes bytes(kChunk);
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> even(0, std::log(50'000.0));
  for (size_t at = 0; at < kChunk; at += 4) put_u32(&bytes[at], static_cast<uint32_t>(std::exp(even(random))));
  return bytes;
}

// The words of this program's own source, in any order.
Bytes text() {
  std::string all;
  std::ifstream source(__FILE__);
  const std::string once{std::istreambuf_iterator<char>(source), {}};
  std::mt19937 random(3);
  std::vector<std::string> words;
  for (size_t at = 0; at < once.size();) {
    const size_t end = std::min(once.find_first_of(" \n", at), once.size() - 1);
    words.push_back(once.substr(at, end + 1 - at));
    at = end + 1;
  }
  while (all.size() < kChunk) all += words.empty() ? std::string("no source here ") : words[random() % words.size()];
  Bytes bytes(kChunk);
  std::memcpy(bytes.data(), all.data(), kChunk);
  return bytes;
}

// Tensors of 1 MB of bf16, each behind a head of odd length, as in a legacy file: at both phases.
Bytes mixed() {
  const Bytes weights = numbers(2, [](std::byte*to, float v) { put_u16(to, bf16_of(v)); }), head = text();
  Bytes bytes;
  while (bytes.size() < kChunk) {
    const auto from = weights.begin() + static_cast<ptrdiff_t>(bytes.size() / 2 * 2);
    bytes.insert(bytes.end(), head.begin(), head.begin() + 777);
    bytes.insert(bytes.end(), from, from + std::min<ptrdiff_t>(1'000'000, weights.end() - from));
  }
  bytes.resize(kChunk);
  return bytes;
}

enum Kind { kBf16, kFp32, kFp16, kFp64, kMoment, kSquares, kTokens, kText, kZeros, kMixed, kNoise };
constexpr const char* kKinds[] = {"bf16",   "fp32", "fp16",  "fp64",  "adam_exp_avg", "adam_exp_avg_sq",
                                  "tokens", "text", "zeros", "mixed", "noise"};

Bytes make_content(Kind kind) {
  const auto fp32 = [](std::byte* to, float v) { put_u32(to, std::bit_cast<uint32_t>(v)); };
  switch (kind) {
    case kBf16:
      return numbers(2, [](std::byte* to, float v) { put_u16(to, bf16_of(v)); });
    case kFp32:
      return numbers(4, fp32);
    case kFp16:
      return numbers(2, [](std::byte* to, float v) { put_u16(to, fp16_of(v)); });
    case kFp64: {
      std::mt19937_64 random(4);
      std::normal_distribution<double> normal(0, 0.02);
      return numbers(8, [&](std::byte* to, float) { put_u64(to, std::bit_cast<uint64_t>(normal(random))); });
    }
    case kMoment:
      return numbers(4, [&](std::byte* to, float v) { fp32(to, v * 1e-3F); });
    case kSquares:
      return numbers(4, [&](std::byte* to, float v) { fp32(to, v * v * 1e-3F); });
    case kTokens:
      return tokens();
    case kText:
      return text();
    case kZeros:
      return Bytes(kChunk);
    case kMixed:
      return mixed();
    case kNoise:
      break;
  }
  std::mt19937_64 random(5);
  return numbers(8, [&](std::byte* to, float) { put_u64(to, random()); });
}

// Made once: every benchmark is started several times.
const Bytes& content(Kind kind) {
  static std::array<Bytes, kNoise + 1> made;
  if (made[kind].empty()) made[kind] = make_content(kind);
  return made[kind];
}

void report(benchmark::State& state, Kind kind, size_t stored) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kChunk));
  state.counters["stored"] = static_cast<double>(stored) / static_cast<double>(kChunk);
  state.SetLabel(kKinds[kind]);
}

void encode(benchmark::State& state) {
  const auto kind = static_cast<Kind>(state.range(0));
  const Bytes& raw = content(kind);
  const BlockOptions options{.block_size = static_cast<size_t>(state.range(1)) << 10};
  Bytes out(kChunk);
  size_t stored = 0;
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(stored = encode_blocks(raw, out, options));
  report(state, kind, stored == 0 ? kChunk : stored);
}

void decode(benchmark::State& state) {
  const auto kind = static_cast<Kind>(state.range(0));
  const Bytes& raw = content(kind);
  Bytes out(kChunk), back(kChunk);
  const size_t stored = encode_blocks(raw, out, {.block_size = static_cast<size_t>(state.range(1)) << 10});
  if (stored == 0) return state.SkipWithError("not compressible");
  for ([[maybe_unused]] auto _ : state)
    if (!decode_blocks(std::span(out).first(stored), back).is_ok()) state.SkipWithError("damaged");
  if (back != raw) state.SkipWithError("not the same bytes");
  report(state, kind, stored);
}

// 4 KiB somewhere in the chunk: one block.
void decode_part(benchmark::State& state) {
  const Bytes& raw = content(static_cast<Kind>(state.range(0)));
  Bytes out(kChunk), back(4096);
  const size_t stored = encode_blocks(raw, out, {.block_size = static_cast<size_t>(state.range(1)) << 10});
  size_t page = 0;
  for ([[maybe_unused]] auto _ : state) {
    page = (page + 389) % (kChunk / back.size());
    if (!decode_range(std::span(out).first(stored), kChunk, page * back.size(), back).is_ok())
      state.SkipWithError("damaged");
  }
  state.SetLabel(kKinds[state.range(0)]);
}

void plain_encode(benchmark::State& state) {
  const auto kind = static_cast<Kind>(state.range(0));
  const Bytes& raw = content(kind);
  Bytes out(ZSTD_compressBound(kChunk));
  size_t stored = 0;
  for ([[maybe_unused]] auto _ : state)
    stored = ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), static_cast<int>(state.range(1)));
  report(state, kind, stored);
}

void plain_decode(benchmark::State& state) {
  const auto kind = static_cast<Kind>(state.range(0));
  const Bytes& raw = content(kind);
  Bytes out(ZSTD_compressBound(kChunk)), back(kChunk);
  const size_t stored = ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), static_cast<int>(state.range(1)));
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(ZSTD_decompress(back.data(), back.size(), out.data(), stored));
  report(state, kind, stored);
}

constexpr int kBlockSizes[] = {16, 32, 64, 128, 256, 1024}, kUsual = 64;  // KiB

void every_kind_and_size(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"kind", "KiB"});
  for (int kind = kBf16; kind <= kNoise; ++kind)
    for (const int size : kBlockSizes)
      if (size == kUsual || kind <= kFp32 || kind == kText) benchmark->Args({kind, size});
}
void every_kind_but_noise(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"kind", "KiB"});
  for (int kind = kBf16; kind < kNoise; ++kind)
    for (const int size : kBlockSizes)
      if (size == kUsual || kind <= kFp32 || kind == kText) benchmark->Args({kind, size});
}
void every_level(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"kind", "level"});
  for (int kind = kBf16; kind <= kNoise; ++kind)
    for (const int level : {1, 3}) benchmark->Args({kind, level});
}
void weights_of_every_size(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"kind", "KiB"});
  for (const int size : kBlockSizes) benchmark->Args({kBf16, size});
}
BENCHMARK(encode)->Name("blocks/encode")->Apply(every_kind_and_size);
BENCHMARK(decode)->Name("blocks/decode")->Apply(every_kind_but_noise);
BENCHMARK(decode_part)->Name("blocks/read_4k")->Apply(weights_of_every_size);
BENCHMARK(plain_encode)->Name("blocks/plain_zstd_encode")->Apply(every_level);
BENCHMARK(plain_decode)->Name("blocks/plain_zstd_decode")->Apply(every_level);

}  // namespace
}  // namespace fpfs
