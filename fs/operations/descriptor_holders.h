// Whether a process that closes a descriptor of a file has others of it (dup(2), dup2(2)), or its children have, which
// inherited them: as far as /proc tells (fdinfo, whose "ino" Linux has since 5.14). The descriptor that is being closed
// has left the table by then, and so has everything when a process exits.
//
// What cannot be told is false: of a process in another PID namespace or of another user than a daemon that is not
// root; of who has more than kDescriptorsMax descriptors or kProcessesMax descendants, of what is beyond these.
//
// Thread safety: all functions from any thread. They block for /proc only, about 5 us for each descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace fpfs {

// What /proc shows of a descriptor that may write.
struct HeldFile {
  dev_t device = 0;  // of its filesystem
  uint64_t inode = 0;
};

constexpr unsigned kDescriptorsMax = 4096, kProcessesMax = 256;

// The process of this thread.
bool holds(pid_t thread, const HeldFile& file);
// One that descends from it.
bool has_descendant_that_holds(pid_t thread, const HeldFile& file);

}  // namespace fpfs
