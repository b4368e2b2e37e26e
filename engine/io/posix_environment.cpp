#include "engine/io/posix_environment.h"

#include <sys/random.h>

#include <cerrno>

#include "engine/io/aio_queue.h"

namespace fpfs {

Result<std::unique_ptr<IoQueue>> PosixEnvironment::make_queue(int member, unsigned depth) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> queue, AioQueue::create(member, depth));
  return queue;
}

struct timespec PosixEnvironment::now() {
  struct timespec time {};
  clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

uint64_t PosixEnvironment::random_u64() {
  uint64_t value = 0;
  // Up to 256 bytes come whole once the kernel's pool is seeded; before that, at boot, a signal can interrupt the wait.
  ssize_t count = -1;
  do {
    count = ::getrandom(&value, sizeof value, 0);
  } while (count < 0 && errno == EINTR);
  FPFS_CHECK(count == sizeof value, "getrandom(2) works on every kernel that this program runs on");
  return value;
}

}  // namespace fpfs
