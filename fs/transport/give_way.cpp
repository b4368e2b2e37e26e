#include "fs/transport/give_way.h"

#include <sys/resource.h>
#include <unistd.h>

#include <thread>

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

bool is_bound(pid_t thread) {
  cpu_set_t set;
  return ::sched_getaffinity(thread, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

}  // namespace

bool GiveWay::is_possible() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return false;  // whoever chose another knows why
  bool is_possible = false;
  std::thread([&] { is_possible = set_policy(0, SCHED_IDLE) && set_policy(0, SCHED_OTHER); }).join();
  return is_possible;
}

bool GiveWay::begin(const cpu_set_t& elsewhere) {
  thread_local const pid_t thread = ::gettid();
  {
    const MutexLock lock(mutex_);
    if (thread_ != 0) return false;
    thread_ = thread;
    since_ns_ = monotonic_ns();
    is_over_ = false;
    elsewhere_ = elsewhere;
    preemptions_ = preemptions();
  }
  looker_.goes_on();
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

bool GiveWay::look(uint64_t now_ns) {
  const MutexLock lock(mutex_);
  if (thread_ == 0) return false;
  if (now_ns < since_ns_ + kLongestNs) return true;
  is_over_ = true;  // each time: it may only be about to
  (void)set_policy(thread_, SCHED_OTHER);
  // Else somebody else has said where it may run (taskset), or this did.
  if (is_bound(thread_)) (void)::sched_setaffinity(thread_, sizeof elsewhere_, &elsewhere_);
  return true;
}

}  // namespace fpfs
