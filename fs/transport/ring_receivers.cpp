#include "fs/transport/ring_receivers.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "fs/nodes/open_handles.h"

namespace fpfs {
namespace {

constexpr std::chrono::milliseconds kRingRetry{100};

// Of the calling thread; as a cpu_set_t, which has the size of the machine.
std::vector<std::byte> processors_allowed() {
  std::vector<std::byte> set(CPU_ALLOC_SIZE(RequestRing::queue_count()));
  (void)pthread_getaffinity_np(pthread_self(), set.size(), reinterpret_cast<cpu_set_t*>(set.data()));
  return set;
}

}  // namespace

// Where the calling thread runs. Callers wait for their answers, so their processor is the one that is free, and waking
// another takes longer (docs/benchmarks/row09.md). Not so for some requests. Who reads a long way: what is read ahead is
// copied on another processor meanwhile. Who waits for a drive: where its answer comes the thread that waited can go on at
// once. And who looks for the next request cannot do so where its caller is to run. All of it is a wish: a processor that is
// not there, or not for this process, cannot be had.
class RingReceivers::Place {
 public:
  // `anywhere` as a cpu_set_t; it outlives this.
  Place(unsigned processor, const std::vector<std::byte>& anywhere)
      : at_callers_(anywhere.size()), anywhere_(anywhere) {
    CPU_SET_S(processor, at_callers_.size(), reinterpret_cast<cpu_set_t*>(at_callers_.data()));
    move(at_callers_);
  }

  // A request has come.
  void suit(const wire::Flow& flow) {
    if (flow.kind == wire::Flow::Kind::kRead && flow.bytes > File::kLandingWriteMin) {
      leave_callers();
      has_waited_ = false;
    } else if (others_left_ > 0 && --others_left_ == 0) {
      move(at_callers_);
      has_waited_ = false;
    }
  }

  // Until so many requests have come for which nobody says so.
  void leave_callers() {
    constexpr unsigned kOthersBetween = 16;
    if (others_left_ == 0) move(anywhere_);
    others_left_ = kOthersBetween;
  }

  // It has waited for a drive.
  void waited() {
    leave_callers();
    has_waited_ = true;
  }
  bool has_waited() const { return has_waited_; }  // and has left its callers for that

 private:
  static void move(const std::vector<std::byte>& to) {
    (void)pthread_setaffinity_np(pthread_self(), to.size(), reinterpret_cast<const cpu_set_t*>(to.data()));
  }

