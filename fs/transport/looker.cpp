#include "fs/transport/looker.h"

#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/io/named_thread.h"
#include "fs/transport/short_turns.h"

namespace fpfs {

Looker::Looker(std::function<bool(uint64_t)> look) : look_(std::move(look)) {
  if (look_) thread_ = start_thread("fpfs-look", [this] { run(); });
}

Looker::~Looker() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void Looker::goes_on() {
  goes_on_.store(true);
  if (!is_asleep_.load()) return;  // it sees goes_on_ before it sleeps
  { const MutexLock lock(mutex_); }
  woken_.notify_one();
}

void Looker::run() {
  ask_for_short_turns();
  unsigned quiet_looks = kQuietLooks;
  mutex_.lock();
  while (!is_ending_) {
    if (quiet_looks >= kQuietLooks) {
      is_asleep_.store(true);
      while (!is_ending_ && !goes_on_.load()) woken_.wait(mutex_);
      is_asleep_.store(false);
      quiet_looks = 0;
    }
    goes_on_.store(false);
    woken_.wait_for(mutex_, std::chrono::nanoseconds(kPeriodNs));
    mutex_.unlock();
    quiet_looks = look_(monotonic_ns()) || goes_on_.load() ? 0 : quiet_looks + 1;
    mutex_.lock();
  }
  mutex_.unlock();
}

}  // namespace fpfs
