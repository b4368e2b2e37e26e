// The buffer pool: what each chunk pays to get memory, with and without eviction, alone and in a crowd.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "engine/base/units.h"
#include "engine/io/buffer_pool.h"

namespace fpfs {
namespace {

constexpr uint32_t kBufferSize = 64 * kKiB;
constexpr unsigned kBuffers = 256;

class Owner final : public BufferOwner {
 public:
  bool try_evict(Buffer&) override { return true; }
  void evict_locked(Buffer&) override {}
};

std::unique_ptr<BufferPool> make_pool(benchmark::State& state) {
  Result<std::unique_ptr<BufferPool>> pool = BufferPool::create(uint64_t{kBuffers} * kBufferSize, kBufferSize);
  if (pool.is_ok()) return std::move(*pool);
  state.SkipWithError(pool.status().message().c_str());
  return nullptr;
}

std::unique_ptr<BufferPool> g_pool;

// Every thread takes range(0) buffers and gives them back.
void pool_acquire(benchmark::State& state) {
  if (state.thread_index() == 0) g_pool = make_pool(state);
  std::vector<Buffer*> buffers(static_cast<size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    if (!g_pool->acquire(static_cast<unsigned>(buffers.size()), buffers.data(), nullptr)) {
      state.SkipWithError("no buffers");
      break;
    }
    for (Buffer* buffer : buffers) g_pool->release(*buffer);
    g_pool->run_waiters();
  }
  if (state.thread_index() == 0) g_pool.reset();
}
BENCHMARK(pool_acquire)->Name("pool/acquire")->Arg(1)->Arg(2)->Threads(1)->Threads(4)->UseRealTime();

// All buffers hold clean content: each one taken is evicted first.
void pool_evict(benchmark::State& state) {
  std::unique_ptr<BufferPool> pool = make_pool(state);
  if (pool == nullptr) return;
  Owner owner;
  std::vector<Buffer*> all(kBuffers);
  for (Buffer*& buffer : all) {
    if (!pool->acquire(1, &buffer, nullptr)) return state.SkipWithError("no buffers");
    buffer->owner = &owner;
  }
  for (Buffer* buffer : all) pool->make_evictable(*buffer, false);
  for ([[maybe_unused]] auto _ : state) {
    Buffer* buffer = nullptr;
    if (!pool->acquire(1, &buffer, nullptr)) {
      state.SkipWithError("no buffers");
      break;
    }
    buffer->owner = &owner;
    pool->make_evictable(*buffer, false);
  }
}
BENCHMARK(pool_evict)->Name("pool/evict");

}  // namespace
}  // namespace fpfs
