// A small number of the calling thread, for what threads keep apart so that they seldom meet in one line of memory.
#pragma once

#include <atomic>
#include <cstddef>

namespace fpfs {

// From 0 on, in the order in which threads first ask; stays the thread's. Any thread.
inline size_t thread_number() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace fpfs
