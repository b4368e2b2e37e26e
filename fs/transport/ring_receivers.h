// RingReceivers: the workers that wait for requests at rings (fs/transport/request_ring.h), where the kernel offers
// that.
//
//   worker:  wait at its ring → copy the request out of its entry → have it handled → wait until it is answered, by
//      ↑                                                                             whomever
//      └──────────────────── the answer is handed over with the same system call ────────┘
//
// Each belongs to the queue of one processor, and stays on that processor with three exceptions:
// - While it answers long reads: a reader goes on while the kernel reads ahead for it, so what is copied for it is copied
//   beside it.
// - Behind a commit of its own, which has mostly waited for a drive.
// - While one thread asks for much at its queue and changes nothing (`ls`).
// In the last two cases it looks for the next request for a while before it sleeps (fs/transport/busy_poll.h), unless it is
// still on its callers' processor. It does so at about half of the queues at once at most, as each look takes a processor.
//
// An entry is with the kernel only while its worker waits, so no request ever is behind one that blocks: whoever takes the
// last worker that waits at a queue adds another, up to kWorkersMax, and up to what the memory for rings allows: each has
// an entry and a receive buffer, which take twice the longest request. Beyond that, requests wait in the kernel.
//
// Thread safety: serve() on each worker's thread, the rest from the one that answers INIT.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "fs/transport/receive_buffers.h"
#include "fs/transport/request_ring.h"
#include "fs/transport/sole_caller.h"
#include "fs/transport/worker.h"

namespace fpfs {

class RingReceivers {
 public:
  // `memory`: bytes for all workers' entries and buffers; each queue has kWorkersMin workers all the same. `discards`:
  // writes go nowhere (null_write), so that none costs a copy.
  RingReceivers(RequestHandler& handler, ReceiveBuffers& buffers, uint64_t memory, bool discards)
      : handler_(handler), buffers_(buffers), memory_(memory), discards_(discards) {}

  // The most workers there can be on this machine, when the longest request has `payload_bytes`.
  static unsigned workers_max(uint64_t memory, size_t payload_bytes);
  // Before `reply` is sent: makes the first workers of each queue. False: some got no ring, so that nothing may be
  // agreed; the reason was logged.
  bool prepare(const wire::InitOut& reply);
  // After that: the workers begin, or end when nothing was agreed.
  void open(bool agreed);
  // A worker's life.
  void serve(Worker& worker);
  // Null before prepare().
  RingEntries* entries() { return entries_.get(); }

 private:
  struct alignas(64) Queue {           // each processor has a cache line of its own
    std::atomic<unsigned> waiting{0};  // workers
    std::atomic<unsigned> workers{0};
    std::atomic<RingEntry*> spare{nullptr};  // made for a worker for which there was no thread
    // Who came back last: the kernel gives it the next request (fuse_uring_ent_avail(), fs/fuse/dev_uring.c).
    std::atomic<const Worker*> newest{nullptr};
    SoleCaller looker;                      // of requests that change nothing
    std::atomic<bool> is_looked_at{false};  // its workers look for the next request, and mostly find it
  };
  enum class State : uint8_t { kPreparing, kOpen, kRefused };
  bool add_worker(unsigned queue);
  bool may_start(const Status& made);
  class Place;
  static void note(Queue& queue, const wire::InHeader& header);
  bool begin_looking(Queue& queue);
  void end_looking(Queue& queue);
  void look_for_next(Worker& worker, Queue& queue, Place& place, RequestRing& ring);
  size_t receive(Worker& worker);

  static constexpr unsigned kWorkersMin = 2;  // at each queue
  static constexpr unsigned kWorkersMax = 64;
  RequestHandler& handler_;
  ReceiveBuffers& buffers_;
  const uint64_t memory_;
  const bool discards_;
  unsigned workers_max_ = 0;
  std::atomic<unsigned> workers_{0};  // of all queues
  std::unique_ptr<RingEntries> entries_;
  std::vector<Queue> queues_;        // one for each processor
  std::vector<std::byte> anywhere_;  // a cpu_set_t: the processors that this process may use
  unsigned looked_at_max_ = 0;       // queues; none where this process may use one processor only
  std::atomic<unsigned> looked_at_{0};
  Mutex mutex_;
  CondVar changed_;
  State state_ FPFS_GUARDED_BY(mutex_) = State::kPreparing;
  unsigned made_ FPFS_GUARDED_BY(mutex_) = 0;
  unsigned failed_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
