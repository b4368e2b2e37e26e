// Whether a process that closes a descriptor of a file has others of it (dup(2), dup2(2)), or its children have, which
// inherited them: as far as /proc tells (fdinfo, whose "ino" Linux has since 5.14). The descriptor that is being closed
// has left the table by then, and so has everything when a process exits.
//
// What cannot be told is false: of a process in another PID namespace or of another user than a daemon that is not
// root; of one that names the file otherwise (a hard link); beyond kBudget.
//
// Whoever asks must not depend on who is asked about. Reading the fdinfo of an epoll descriptor waits for a mutex that
// its owner holds as long as a page fault of his takes (ep_show_fdinfo in fs/eventpoll.c), which may be one that waits
// for this daemon: so only what readlink(2) calls as the file is called is opened. And readlink(2) waits for an execve(2)
// of that process (proc_pid_readlink, Linux 6.18), which may be what closes the descriptor, and waits for the answer: so
// a thread of its own looks, for which nobody waits longer than for kBudget. Of those that are caught there are
// kThreadsMax at most, then nobody looks.
//
// Thread safety: all functions from any thread. They block for kBudget at most: not on a thread that receives requests.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace fpfs {

// What /proc shows of a descriptor that may write.
struct HeldFile {
  dev_t device = 0;  // of its filesystem
  uint64_t inode = 0;
  std::string name;  // the last component of its path
};

constexpr std::chrono::milliseconds kBudget{20};
constexpr unsigned kThreadsMax = 4;

// Whether the process of this thread does, or (`or_descendant`) one that descends from it.
bool holds(pid_t thread, const HeldFile& file, bool or_descendant);

}  // namespace fpfs
