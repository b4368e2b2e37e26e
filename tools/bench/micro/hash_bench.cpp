// Hashing: what every byte pays, written and read.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "engine/codec/hash.h"

namespace fpfs {
namespace {

void hash_bytes_of(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)), std::byte{0x5a});
  uint64_t seed = 0;
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(seed = hash_bytes(bytes, seed));
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.SetLabel(hash_backend());
}
BENCHMARK(hash_bytes_of)->Name("hash/bytes")->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20);

void hash_seed(benchmark::State& state) {
  const std::byte array_id[16] = {};
  ChunkIndex chunk;
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(chunk_seed(array_id, FileId(7), Generation(1), ++chunk));
}
BENCHMARK(hash_seed)->Name("hash/chunk_seed");

}  // namespace
}  // namespace fpfs
