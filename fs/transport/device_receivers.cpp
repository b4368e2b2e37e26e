#include "fs/transport/device_receivers.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/file/file.h"
#include "fs/nodes/open_handles.h"

namespace fpfs {
namespace {

// An epoll set of which the kernel wakes one waiter for a request; none: it could not be made.
FileDescriptor watch_requests(int descriptor) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event requests{EPOLLIN | EPOLLEXCLUSIVE, {}};
  if (epoll.is_open() && ::epoll_ctl(epoll.number(), EPOLL_CTL_ADD, descriptor, &requests) != 0) epoll.reset();
  return epoll;
}

// Of requests since the last of a kind: whether one was.
void count_down(std::atomic<int>& left, bool is_one) {
  constexpr int kOthersBetween = 16;
  const int before = left.load(std::memory_order_relaxed);
  if (is_one)
    left.store(kOthersBetween, std::memory_order_relaxed);
  else if (before > 0)
    left.store(before - 1, std::memory_order_relaxed);
}

bool set_blocking(int descriptor, bool blocks) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0) return false;
  return ::fcntl(descriptor, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) == 0;
}

}  // namespace

void DeviceReceivers::serve(Worker& worker) {
  bool goes_on = true;
  while (goes_on && !handler_.is_stopping()) {
    if (worker.request.payload == nullptr) worker.request.payload = buffers_.try_take();
    if (worker.request.payload == nullptr) {
      // It may take long until one is free; somebody else has to receive then.
      retire(worker);
      worker.request.payload = buffers_.take();
    }
    become(worker);
    call_another();
    size_t length = 0;
    goes_on = receive(worker, length);
    if (length == 0) continue;
    if (is_asked_by_one() && !has_found_more(worker)) {
      leave_unserved(worker);
    } else if (!may_stay(worker)) {
      retire(worker);
      call_another();
    }
    goes_on = handler_.handle(worker, length);
    worker.awaits_more = worker.awaits_more && worker.request.stream == 0;
    answered(worker.request);  // or left to somebody else
    if (receivers_.load(std::memory_order_relaxed) > wanted()) retire(worker);
  }
  retire(worker);
  if (receivers_.load() == 0) wake_one();
  worker.epoll.reset();
  leave_place(worker);
}

void DeviceReceivers::answered(RequestContext& request) {
  if (request.stream != 0) streams_.handled(std::exchange(request.stream, 0));
}

// When it is not one already.
void DeviceReceivers::become(Worker& worker) {
  if (worker.receives.load(std::memory_order_relaxed) || try_become(worker)) return;
  worker.epoll.reset();
  leave_place(worker);
  MutexLock lock(mutex_);
  others_.fetch_add(1);
  while (!try_become(worker)) {
    if (handler_.is_stopping()) break;
    wanted_changed_.wait(mutex_);
  }
  others_.fetch_sub(1);
}

// False: there are as many as there are to be.
bool DeviceReceivers::try_become(Worker& worker) {
  unsigned receivers = receivers_.load(std::memory_order_relaxed);
  do {
    if (receivers >= wanted()) return false;
  } while (!receivers_.compare_exchange_weak(receivers, receivers + 1));
  worker.receives.store(true);
  return true;
}

// When it is one: also by who finds it caught in a call (give_up_requests()). Another worker takes the place when
// nobody else waits for requests.
void DeviceReceivers::retire(Worker& worker) {
  if (leave(worker)) wake_one();
}

// When it is one. True: it was the last.
bool DeviceReceivers::leave(Worker& worker) {
  return worker.receives.exchange(false) && receivers_.fetch_sub(1) == 1;
}

// When there are too few, and somebody waits to become one. That one calls the next. (While little is read and written,
// receivers that have a request in hand come back sooner than others wake up: they count.)
void DeviceReceivers::call_another() {
  const unsigned others = others_.load(std::memory_order_relaxed);
  if (moves_little() ? others + kReceivers <= workers_ : others == 0) return;
  if (receivers_.load(std::memory_order_relaxed) < wanted()) wake_one();
}

// Of those who wait to become receivers.
void DeviceReceivers::wake_one() {
  { const MutexLock lock(mutex_); }  // who has just looked waits by now
  wanted_changed_.notify_one();
}

// The worker is the only receiver, of who asks alone.
bool DeviceReceivers::serves_alone(const Worker& worker) const {
  return is_asked_by_one() && worker.receives.load(std::memory_order_relaxed) &&
         receivers_.load(std::memory_order_relaxed) == 1;
}

