#include "engine/io/recurring_timer.h"

#include <utility>

namespace fpfs {

void RecurringTimer::open(Executor& executor, std::chrono::milliseconds interval, std::function<bool()> look) {
  const MutexLock lock(state_->mutex);
  state_->executor = &executor;
  state_->interval = interval;
  state_->look = std::move(look);
}

void RecurringTimer::set() {
  set(state_);
}

void RecurringTimer::set(const std::shared_ptr<State>& state) {
  if (state->interval.count() == 0 || state->is_set.exchange(true)) return;
  state->executor->post_after(state->interval, [state] { run(state); });
}

void RecurringTimer::run(const std::shared_ptr<State>& state) {
  std::function<bool()> look;
  {
    const MutexLock lock(state->mutex);
    if (state->look == nullptr) return;
    look = state->look;
    state->is_looking = true;
  }
  // Before the look: what it may miss sets the timer again.
  state->is_set.store(false);
  const bool again = look();
  {
    const MutexLock lock(state->mutex);
    state->is_looking = false;
    state->came_back.notify_all();
    if (state->look == nullptr) return;
  }
  if (again) set(state);
}

void RecurringTimer::end() {
  const MutexLock lock(state_->mutex);
  state_->look = nullptr;
  while (state_->is_looking) state_->came_back.wait(state_->mutex);
}

}  // namespace fpfs
