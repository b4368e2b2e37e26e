#include "engine/io/posix_environment.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/base/control_group.h"
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
  std::ifstream groups("/proc/self/cgroup");
  const uint64_t group = control_group_memory(groups);
  if (bytes >= group)
    return Status::error(
        StatusCode::kInvalidArgument,
        fmt::format("buffer_memory={} is more than its control group may have ({}); give less, or raise that limit",
                    format_size(bytes), format_size(group)));
  return Status::ok();
}

}  // namespace fpfs