// A thread may have several requests under way (asynchronous I/O): then one waits behind the one in hand. Not so behind
// others than these: what the kernel sends on its own comes at any time.
bool DeviceReceivers::has_found_more(const Worker& worker) {
  const uint32_t opcode = header_of(worker).opcode;
  if ((opcode != wire::kOpcodeRead && opcode != wire::kOpcodeWrite) || !is_request_there()) return false;
  caller_.start_anew();
  call_another();
  return true;
}

bool DeviceReceivers::is_request_there() const {
  pollfd descriptor{handler_.descriptor(), POLLIN, 0};
  return ::poll(&descriptor, 1, 0) > 0;
}

// It retires, and calls nobody: it may be back before another request comes. The looker calls somebody when it is not.
void DeviceReceivers::leave_unserved(Worker& worker) {
  worker.is_free = others_.load(std::memory_order_relaxed) > 0;
  (void)leave(worker);
  looker_.goes_on();
}

// The looker's: after who gives way, and whether anybody receives who should. (A receiver that counts may have something
// in hand as well, since there were more.)
bool DeviceReceivers::look(uint64_t now_ns) {
  const unsigned received = received_.load();
  const bool is_served = waiting_.load() > 0 || !(is_asked_by_one() || receivers_.load() == 0);
  if (!is_served && received == received_before_) {
    caller_.start_anew();
    wake_one();
  }
  received_before_ = received;
  const bool gives_way = give_way_.look(now_ns);
  return gives_way || !is_served;
}

unsigned DeviceReceivers::processors() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 2;  // more than a cpu_set_t holds
  return static_cast<unsigned>(CPU_COUNT(&allowed));
}

bool DeviceReceivers::look_for_next(Worker& worker) {
  const bool is_of_stream = worker.awaits_more && streams_.active() == 1;
  BusyPoll& busy_poll = worker.awaits_more && worker.is_behind_short ? worker.busy_poll_behind_short : worker.busy_poll;
  if (!looks_ || worker.binding.is_bound() || !(is_of_stream || serves_alone(worker)) || !busy_poll.is_worth_it())
    return false;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  pollfd descriptor{handler_.descriptor(), POLLIN, 0};
  const uint64_t until = monotonic_ns() + BusyPoll::kLookNs;
  bool found = false;
  while (!found && monotonic_ns() < until) found = ::poll(&descriptor, 1, 0) != 0;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  busy_poll.looked(found);
  return found;
}

// With a write in hand that its caller waits for: who closes files in execve(2) holds a lock that readers of its files in
// /proc wait for. (Pages of the cache are written then, too, and by others than who wrote into them.)
void DeviceReceivers::take_place(Worker& worker, const wire::Flow& flow) {
  constexpr unsigned kFollowedEvery = 2;  // of those who did not come first
  RequestContext& request = worker.request;
  const bool is_only_stream = gives_way_ && worker.awaits_more && !flow.is_of_pages && streams_.active() == 1;
  if (is_only_stream && !worker.is_behind_short) place_.came(flow.handle, monotonic_ns());
  const bool is_beside = is_only_stream && place_.is_beside();
  const bool stayed = is_beside && request.elsewhere != nullptr;  // else it gave way for too long, or was not beside
  if (!stayed) leave_place(worker);
  if (!is_beside || (stayed && (give_way_.was_taken() || ++worker.followed < kFollowedEvery))) return;
  // Who has moved may do so again.
  worker.followed = worker.binding.follow(header_of(worker).pid) ? kFollowedEvery : 0;
  request.elsewhere = worker.binding.is_bound() ? &worker.binding.elsewhere() : nullptr;
}

void DeviceReceivers::leave_place(Worker& worker) {
  worker.request.elsewhere = nullptr;
  worker.binding.release();
}

// Who is bound waits for a moment only: what else comes to that processor meanwhile could keep it.
bool DeviceReceivers::wait_beside(Worker& worker) {
  constexpr timespec kPause{0, 2'000'000};
  if (!worker.binding.is_bound()) return false;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  pollfd descriptor{handler_.descriptor(), POLLIN, 0};
  const bool has_come = ::ppoll(&descriptor, 1, &kPause, nullptr) != 0;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (!has_come) leave_place(worker);
  return has_come;
}

