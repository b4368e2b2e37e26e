// RecurringTimer: looks at something after a while, and again for as long as there is reason to. The executor,
// and what is posted there, may outlive its owner.
//
// Thread safety: set() from any thread, with any lock held; open() before it, and end() once, from outside of `look`.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "engine/base/mutex.h"
#include "engine/io/executor.h"

namespace fpfs {

class RecurringTimer {
 public:
  // `look` runs on the executor, without locks; true: it is to run again. An interval of zero: never.
  void open(Executor& executor, std::chrono::milliseconds interval, std::function<bool()> look);
  // It runs once more, an interval from now at the latest. Cheap when that is so already.
  void set();
  // It does not run any more, and will not.
  void end();

 private:
  struct State {
    Executor* executor = nullptr;
    std::chrono::milliseconds interval{0};
    std::atomic<bool> is_set{false};
    Mutex mutex;
    CondVar came_back;
    std::function<bool()> look FPFS_GUARDED_BY(mutex);
    bool is_looking FPFS_GUARDED_BY(mutex) = false;
  };
  static void set(const std::shared_ptr<State>& state);
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace fpfs
