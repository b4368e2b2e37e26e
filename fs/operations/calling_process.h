// What the processes behind requests are, as far as /proc tells. The kernel names the thread that made a request, by
// its number in the PID namespace of the mount; 0 when it has none there.
//
// Thread safety: all functions from any thread. They block for /proc only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace fpfs {

// The thread group (what getpid() gives) of a thread; 0 when it is not known. One system call for a main thread.
uint32_t process_of(pid_t thread);

// Whether a thread that is closing files does so because a signal ends its process (SIGKILL, the OOM killer, SIGSEGV,
// an unhandled SIGTERM) rather than because it exits. Nothing: it cannot be told.
std::optional<bool> is_dying_of_signal(pid_t thread);

// Whether nobody is left who could hear what a call of this thread came to: its process exits, or is about to be killed
// and waits for nothing but this answer.
bool hears_no_answer(pid_t thread);

}  // namespace fpfs
