// The index: what a commit encodes, what opening a file folds, what a flush looks up.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/index/extent_table.h"
#include "engine/index/sidecar.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunkSize = kMiB;
constexpr uint16_t kMembers = 4;

SidecarHeader header() {
  SidecarHeader header;
  header.array_id.fill(std::byte{0xa5});
  header.file_id = FileId(42);
  header.chunk_size = kChunkSize;
  return header;
}

Extent extent_of(ChunkIndex chunk) {
  Extent extent;
  extent.slot = SlotIndex(chunk.value() / kMembers);
  extent.member = MemberIndex(static_cast<uint16_t>(chunk.value() % kMembers));
  extent.checksum = chunk.value() * 0x9e3779b97f4a7c15;
  extent.stored_length = extent.raw_length = extent.visible_length = kChunkSize;
  extent.codec = Codec::kRaw;
  return extent;
}

// A commit of `count` chunks from `first` on.
SidecarRecord record_of(uint64_t sequence, ChunkIndex first, uint64_t count) {
  SidecarRecord record;
  record.sequence = sequence;
  record.snapshot = sequence == 1;
  record.generation = Generation(1);
  record.size = record.allocated = offset_of(first + count, kChunkSize).value();
  for (const ChunkIndex chunk : IndexRange(first, first + count)) record.extents.emplace_back(chunk, extent_of(chunk));
  return record;
}

class MemoryReader final : public SidecarReader {
 public:
  explicit MemoryReader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  Result<size_t> read(SidecarOffset offset, std::span<std::byte> buffer) override {
    const size_t count = offset < end() ? std::min<size_t>(buffer.size(), end() - offset) : 0;
    if (count > 0) std::memcpy(buffer.data(), bytes_.data() + offset.value(), count);
    return count;
  }
  Result<SidecarOffset> next_data(SidecarOffset offset) override { return std::min(offset, end()); }
  SidecarOffset end() const override { return SidecarOffset(bytes_.size()); }

 private:
  const std::vector<std::byte>& bytes_;
};

// One commit of a checkpoint of range(0) chunks.
void index_append(benchmark::State& state) {
  const SidecarRecord record = record_of(1, ChunkIndex(0), static_cast<uint64_t>(state.range(0)));
  std::vector<std::byte> out;
  for ([[maybe_unused]] auto _ : state) {
    out.clear();
    benchmark::DoNotOptimize(encode_sidecar_record(header(), record, kFirstRecord, SidecarOffset(0), out));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(index_append)->Name("index/append")->Arg(1)->Arg(1024)->Arg(65536);

// A sidecar of range(0) commits of range(1) chunks each.
void index_fold(benchmark::State& state) {
  const auto commits = static_cast<uint64_t>(state.range(0)), chunks = static_cast<uint64_t>(state.range(1));
  std::vector<std::byte> sidecar = encode_sidecar_header(header());
  SidecarOffset snapshot;
  for (uint64_t commit = 0; commit < commits; ++commit) {
    const SidecarRecord record = record_of(commit + 1, ChunkIndex(commit * chunks), chunks);
    const SidecarOffset at = encode_sidecar_record(header(), record, SidecarOffset(sidecar.size()), snapshot, sidecar);
    if (record.snapshot) snapshot = at;
  }
  for ([[maybe_unused]] auto _ : state) {
    MemoryReader reader(sidecar);
    Result<FileImage> image = fold_sidecar(reader, header().array_id, kMembers, kChunkSize, nullptr);
    if (!image.is_ok() || image->extents.count() != commits * chunks) state.SkipWithError("the fold failed");
    benchmark::DoNotOptimize(image);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}
BENCHMARK(index_fold)->Name("index/fold")->Args({1, 1024})->Args({1, 65536})->Args({256, 4});

void index_extents(benchmark::State& state) {
  const auto chunks = static_cast<uint64_t>(state.range(0));
  ExtentTable table;
  ChunkIndex chunk;
  for ([[maybe_unused]] auto _ : state) {
    table.set(chunk, extent_of(chunk));
    benchmark::DoNotOptimize(table.get(chunk));
    chunk = ChunkIndex((chunk.value() + 1) % chunks);
  }
}
BENCHMARK(index_extents)->Name("index/extent_table")->Arg(1024)->Arg(65536);

}  // namespace
}  // namespace fpfs
