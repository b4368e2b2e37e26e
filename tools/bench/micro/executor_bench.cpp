// What it costs to have a worker do something, by ThreadExecutor and TaskCounter as the engine does it.
#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>

#include "engine/base/clock.h"
#include "engine/io/task_counter.h"
#include "engine/io/thread_executor.h"

namespace fpfs {
namespace {

constexpr uint64_t kBatch = 64;

// Tasks that do nothing, from so many threads to eight workers, kBatch of each thread at a time: of each task, the whole
// cost.
void BM_ManyTasks(benchmark::State& state) {
  static ThreadExecutor* workers = nullptr;
  static TaskCounter* tasks = nullptr;
  std::atomic<uint64_t> done{0};
  if (state.thread_index() == 0) {
    workers = new ThreadExecutor(8);
    tasks = new TaskCounter(*workers, *workers);
  }
  for ([[maybe_unused]] auto _ : state) {
    done.store(0);
    for (uint64_t i = 0; i < kBatch; ++i) tasks->post_work([&done] { done.fetch_add(1); });
    while (done.load() < kBatch) std::this_thread::yield();
  }
  if (state.thread_index() == 0) {
    tasks->wait();
    delete tasks;
    delete workers;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatch));
}
BENCHMARK(BM_ManyTasks)->ThreadRange(1, 8)->UseRealTime();

// One task at a time, for a worker that sleeps: what the poster pays, and when the task begins.
void BM_OneTask(benchmark::State& state) {
  ThreadExecutor workers(static_cast<unsigned>(state.range(0)));
  TaskCounter tasks(workers, workers);
  uint64_t posting = 0, beginning = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::atomic<uint64_t> begun{0};
    const uint64_t before = monotonic_ns();
    tasks.post_work([&begun] { begun.store(monotonic_ns()); });
    posting += monotonic_ns() - before;
    tasks.wait();
    beginning += begun.load() - before;
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    state.ResumeTiming();
  }
  state.counters["post_ns"] = static_cast<double>(posting) / static_cast<double>(state.iterations());
  state.counters["begin_ns"] = static_cast<double>(beginning) / static_cast<double>(state.iterations());
}
BENCHMARK(BM_OneTask)->Arg(1)->Arg(8)->UseRealTime();

}  // namespace
}  // namespace fpfs
