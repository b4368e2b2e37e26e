// RAID-0 arithmetic: where a chunk goes.
#include <benchmark/benchmark.h>

#include "engine/layout/stripe.h"

namespace fpfs {
namespace {

void layout_place(benchmark::State& state) {
  const StripeMap stripes{.chunk_size = static_cast<uint32_t>(kMiB),
                          .member_count = static_cast<uint16_t>(state.range(0)),
                          .has_turned_rows = true};
  constexpr FileId kFile(0x123456789abcdef0);
  FileOffset offset;
  for ([[maybe_unused]] auto _ : state) {
    offset += 1'000'003;
    const ChunkIndex chunk = stripes.chunk_of(offset);
    benchmark::DoNotOptimize(stripes.member_of(kFile, chunk));
    benchmark::DoNotOptimize(stripes.natural_slot(chunk));
    benchmark::DoNotOptimize(stripes.offset_in_chunk(offset));
  }
}
BENCHMARK(layout_place)->Name("layout/place")->Arg(1)->Arg(4)->Arg(8);

}  // namespace
}  // namespace fpfs
