#include "fs/nodes/caught_requests.h"

#include <iterator>

namespace fpfs {

void CaughtRequests::begin(const wire::Names& names) {
  const MutexLock lock(mutex_);
  for (const uint64_t name : names) ++uses_[name].requests;
  is_any_ = true;
}

void CaughtRequests::end(const wire::Names& names) {
  std::vector<Task> due;
  {
    const MutexLock lock(mutex_);
    for (const uint64_t name : names) {
      const auto use = uses_.find(name);
      if (--use->second.requests > 0) continue;
      std::move(use->second.put_off.begin(), use->second.put_off.end(), std::back_inserter(due));
      uses_.erase(use);
    }
    is_any_ = !uses_.empty();
  }
  if (due.empty()) return;
  run_in_background_([due = std::move(due)] {
    for (const Task& task : due) task();
  });
}

void CaughtRequests::put_off(uint64_t name, Task let_go) {
  {
    const MutexLock lock(mutex_);
    if (const auto use = uses_.find(name); use != uses_.end()) return use->second.put_off.push_back(std::move(let_go));
  }
  let_go();
}

}  // namespace fpfs