bool DeviceReceivers::wait_for_request(Worker& worker) {
  if (!worker.epoll.is_open()) worker.epoll = watch_requests(handler_.descriptor());
  waiting_.fetch_add(1, std::memory_order_relaxed);
  epoll_event event;
  pollfd descriptor{handler_.descriptor(), POLLIN, 0};
  const int seen =
      worker.epoll.is_open() ? ::epoll_wait(worker.epoll.number(), &event, 1, -1) : ::poll(&descriptor, 1, -1);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return seen > 0;
}

// False: not now, as somebody reads with memory of a file in hand, which must not be held while there is nothing.
bool DeviceReceivers::let_reads_block() {
  if (reads_block_.load(std::memory_order_relaxed)) return true;
  MutexLock lock(reading_mutex_);
  if (landing_reads_ > 0) return false;
  reads_block_ = set_blocking(handler_.descriptor(), true);
  return reads_block_;
}

bool DeviceReceivers::begin_landing_read() {
  MutexLock lock(reading_mutex_);
  if (reads_block_ && !set_blocking(handler_.descriptor(), false)) return false;
  reads_block_ = false;
  ++landing_reads_;
  return true;
}

void DeviceReceivers::end_landing_read() {
  MutexLock lock(reading_mutex_);
  --landing_reads_;
}

// Reads one request into the worker's buffer, but for what has landed: then its landing is held. The result of read(2).
ssize_t DeviceReceivers::read_request(Worker& worker, Streams::Claim& claim) {
  Landing& landing = worker.request.landing;
  const bool lands = claim.file() != nullptr && odds_.are_good() && begin_landing_read();
  if (lands) (void)claim.file()->begin_landing(landing);
  std::byte* const memory = worker.request.payload->request;
  ssize_t result = 0;
  if (landing.file == nullptr) {
    result = ::read(handler_.descriptor(), memory, ReceiveBuffers::kRequestSizeMax);
  } else {
    std::array<struct iovec, 4> parts;
    int count = 0;
    parts[count++] = {memory, wire::kWritePayloadOffset};
    for (unsigned i = 0; i < landing.part_count; ++i) parts[count++] = landing.parts[i];
    // What does not fit the landing goes where it would be without one.
    const size_t landed = wire::kWritePayloadOffset + landing.capacity;
    if (landed < ReceiveBuffers::kRequestSizeMax)
      parts[count++] = {memory + landed, ReceiveBuffers::kRequestSizeMax - landed};
    result = ::readv(handler_.descriptor(), parts.data(), count);
  }
  const int failure = errno;
  if (lands) end_landing_read();
  if (result < 0 && landing.file != nullptr) landing.file->cancel_landing(landing);
  errno = failure;
  return result;
}

// `length` stays 0 when there was no request. False at the end of the connection.
bool DeviceReceivers::receive(Worker& worker, size_t& length) {
  Streams::Claim claim;
  ssize_t result = 0;
  const bool is_there = look_for_next(worker) || wait_beside(worker);
  if (!may_land() && let_reads_block()) {
    worker.epoll.reset();
    waiting_.fetch_add(1, std::memory_order_relaxed);
    result = read_request(worker, claim);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  } else {
    // A landing is taken when the request is there, so that it is held during the copy only.
    if (!is_there && !wait_for_request(worker)) return true;
    if (!discards_) streams_.expect(claim);
    result = read_request(worker, claim);
  }
  if (result >= 0) {
    length = static_cast<size_t>(result);
    note_received(worker, claim, length);
    return true;
  }
  const int failure = errno;
  streams_.gave_up(claim);
  if (handler_.is_stopping()) return false;
  if (failure == EAGAIN) worker.awaits_more = false;  // another has it
  // ENOENT: the request was interrupted before it reached us. ENODEV: unmounted, or the connection was aborted.
  if (failure == EINTR || failure == EAGAIN || failure == ENOENT) return true;
  handler_.connection_ended();
  if (failure != ENODEV) log(LogLevel::kError, "reading /dev/fuse failed with errno {}; the mount ends", failure);
  return false;
}

void DeviceReceivers::wake_all() {
  // Whoever looked before the handler began to stop is waiting by now.
  { const MutexLock lock(mutex_); }
  wanted_changed_.notify_all();
}

