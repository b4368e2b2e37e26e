// OwnTask: a thread that others wait for anyway does what it would have another thread do. While an OwnTask exists, the
// first task that its thread posts to a ThreadExecutor stays with it, and nobody is woken; run() runs it. So a request
// that asks for a commit is answered by the thread that received it. With kEach, what a kept task posts first is kept in
// its turn: steps that follow one another stay with one thread.
//
// run() comes when the thread has let go of everything, as the task may block; in between the thread must not wait for
// what the task does. A kept task counts as one of its executor: stop() waits for it.
//
// Thread safety: it is about the calling thread only. Within another one of its thread it is as if it were not there.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace fpfs {

class ThreadExecutor;

class OwnTask {
 public:
  enum class Keeps : uint8_t { kOne, kEach };
  explicit OwnTask(Keeps keeps = Keeps::kOne);
  ~OwnTask();  // runs it
  OwnTask(const OwnTask&) = delete;
  OwnTask& operator=(const OwnTask&) = delete;

  // While it exists, what its thread posts goes to other threads.
  class Suspension {
   public:
    Suspension() : took_(std::exchange(t_takes, false)) {}
    ~Suspension() { t_takes = took_; }
    Suspension(const Suspension&) = delete;
    Suspension& operator=(const Suspension&) = delete;

   private:
    const bool took_;
  };

  // Runs the task, if there is one, and those kept meanwhile. What is posted from then on goes to other threads. False:
  // there was none.
  bool run();
  // Has another thread run it: when it turns out that nobody waits for it. Not while as many tasks wait as that executor
  // has threads: whoever asks for more than they do is held up by it.
  void pass_on();

 private:
  friend class ThreadExecutor;
  // Whether a task posted by the calling thread stays with it. Takes it then.
  static bool keep(ThreadExecutor& executor, std::function<void()>& task);

  static thread_local OwnTask* t_current;  // of this thread
  static thread_local bool t_takes;        // it has no task yet
  const bool is_inner_;
  const Keeps keeps_;
  ThreadExecutor* executor_ = nullptr;
  std::function<void()> task_;
};

}  // namespace fpfs
