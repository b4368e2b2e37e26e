#include "engine/io/posix_environment.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/base/control_group.h"
#include "engine/base/units.h"
#include "engine/io/aio_queue.h"

namespace fpfs {

Result<std::unique_ptr<IoQueue>> PosixEnvironment::make_queue(MemberIndex member, const QueueSettings& settings) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> queue, AioQueue::create(member, settings));
  return queue;
}

struct timespec PosixEnvironment::now() {
  struct timespec time {};
  clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

struct timespec PosixEnvironment::stamp() {
  struct timespec time {};
  clock_gettime(CLOCK_REALTIME_COARSE, &time);
  return time;
}

// proc(5), /proc/stat: "cpu  user nice system idle iowait ...", in ticks.
ProcessorTimes PosixEnvironment::processor_times() {
  static const auto ns_per_tick = static_cast<uint64_t>(1'000'000'000 / ::sysconf(_SC_CLK_TCK));
  std::ifstream file("/proc/stat");
  std::string name;
  uint64_t user = 0, nice = 0, system = 0, idle = 0, waiting = 0;
  file >> name >> user >> nice >> system >> idle >> waiting;
  return {monotonic_ns(), file && name == "cpu" ? (idle + waiting) * ns_per_tick : 0};
}

Status PosixEnvironment::allow_handles(uint64_t count) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Status::from_errno(errno, "getrlimit RLIMIT_NOFILE");
  if (limit.rlim_cur >= count) return Status::ok();
  // The hard limit can be raised by root only, and is the administrator's word to everybody else.
  if (limit.rlim_max < count)
    return Status::from_errno(EMFILE, fmt::format("{} open files are needed, but at most {} are allowed (raise the "
                                                  "limit: ulimit -n, LimitNOFILE= in a systemd unit)",
                                                  count, static_cast<uint64_t>(limit.rlim_max)));
  limit.rlim_cur = count;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return Status::from_errno(errno, fmt::format("allow {} open files", count));
  return Status::ok();
}

uint64_t PosixEnvironment::random_u64() {
  const MutexLock lock(random_mutex_);
  if (random_left_ == 0) {
    // Up to 256 bytes come whole once the kernel's pool is seeded; before that, at boot, a signal can interrupt the wait.
    static_assert(sizeof random_ <= 256);
    ssize_t count = -1;
    do {
      count = ::getrandom(random_.data(), sizeof random_, 0);
    } while (count < 0 && errno == EINTR);
    FPFS_CHECK(count == sizeof random_, "getrandom(2) works on every kernel that this program runs on");
    random_left_ = random_.size();
  }
  return random_[--random_left_];
}

Status PosixEnvironment::check_buffer_memory(uint64_t bytes) {
  const auto machine =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (bytes >= machine)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("buffer_memory={} is more than this machine has ({}); give a part of it",
                                     format_size(bytes), format_size(machine)));
  constexpr uint64_t kBeside = 32 * kMiB;  // what little a daemon holds besides
  std::ifstream groups("/proc/self/cgroup");
  const uint64_t group = control_group_memory(groups);
  if (bytes + kBeside > group)
    return Status::error(
        StatusCode::kInvalidArgument,
        fmt::format("buffer_memory={} and {} beside it are more than their control group may have ({}); give less, or "
                    "raise that limit",
                    format_size(bytes), format_size(kBeside), format_size(group)));
  return Status::ok();
}

// proc(5), /proc/meminfo: lines "MemAvailable:   12345 kB".
uint64_t PosixEnvironment::memory_available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (uint64_t kib = 0; file >> name >> kib; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (name == "MemAvailable:") return kib * kKiB;
  return 0;
}

}  // namespace fpfs