// Whether the write needs no copy when it lands where the claim's would have. Of streams whose writes are whole chunks
// (`dd bs=1M`) any can have another's place.
bool DeviceReceivers::has_come_true(const Streams::Claim& claim, const wire::Flow& flow) {
  const File& expected = *claim.file();
  return claim.is(flow.handle, flow.offset) ||
         (expected.is_whole_chunk(claim.offset(), flow.bytes) && expected.is_whole_chunk(flow.offset, flow.bytes));
}

// Whoever reads or writes much is a stream, with what is short in between. Keeps the landing when the request is the write
// that was expected.
void DeviceReceivers::note_received(Worker& worker, Streams::Claim& claim, size_t length) {
  const std::byte* const request = worker.request.payload->request;
  const wire::Flow flow = wire::flow_of({request, std::min(length, wire::kWritePayloadOffset)});
  const bool is_write = flow.kind == wire::Flow::Kind::kWrite;
  const bool reads_much = flow.kind == wire::Flow::Kind::kRead && flow.bytes > File::kLandingWriteMin;
  const bool writes_much = is_write && length > File::kLandingWriteMin;
  bool came_true = writes_much && claim.file() != nullptr && has_come_true(claim, flow);
  const bool moves_much = writes_much || reads_much;
  const FileOffset end = flow.offset + flow.bytes;
  const bool may_be_between = is_write && !flow.is_of_pages && writes_seen_.load(std::memory_order_relaxed) > 0;
  bool is_of_stream = moves_much;
  if (moves_much)
    streams_.received(claim, flow.handle, writes_much ? OpenHandles::file(flow.handle).file : nullptr, end);
  else if (may_be_between)
    is_of_stream = streams_.received_short(claim, flow.handle, flow.offset, end);
  else
    streams_.gave_up(claim);
  worker.request.stream = is_of_stream ? flow.handle : 0;
  worker.awaits_more = is_write && is_of_stream;
  worker.is_behind_short = !writes_much;
  if (flow.kind == wire::Flow::Kind::kEnd) streams_.end(flow.handle);
  if (may_serve_alone_) caller_.came(header_of(worker), monotonic_ns());
  received_.fetch_add(1);
  count_down(transfers_seen_, moves_much);
  count_down(writes_seen_, writes_much);
  Landing& landing = worker.request.landing;
  if (landing.file != nullptr) {
    File* const file = is_write ? OpenHandles::file(flow.handle).file.get() : nullptr;
    const bool is_in_place = file == landing.file.get() && flow.offset == landing.offset;
    came_true = is_in_place || (file != nullptr && file->take_landing(landing, flow.offset, flow.bytes));
    if (!came_true) leave_landing(worker, length);
  }
  if (writes_much && claim.file() != nullptr) odds_.guessed(came_true);
  call_another();
  take_place(worker, flow);
}

// Moves what came there to the buffer.
void DeviceReceivers::leave_landing(Worker& worker, size_t length) {
  Landing& landing = worker.request.landing;
  std::byte* const memory = worker.request.payload->request;
  size_t position = wire::kWritePayloadOffset;
  for (unsigned i = 0; i < landing.part_count && position < length; ++i) {
    const size_t part = std::min(landing.parts[i].iov_len, length - position);
    std::memcpy(memory + position, landing.parts[i].iov_base, part);
    position += part;
  }
  landing.file->cancel_landing(landing);
}

// Some requests never wait for a drive: what they start is finished by other threads. Another request that is there
// already need not wait for this one's copy either.
bool DeviceReceivers::may_stay(Worker& worker) {
  const uint32_t opcode = header_of(worker).opcode;
  const bool others_wait = waiting_.load(std::memory_order_relaxed) > 0;
  worker.is_free = moves_little() && (others_wait || others_.load(std::memory_order_relaxed) > 0);
  if (worker.is_free && wire::asks_for_commit(opcode)) return false;
  switch (opcode) {
    case wire::kOpcodeWrite:
      if (worker.request.landing.file != nullptr || discards_) return true;  // no copy
      break;
    case wire::kOpcodeRead:
    case wire::kOpcodeGetAttributes:  // of an inode that is in memory, as the node holds it open
    case wire::kOpcodeGetXattr:
    case wire::kOpcodeFlush:
    case wire::kOpcodeRelease:
    case wire::kOpcodeForget:
    case wire::kOpcodeForgetMany:
      break;
    default:
      return false;
  }
  if (others_wait) return true;
  return !is_request_there();
}

}  // namespace fpfs
