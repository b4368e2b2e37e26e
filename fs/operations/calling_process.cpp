#include "fs/operations/calling_process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/proc_fields.h"

namespace fpfs {
namespace {

constexpr unsigned kFlagsField = 9, kExitCodeField = 52;
// include/linux/sched.h.
constexpr uint64_t kExiting = 0x4, kSignaled = 0x400;
// The part of an exit status that says which signal it was (wait(2)).
constexpr uint64_t kSignalMask = 0x7f;

uint32_t ask_for_process(pid_t thread) {
  // Whether the thread is in the group of its own number: EPERM is a yes, too.
  if (::syscall(SYS_tgkill, thread, thread, 0) == 0 || errno == EPERM) return static_cast<uint32_t>(thread);
  const std::string status = read_proc(thread, "status");
  return static_cast<uint32_t>(proc_status_number(status, "Tgid").value_or(0));
}

}  // namespace

uint32_t process_of(pid_t thread) {
  if (thread <= 0) return 0;
  // A number is not another's so soon: the kernel gives them in turn.
  constexpr uint64_t kAnswerHoldsNs = 1'000'000;
  struct Answer {
    pid_t thread = 0;
    uint32_t process = 0;
    uint64_t since_ns = 0;
  };
  thread_local Answer last;
  const uint64_t now = monotonic_ns();
  if (last.thread == thread && last.process != 0 && now - last.since_ns < kAnswerHoldsNs) return last.process;
  last = {thread, ask_for_process(thread), now};
  return last.process;
}

// Most who close something go on living, and one may be in execve(2), which closes descriptors while it holds a lock
// that readers of /proc/PID/stat wait for (Linux 6.18: they would wait for the answer to this close). So what does not
// wait is asked first: who exits has given up its memory before its files (do_exit(): exit_mm, exit_files).
//
// PF_SIGNALED is set of every thread that a signal ends, also of those that the exit(2) of another thread ends; the
// exit status of the process (which do_task_stat() takes from the thread group once that is exiting) tells these apart.
std::optional<bool> is_dying_of_signal(pid_t thread) {
  if (thread <= 0) return std::nullopt;
  const std::string memory = read_proc(thread, "statm");
  if (memory.empty()) return std::nullopt;
  if (!memory.starts_with("0 ")) return false;
  const std::string stat = read_proc(thread, "stat");
  const std::optional<uint64_t> flags = proc_stat_number(stat, kFlagsField);
  const std::optional<uint64_t> exit_code = proc_stat_number(stat, kExitCodeField);
  if (!flags || !exit_code) return std::nullopt;
  if ((*flags & kExiting) == 0 || (*flags & kSignaled) == 0) return false;
  return (*exit_code & kSignalMask) != 0;
}

// A signal that ends a process is SIGKILL to each of its threads (complete_signal() in kernel/signal.c), which is pending
// until the call comes back.
bool hears_no_answer(pid_t thread) {
  if (thread <= 0) return false;
  if (read_proc(thread, "statm").starts_with("0 ")) return true;
  const std::string status = read_proc(thread, "status");
  const uint64_t pending = proc_status_number(status, "SigPnd", 16).value_or(0);
  return (pending & (uint64_t{1} << (SIGKILL - 1))) != 0;
}

}  // namespace fpfs
