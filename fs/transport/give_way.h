// GiveWay: answers that leave their caller on the processor that it shares with who answers.
//
// Who is woken while its processor is busy goes to one that is idle, and with a receiver beside its writer
// (fs/transport/receiver_place.h) it is busy: with the receiver, which wakes it. A processor that runs nothing but
// SCHED_IDLE counts as an idle one (select_idle_sibling() in kernel/sched/fair.c, Linux 5.4 and newer). So the receiver is
// of that class while it answers. Its caller goes on there (at once, unless they are of different autogroups or cgroups),
// and the receiver when that one sleeps: mostly in its next request, which is received without anybody having been woken.
//
// Whoever else wants that processor comes before the receiver, too, and nobody knows for how long. So somebody looks each
// kLongestNs while anybody gives way (fs/transport/looker.h): after one to two of these the receiver is as it was before,
// and may go on elsewhere.
//
// No lock is held while a thread gives way.
//
// Thread safety: all methods from any thread; one at a time gives way.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "engine/base/mutex.h"
#include "fs/transport/looker.h"

namespace fpfs {

class GiveWay {
 public:
  static constexpr uint64_t kLongestNs = Looker::kPeriodNs;

  // `looker` calls look(), and ends first.
  explicit GiveWay(Looker& looker) : looker_(looker) {}
  GiveWay(const GiveWay&) = delete;
  GiveWay& operator=(const GiveWay&) = delete;

  // Whether threads like the calling one can: they are of SCHED_OTHER, and may become so again (CAP_SYS_NICE, or an
  // RLIMIT_NICE that allows for their nice value: sched(7)). Tried by a thread of its own.
  static bool is_possible();

  // The calling thread, which is bound to one processor, gives way from here to end(); `elsewhere`: where it may run if
  // that takes too long. False: another one does.
  bool begin(const cpu_set_t& elsewhere);
  // False: it took too long.
  bool end();
  // Whether somebody took the way that was given since the last call: the caller is there. (Or somebody else.)
  bool was_taken() { return was_taken_.exchange(false, std::memory_order_relaxed); }
  // Ends what takes too long. False: nobody gives way.
  bool look(uint64_t now_ns);

 private:
  Looker& looker_;
  Mutex mutex_;
  std::atomic<bool> was_taken_{false};
  long preemptions_ FPFS_GUARDED_BY(mutex_) = 0;  // of the thread, before it gave way
  pid_t thread_ FPFS_GUARDED_BY(mutex_) = 0;      // that gives way; 0: none
  uint64_t since_ns_ FPFS_GUARDED_BY(mutex_) = 0;
  bool is_over_ FPFS_GUARDED_BY(mutex_) = false;  // it took too long
  cpu_set_t elsewhere_ FPFS_GUARDED_BY(mutex_){};
};

}  // namespace fpfs
