// RequestRing: FUSE over io_uring (Linux 6.14, where fs.fuse's enable_uring is on; facts from 6.18,
// fs/fuse/dev_uring.c): an answer goes and the next request comes with one system call, where /dev/fuse needs
// epoll_wait, readv and writev, and they come to the processor that the caller runs on.
//
// The kernel has a queue for each processor. A worker of the channel belongs to one of them and has one entry there
// (fs/transport/ring_entry.h). It offers the entry only while it waits, so that no request is behind one that blocks;
// whoever takes the last worker that waits at a queue adds another.
//
// INIT, FORGET, INTERRUPT and notifications keep to /dev/fuse.
//
// Thread safety: one thread makes and uses it.
#pragma once

#include <memory>

#include "engine/base/status.h"
#include "fs/transport/ring_entry.h"

namespace fpfs {

class RequestRing {
 public:
  // For requests of the mount that /dev/fuse was opened for as `descriptor`. kUnsupported: the program was built
  // without liburing. kSystem: the kernel does not let this process have one.
  static Result<std::unique_ptr<RequestRing>> create(int descriptor);
  ~RequestRing();
  RequestRing(const RequestRing&) = delete;
  RequestRing& operator=(const RequestRing&) = delete;

  // The queues that the kernel wants to see served: one for each processor that the machine could have.
  static unsigned queue_count();

  enum class Event : uint8_t { kRequest, kInterrupted, kEnd };
  // Hands over the answer in `entry` (its first time, there is none), and waits for the next request. kInterrupted: a
  // signal came; call again. kEnd: unmounted, or the connection was aborted.
  Event next(RingEntry& entry);
  // Hands over the answer as next() does, and returns. next() follows; may be left out.
  void hand_over(RingEntry& entry);
  // Behind hand_over(): next() would not wait. No system call.
  bool has_come() const;

 private:
  struct Ring;
  RequestRing(std::unique_ptr<Ring> ring, int descriptor);
  void offer(RingEntry& entry);
  const std::unique_ptr<Ring> ring_;
  const int descriptor_;
  bool is_offered_ = false;
};

}  // namespace fpfs
