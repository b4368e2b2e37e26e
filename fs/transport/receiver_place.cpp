#include "fs/transport/receiver_place.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/proc_fields.h"

namespace fpfs {
namespace {

// Where it ran last. (A cpu_set_t holds so many; where there are more, sched_getaffinity() fails.)
std::optional<unsigned> processor_of(uint32_t thread) {
  constexpr unsigned kProcessorField = 39;
  if (thread == 0) return std::nullopt;
  const FileDescriptor file(::open(fmt::format("/proc/{0}/task/{0}/stat", thread).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t length = file.is_open() ? ::read(file.number(), text.data(), text.size()) : -1;
  if (length <= 0) return std::nullopt;
  const auto processor = proc_stat_number({text.data(), static_cast<size_t>(length)}, kProcessorField);
  return processor && *processor < CPU_SETSIZE ? std::optional(static_cast<unsigned>(*processor)) : std::nullopt;
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
  if (count_ < kJudgedBy) return;
  count_ = 0;
  const auto middle = intervals_ns_.begin() + kJudgedBy / 2;
  std::nth_element(intervals_ns_.begin(), middle, intervals_ns_.end());
  const uint64_t longest_ns = kLongestTimes * *middle;
  uint64_t sum_ns = 0;
  for (const uint64_t each_ns : intervals_ns_) sum_ns += std::min(each_ns, longest_ns);
  judge(sum_ns / kJudgedBy);
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
  if (is_bound_ && processor == processor_) return false;
  if (!processor || (!is_bound_ && ::sched_getaffinity(0, sizeof before_, &before_) != 0) ||
      !CPU_ISSET(*processor, &before_)) {
    release();
    return false;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(*processor, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) {
    release();
    return false;
  }
  is_bound_ = true;
  processor_ = *processor;
  return true;
}

void ProcessorBinding::release() {
  if (!std::exchange(is_bound_, false)) return;
  cpu_set_t now;
  const bool is_anothers = ::sched_getaffinity(0, sizeof now, &now) == 0 &&
                           (CPU_COUNT(&now) != 1 || !CPU_ISSET(processor_, &now));  // taskset(1) on the daemon
  if (!is_anothers) (void)::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace fpfs
