#include "fs/transport/receiver_place.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "engine/base/proc_fields.h"

namespace fpfs {
namespace {

// Where it ran last, of a thread that does not come before all others there. (A cpu_set_t holds so many; where there are
// more, sched_getaffinity() fails.)
std::optional<unsigned> processor_of(uint32_t thread) {
  constexpr unsigned kProcessorField = 39, kRealTimeField = 40;  // rt_priority: 0 but for SCHED_FIFO and SCHED_RR
  if (thread == 0) return std::nullopt;
  const std::string stat = read_proc(static_cast<pid_t>(thread), fmt::format("task/{}/stat", thread).c_str());
  const auto processor = proc_stat_number(stat, kProcessorField);
  if (!processor || *processor >= CPU_SETSIZE || proc_stat_number(stat, kRealTimeField) != 0) return std::nullopt;
  return static_cast<unsigned>(*processor);
}

bool get_affinity(cpu_set_t& set) {
  return ::sched_getaffinity(0, sizeof set, &set) == 0;
}

// Where threads of this process may run when nobody has said so: wherever their cpuset lets them, also when that changes
// (the kernel takes what the set has more than that for a wish). Null: somebody has (taskset, CPUAffinity=).
const cpu_set_t* unlimited() {
  struct Unlimited {
    cpu_set_t all;
    bool is_so = false;
    Unlimited() {
      std::memset(&all, 0xff, sizeof all);
      std::thread([this] {
        cpu_set_t before, after;
        is_so = get_affinity(before) && ::sched_setaffinity(0, sizeof all, &all) == 0 && get_affinity(after) &&
                CPU_EQUAL(&before, &after);
      }).join();
    }
  };
  static const Unlimited unlimited;
  return unlimited.is_so ? &unlimited.all : nullptr;
}

}  // namespace

void ReceiverPlace::came(uint64_t handle, uint64_t now_ns) {
  const MutexLock lock(mutex_);
  const uint64_t interval_ns = now_ns - std::exchange(last_ns_, now_ns);
  if (std::exchange(handle_, handle) != handle || interval_ns > kPauseNs) return;
  if (settling_ > 0) {
    --settling_;
    return;
  }
  intervals_ns_[count_++] = interval_ns;
  const bool is_full = count_ == kJudgedBy;
  if (!is_full && (!is_trial_ || count_ % kLostBy != 0)) return;
  const auto end = intervals_ns_.begin() + count_;
  const auto middle = intervals_ns_.begin() + count_ / 2;
  std::nth_element(intervals_ns_.begin(), middle, end);
  const uint64_t median_ns = *middle, other_ns = judged_ns_[is_beside() ? 0 : 1];
  uint64_t sum_ns = 0;
  for (auto each = intervals_ns_.begin(); each != end; ++each) sum_ns += std::min(*each, kLongestTimes * median_ns);
  const uint64_t mean_ns = sum_ns / count_;
  // Two that the writer computes before are a good part of the mean of a few, and none of the median.
  if (!is_full && !(is_far_slower(median_ns, other_ns) && is_far_slower(mean_ns, other_ns))) return;
  count_ = 0;
  judge(mean_ns);
}

void ReceiverPlace::called_back() {
  const MutexLock lock(mutex_);
  if (!is_trial_ || !is_beside() || ++called_back_ < kCalledBackMax) return;
  count_ = 0;
  judge(kPauseNs);
}

void ReceiverPlace::judge(uint64_t interval_ns) {
  const bool way = is_beside();
  const uint64_t other_ns = judged_ns_[way ? 0 : 1];
  judged_ns_[way ? 1 : 0] = interval_ns;
  if (!std::exchange(is_trial_, false)) {
    if (!is_faster(other_ns, interval_ns) && --stays_ > 0) return;
    is_trial_ = true;
    return change();
  }
  if (is_faster(interval_ns, other_ns)) {
    stays_next_ = kStayMin;
  } else {
    change();
  }
  stays_ = stays_next_;
  stays_next_ = std::min(2 * stays_next_, kStayMax);
}

void ReceiverPlace::change() {
  is_beside_.store(!is_beside_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  settling_ = kSettling;
  called_back_ = 0;
}

bool ProcessorBinding::follow(uint32_t thread) {
  const std::optional<unsigned> processor = processor_of(thread);
  cpu_set_t now;
  if (!processor || !get_affinity(now)) {
    release();
    return false;
  }
  if (!is_bound_ || !is_just(now, processor_)) {
    before_ = now;  // when it was bound: somebody else has said so meanwhile
    is_bound_ = false;
    const cpu_set_t* const all = unlimited();
    elsewhere_ = all != nullptr ? *all : before_;
  }
  if (is_bound_ && processor_ == *processor) return false;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(*processor, &one);
  if (!CPU_ISSET(*processor, &before_) || ::sched_setaffinity(0, sizeof one, &one) != 0) {
    release();
    return false;
  }
  is_bound_ = true;
  processor_ = *processor;
  return true;
}

void ProcessorBinding::release() {
  cpu_set_t now;
  if (!std::exchange(is_bound_, false) || !get_affinity(now) || !is_just(now, processor_)) return;
  (void)::sched_setaffinity(0, sizeof elsewhere_, &elsewhere_);
}

bool ProcessorBinding::is_just(const cpu_set_t& set, unsigned processor) {
  return CPU_COUNT(&set) == 1 && CPU_ISSET(processor, &set);
}

}  // namespace fpfs
