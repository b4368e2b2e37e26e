#include "fs/transport/give_way.h"

#include <sys/resource.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "engine/base/clock.h"

namespace fpfs {
namespace {

bool set_policy(pid_t thread, int policy) {
  const sched_param none{};
  return ::sched_setscheduler(thread, policy, &none) == 0;
}

// Of the calling thread.
long preemptions() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

bool GiveWay::is_possible() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return false;  // whoever chose another knows why
  bool is_possible = false;
  std::thread([&] { is_possible = set_policy(0, SCHED_IDLE) && set_policy(0, SCHED_OTHER); }).join();
  return is_possible;
}

bool GiveWay::begin(const cpu_set_t& elsewhere) {
  {
    const MutexLock lock(mutex_);
    if (thread_ != 0 || !looks_.load()) return false;
    was_begun_ = true;
    thread_ = ::gettid();
    since_ns_ = monotonic_ns();
    is_over_ = false;
    elsewhere_ = elsewhere;
    preemptions_ = preemptions();
  }
  (void)set_policy(0, SCHED_IDLE);
  return true;
}

bool GiveWay::end() {
  (void)set_policy(0, SCHED_OTHER);
  const MutexLock lock(mutex_);
  was_taken_.store(preemptions() != preemptions_, std::memory_order_relaxed);
  thread_ = 0;
  return !is_over_;
}

void GiveWay::look(uint64_t now_ns) {
  const MutexLock lock(mutex_);
  quiet_looks_ = std::exchange(was_begun_, false) || thread_ != 0 ? 0 : quiet_looks_ + 1;
  if (quiet_looks_ == kQuietLooks) {
    quiet_looks_ = 0;
    looks_.store(false);
  }
  if (thread_ == 0 || now_ns < since_ns_ + kLongestNs) return;
  is_over_ = true;  // each time: it may only be about to
  (void)set_policy(thread_, SCHED_OTHER);
  (void)::sched_setaffinity(thread_, sizeof elsewhere_, &elsewhere_);
}

}  // namespace fpfs
