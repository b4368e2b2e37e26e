// The request path: what a worker does with the bytes of one request before libfuse sees them, and what the engine does
// with one write of a sequential writer, from File::write to the flushed chunk, over the simulated storage (one thread,
// no drive: the processor's share alone, the copy into the simulated drive included).
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/sim/sim_environment.h"
#include "engine/store/store.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

void request_examine(benchmark::State& state) {
  std::vector<std::byte> request(wire::kWritePayloadOffset + 4096);
  wire::InHeader header{};
  header.length = static_cast<uint32_t>(request.size());
  header.opcode = static_cast<uint32_t>(state.range(0));
  header.unique = 7;
  std::memcpy(request.data(), &header, sizeof header);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(wire::translate_request(request));
    benchmark::DoNotOptimize(wire::examine_request(request));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(request_examine)->Name("request/examine")->Arg(wire::kOpcodeWrite)->Arg(wire::kOpcodeCreate);

// An open array in a simulated world, with one file.
struct World {
  explicit World(benchmark::State& state) : environment(1) {
    const std::vector<std::string> paths = {"/m0", "/m1", "/m2"};
    StoreOptions options;
    options.buffer_memory = 64 * kMiB;
    if (check(state, Array::format(environment, paths, FormatOptions()))) open(state, paths, options);
  }
  ~World() {
    file.reset();
    environment.stop();
    store.reset();
  }
  static bool check(benchmark::State& state, const Status& status) {
    if (!status.is_ok()) state.SkipWithError(status.message().c_str());
    return status.is_ok();
  }
  void open(benchmark::State& state, const std::vector<std::string>& paths, const StoreOptions& options) {
    Result<std::unique_ptr<Store>> opened = Store::open(environment, paths, options);
    if (!check(state, opened.status())) return;
    store = std::move(*opened);
    Result<Store::Created> created = store->create(store->root(), "file", 0644);
    if (!check(state, created.status())) return;
    file = created->file;
  }

  SimEnvironment environment;
  std::unique_ptr<Store> store;
  std::shared_ptr<File> file;
};

struct Answer {
  bool given = false;
  Status status;
};

// Writes of 1 MiB one after the other, round a file of 64 MiB, starting range(0) bytes off the chunks' borders.
void request_write(benchmark::State& state) {
  World world(state);
  if (world.file == nullptr) return;
  const std::vector<std::byte> data(kRequestBytesMax, std::byte{0x33});
  uint64_t turn = 0;
  for ([[maybe_unused]] auto _ : state) {
    Answer answer;
    WriteRequest request;
    request.offset = FileOffset(turn++ % 64 * kRequestBytesMax + static_cast<uint64_t>(state.range(0)));
    request.length = kRequestBytesMax;
    request.data = data.data();
    request.owner = &answer;
    request.complete = [](WriteRequest& done, const Status& status) {
      *static_cast<Answer*>(done.owner) = {true, status};
    };
    world.file->write(request);
    world.environment.drain();
    if (!answer.given || !World::check(state, answer.status)) break;
  }
  state.SetBytesProcessed(state.iterations() * kRequestBytesMax);
}
BENCHMARK(request_write)->Name("request/write")->Arg(0)->Arg(64);

}  // namespace
}  // namespace fpfs
