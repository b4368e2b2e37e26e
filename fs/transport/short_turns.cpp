#include "fs/transport/short_turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace fpfs {
namespace {

constexpr uint64_t kTurnNs = 100'000;  // the shortest that the kernel takes

// The kernel's struct sched_attr, in its first version (include/uapi/linux/sched/types.h). Its header is not used, as
// glibc 2.41 defines the struct, too.
struct SchedulerAttributes {
  uint32_t size = sizeof(SchedulerAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of a turn, in nanoseconds
  uint64_t deadline = 0;
  uint64_t period = 0;
};
static_assert(sizeof(SchedulerAttributes) == 48);

}  // namespace

void ask_for_short_turns() {
  SchedulerAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;  // whoever chose another has chosen how long its turns are
  attributes.runtime = kTurnNs;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace fpfs
