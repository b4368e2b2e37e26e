#include "fs/transport/give_way.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/io/named_thread.h"

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

GiveWay::GiveWay(bool looks) {
  if (looks) looker_ = start_thread("fpfs-look", [this] { look_on(); });
}

GiveWay::~GiveWay() {
  if (!looker_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  begun_or_ending_.notify_one();
  looker_.join();
}

bool GiveWay::is_possible() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return false;  // whoever chose another knows why
  bool is_possible = false;
  std::thread([&] { is_possible = set_policy(0, SCHED_IDLE) && set_policy(0, SCHED_OTHER); }).join();
  return is_possible;
}

bool GiveWay::begin(const cpu_set_t& elsewhere) {
  bool nobody_looks = false;
  {
    const MutexLock lock(mutex_);
    if (thread_ != 0) return false;
    nobody_looks = std::exchange(quiet_looks_, 0) == kQuietLooks;
    thread_ = ::gettid();
    since_ns_ = monotonic_ns();
    is_over_ = false;
    elsewhere_ = elsewhere;
    preemptions_ = preemptions();
  }
  if (nobody_looks) begun_or_ending_.notify_one();
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
  if (thread_ == 0 || now_ns < since_ns_ + kLongestNs) return;
  is_over_ = true;  // each time: it may only be about to
  (void)set_policy(thread_, SCHED_OTHER);
  // Else somebody else has said where it may run (taskset), or this did.
  if (is_bound(thread_)) (void)::sched_setaffinity(thread_, sizeof elsewhere_, &elsewhere_);
}

void GiveWay::look_on() {
  mutex_.lock();
  while (!is_ending_) {
    if (quiet_looks_ == kQuietLooks) {
      begun_or_ending_.wait(mutex_);
      continue;
    }
    if (thread_ == 0) ++quiet_looks_;
    begun_or_ending_.wait_for(mutex_, std::chrono::nanoseconds(kLongestNs));
    mutex_.unlock();
    look(monotonic_ns());
    mutex_.lock();
  }
  mutex_.unlock();
}

}  // namespace fpfs