  std::vector<std::byte> at_callers_;
  const std::vector<std::byte>& anywhere_;
  unsigned others_left_ = 0;  // requests until it is at its callers' again
  bool has_waited_ = false;
};

unsigned RingReceivers::workers_max(uint64_t memory, size_t payload_bytes) {
  const unsigned queues = RequestRing::queue_count();
  const uint64_t fit = memory / (payload_bytes + ReceiveBuffers::kRequestSizeMax);
  return static_cast<unsigned>(
      std::clamp<uint64_t>(fit, uint64_t{queues} * kWorkersMin, uint64_t{queues} * kWorkersMax));
}

// While INIT is answered: makes the first workers of each queue. False: some got no ring, nothing is to be agreed.
bool RingReceivers::prepare(const wire::InitOut& reply) {
  const unsigned queues = RequestRing::queue_count();
  const size_t payload_bytes = wire::ring_payload_bytes(reply);
  workers_max_ = workers_max(memory_, payload_bytes);
  entries_ = std::make_unique<RingEntries>(size_t{queues} * kWorkersMax, payload_bytes);
  queues_ = std::vector<Queue>(queues);
  anywhere_ = processors_allowed();  // here: a thread begins where the one runs that made it
  const int processors = CPU_COUNT_S(anywhere_.size(), reinterpret_cast<const cpu_set_t*>(anywhere_.data()));
  looked_at_max_ = static_cast<unsigned>(processors) / 2;
  unsigned started = 0;
  for (unsigned queue = 0; queue < queues; ++queue)
    for (unsigned i = 0; i < kWorkersMin; ++i) started += add_worker(queue) ? 1 : 0;
  const MutexLock lock(mutex_);
  while (made_ + failed_ < started) changed_.wait(mutex_);
  return failed_ == 0 && started == queues * kWorkersMin;
}

void RingReceivers::open(bool agreed) {
  {
    const MutexLock lock(mutex_);
    state_ = agreed ? State::kOpen : State::kRefused;
  }
  changed_.notify_all();
}

bool RingReceivers::add_worker(unsigned queue) {
  Queue& at = queues_[queue];
  RingEntry* entry = nullptr;
  const bool is_allowed = workers_.fetch_add(1) < workers_max_;
  if (at.workers.fetch_add(1) < kWorkersMax && is_allowed) {
    entry = at.spare.exchange(nullptr);
    if (entry == nullptr) {
      Result<RingEntry*> made = entries_->add(queue);
      if (made.is_ok()) entry = *made;
    }
    if (entry != nullptr && handler_.start_ring_worker(*entry)) return true;
  }
  at.workers.fetch_sub(1);
  workers_.fetch_sub(1);
  if (entry != nullptr) at.spare = entry;
  return false;
}

// Called by each worker once it has a ring, or could not make one.
bool RingReceivers::may_start(const Status& made) {
  const MutexLock lock(mutex_);
  if (!made.is_ok())
    log(LogLevel::kWarning, "{}: {}",
        state_ == State::kPreparing ? "requests do not come through io_uring" : "a worker has to wait for its io_uring",
        made.message());
  ++(made.is_ok() ? made_ : failed_);
  changed_.notify_all();
  while (state_ == State::kPreparing) changed_.wait(mutex_);
  return state_ == State::kOpen;
}

void RingReceivers::serve(Worker& worker) {
  Result<std::unique_ptr<RequestRing>> ring = RequestRing::create(handler_.descriptor());
  if (!may_start(ring.status())) return;
  // One that was added later, when the process had no descriptor left. The answer of a caught request may be waiting in
  // its entry, so it does not give up.
  for (; !ring.is_ok(); ring = RequestRing::create(handler_.descriptor())) {
    if (handler_.is_stopping()) return;
    std::this_thread::sleep_for(kRingRetry);
  }
  RingEntry& entry = *worker.entry;
  Queue& queue = queues_[entry.queue()];
  Place place(entry.queue(), anywhere_);
  entry.wait_until_answered();  // one that another worker was caught with
  bool goes_on = true;
  while (goes_on && !handler_.is_stopping()) {
    queue.waiting.fetch_add(1);
    queue.newest.store(&worker, std::memory_order_relaxed);
    if (place.has_waited() || queue.looker.is_there())
      look_for_next(worker, queue, place, **ring);
    else if (queue.is_looked_at.load(std::memory_order_relaxed))
      end_looking(queue);
    RequestRing::Event event;
    do event = (*ring)->next(entry);
    while (event == RequestRing::Event::kInterrupted && !handler_.is_stopping());
    const bool was_last = queue.waiting.fetch_sub(1) == 1;
    if (event != RequestRing::Event::kRequest) break;
    if (was_last) add_worker(entry.queue());
    entry.begin_request();
    if (worker.request.payload == nullptr) worker.request.payload = buffers_.take();
    if (const size_t length = receive(worker); length > 0) {
      worker.is_free = true;  // there is another, or was_last has made one
      place.suit(wire::flow_of({worker.request.payload->request, std::min(length, wire::kWritePayloadOffset)}));
      note(queue, header_of(worker));
      goes_on = handler_.handle(worker, length);
      if (worker.has_waited) place.waited();
    } else {
      log(LogLevel::kError, "a request's lengths contradict each other; it fails");
      (void)handler_.refuse(entry.unique());
    }
    if (!goes_on || entry.is_answered()) continue;
    // The handler has what it needs: while this one waits another request may use the buffer.
    worker.request.payload = nullptr;
    entry.wait_until_answered();
  }
}

void RingReceivers::note(Queue& queue, const wire::InHeader& header) {
  wire::only_looks(header.opcode) ? queue.looker.came(header, monotonic_ns()) : queue.looker.start_anew();
}

// False: as many queues as may be are looked at already.
bool RingReceivers::begin_looking(Queue& queue) {
  if (queue.is_looked_at.load(std::memory_order_relaxed)) return true;
  if (looked_at_.load(std::memory_order_relaxed) >= looked_at_max_) return false;
  if (looked_at_.fetch_add(1) < looked_at_max_ && !queue.is_looked_at.exchange(true)) return true;
  looked_at_.fetch_sub(1);
  return queue.is_looked_at.load();
}

void RingReceivers::end_looking(Queue& queue) {
  if (queue.is_looked_at.exchange(false)) looked_at_.fetch_sub(1);
}

// Another worker of the queue gets the processor when it needs it: a caller may have two requests under way, as the kernel
// does not wait for RELEASE. Where others want it, too, it is no place to look.
void RingReceivers::look_for_next(Worker& worker, Queue& queue, Place& place, RequestRing& ring) {
  constexpr unsigned kPausesBetween = 16;    // some microsecond
  constexpr uint64_t kOthersMaxNs = 30'000;  // what another worker takes the processor for is less
  if (!worker.busy_poll.is_worth_it() || !begin_looking(queue)) return;
  if (!place.has_waited()) place.leave_callers();  // else it has, and is back unless it waits again
  // Where its callers run it would be in their way. It may run elsewhere once it was woken.
  if (static_cast<unsigned>(sched_getcpu()) == worker.entry->queue()) return end_looking(queue);
  ring.hand_over(*worker.entry);
  uint64_t now = monotonic_ns();
  const uint64_t until = now + BusyPoll::kLookNs;
  bool found = ring.has_come();
  while (!found && now < until) {
    if (queue.newest.load(std::memory_order_relaxed) != &worker) return end_looking(queue);  // not for this one
    for (unsigned i = 0; i < kPausesBetween && !found; ++i) {
      BusyPoll::pause();
      found = ring.has_come();
    }
    if (found) break;
    const uint64_t before = monotonic_ns();
    sched_yield();
    now = monotonic_ns();
    if (now > before + kOthersMaxNs) {
      worker.busy_poll.disturbed();
      return end_looking(queue);
    }
    found = ring.has_come();
  }
  worker.busy_poll.looked(found);
  if (!found) end_looking(queue);
}

// The request in the worker's entry goes to its buffer, as if it was read from /dev/fuse: all handlers see the copy
// only, because the kernel may use the entry again while one of them is caught in a call. Data that continues the
// stream of its file goes to the engine's memory right away.
size_t RingReceivers::receive(Worker& worker) {
  RingEntry& entry = *worker.entry;
  size_t operation_bytes = 0, payload_bytes = 0;
  if (!entry.measure(operation_bytes, payload_bytes)) return 0;
  std::byte* const request = worker.request.payload->request;
  wire::InHeader header;
  std::memcpy(&header, entry.header().in_out, sizeof header);
  if (header.length > ReceiveBuffers::kRequestSizeMax) return 0;
  header.unique = entry.unique();
  std::memcpy(request, &header, sizeof header);
  std::memcpy(request + sizeof header, entry.header().operation, operation_bytes);
  std::byte* const behind = request + sizeof header + operation_bytes;
  size_t landed = 0;
  Landing& landing = worker.request.landing;
  if (header.opcode == wire::kOpcodeWrite && payload_bytes > File::kLandingWriteMin) {
    const std::shared_ptr<File>& file = OpenHandles::file(wire::write_handle({request, header.length})).file;
    if (file->begin_landing(landing) && !wire::is_write_at({request, header.length}, landing.offset))
      file->cancel_landing(landing);
    for (unsigned i = 0; landing.file != nullptr && i < landing.part_count && landed < payload_bytes; ++i) {
      const size_t part = std::min(landing.parts[i].iov_len, payload_bytes - landed);
      std::memcpy(landing.parts[i].iov_base, entry.payload().data() + landed, part);
      landed += part;
    }
  }
  if (!(discards_ && header.opcode == wire::kOpcodeWrite))
    std::memcpy(behind + landed, entry.payload().data() + landed, payload_bytes - landed);
  return header.length;
}

}  // namespace fpfs
