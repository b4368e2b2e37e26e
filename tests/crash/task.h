// Task: a client of the engine as a coroutine, so that a test's clients read like programs although every call of
// theirs is asynchronous and everything runs on one thread.
//
//   Task<Status> save(Client& client) { ... status = co_await client.write(...); ... co_return status; }
//
// A call's completion only marks its client as ready (Scheduler::ready); the test's main loop resumes ready clients,
// one at a time and in seeded order, never inside an engine callback.
//
// g++ 12 puts something in front of the frame of a coroutine that has no variable of its own and awaits another one in
// the condition of an `if` or a loop. Its handle is then 8 bytes off and it is never run; Task's constructor aborts. A
// variable for the result mends it.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/io/sim/sim_random.h"

namespace fpfs::crash {

template <typename T>
class Task {
 public:
  struct promise_type {
    std::optional<T> value;
    std::coroutine_handle<> continuation;

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        const auto next = self.promise().continuation;
        return next ? next : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_value(T result) { value = std::move(result); }
    void unhandled_exception() { FPFS_CHECK(false, "a client threw"); }
  };

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {
    // Frames come from operator new.
    FPFS_CHECK(reinterpret_cast<uintptr_t>(handle.address()) % alignof(std::max_align_t) == 0, "see above: g++ 12");
  }
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }
  bool done() const { return handle_.done(); }
  const T& result() const { return *handle_.promise().value; }
  std::coroutine_handle<> handle() const { return handle_; }

  // co_await of a task runs it as a subroutine.
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().continuation = caller;
    return handle_;
  }
  T await_resume() { return std::move(*handle_.promise().value); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

class Scheduler {
 public:
  explicit Scheduler(SimRandom& random) : random_(random) {}
  void ready(std::coroutine_handle<> client) { ready_.push_back(client); }
  bool has_ready() const { return !ready_.empty(); }
  void resume_one() {
    const size_t index = random_.below(ready_.size());
    const std::coroutine_handle<> client = ready_[index];
    ready_.erase(ready_.begin() + static_cast<ptrdiff_t>(index));
    client.resume();
  }

 private:
  SimRandom& random_;
  std::vector<std::coroutine_handle<>> ready_;
};

}  // namespace fpfs::crash
