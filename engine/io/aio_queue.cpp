#include "engine/io/aio_queue.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/units.h"
#include "engine/io/awaited_thread.h"
#include "engine/io/named_thread.h"
#include "engine/io/stall_watch.h"

namespace fpfs {
namespace {

constexpr unsigned kDepthMax = 4096;
// With fewer than this many transfers on the drive it may run dry while the next request is prepared (hashing 1 MiB
// takes about as long as a fast drive takes to write it), so each is submitted as soon as it is prepared. Otherwise
// several share one io_submit (QueueSettings::batch): few, so that completions are not left lying for long.
constexpr unsigned kBusyInFlight = 2;
constexpr unsigned kRefusalsMax = 1000;  // of kRefusalPause each
constexpr struct timespec kRefusalPause = {0, 1'000'000};

void signal_event(int event) {
  const uint64_t one = 1;
  ssize_t count = -1;
  do {
    count = ::write(event, &one, sizeof one);
  } while (count < 0 && errno == EINTR);
  FPFS_CHECK(count == sizeof one, "an eventfd takes a wake-up");
}

const char* name_of(IoRequest::Kind kind) {
  return kind == IoRequest::Kind::kRead ? "read" : "write";
}

void add(std::atomic<uint64_t>& counter, uint64_t value) {
  counter.fetch_add(value, std::memory_order_relaxed);
}
void subtract(std::atomic<uint64_t>& counter, uint64_t value) {
  counter.fetch_sub(value, std::memory_order_relaxed);
}

}  // namespace

// --- life ------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<AioQueue>> AioQueue::create(MemberIndex member, const QueueSettings& settings) {
  const unsigned depth = settings.depth;
  if (depth == 0 || depth > kDepthMax)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("queue depth {} is not between 1 and {}", depth, kDepthMax));
  FPFS_CHECK(settings.batch > 0 && settings.transfer_max % kIoAlignment == 0, "what a queue can do");
  io_context_t context = nullptr;
  if (const int result = ::io_setup(static_cast<int>(depth), &context); result < 0) {
    const std::string operation = fmt::format("set up asynchronous I/O of depth {} for member {}", depth, member);
    if (result == -EAGAIN)
      return Status::error(StatusCode::kSystem, operation + ": the system's limit of such requests is used up; raise " +
                                                    "sysctl fs.aio-max-nr, for example to 1048576");
    if (result == -ENOSYS)
      return Status::error(StatusCode::kUnsupported, operation + ": this kernel or container has no io_setup(2); " +
                                                         "allow it there or enable CONFIG_AIO");
    return Status::from_errno(-result, operation);
  }
  FileDescriptor event(::eventfd(0, EFD_CLOEXEC));
  if (!event.is_open()) {
    const Status status = Status::from_errno(errno, "make an eventfd");
    ::io_destroy(context);
    return status;
  }
  return std::unique_ptr<AioQueue>(new AioQueue(member, settings, context, std::move(event)));
}

AioQueue::AioQueue(MemberIndex member, const QueueSettings& settings, io_context_t context, FileDescriptor event)
    : member_(member),
      settings_(settings),
      context_(context),
      event_(std::move(event)),
      slots_(settings.depth),
      events_(settings.depth) {
  free_slots_.reserve(settings.depth);
  ready_.reserve(settings.depth);
  for (Slot& slot : slots_) free_slots_.push_back(&slot);
  thread_ = start_thread(fmt::format("fpfs-aio-{}", member), [this] { run(); });
}

AioQueue::~AioQueue() {
  stopping_.store(true);
  signal_event(event_.number());
  thread_.join();
  ::io_destroy(context_);
}

// --- arrival and sleep -----------------------------------------------------------------------------------------------
//
// submit():  (1) push onto inbox_      (2) read state_, signal when it is kAsleep
// sleep():   (3) set kAsleep           (4) read inbox_, sleep when it is empty
//
// All four are sequentially consistent, so they happen in one total order that keeps (1) before (2) and (3) before (4).
// A wake-up could only be lost if (2) saw kAwake and (4) saw inbox_ empty, that is (2) before (3) and (4) before (1);
// with the two program orders that is a circle. So a submitter pays for a system call only when the thread sleeps or is
// about to, and never when requests come faster than the drive takes them. (With kFull it does not matter what (2) sees:
// something is on the drive, and when that ends, the thread looks at the inbox before it sleeps again.)

void AioQueue::submit(IoRequest& request) {
  add(counted_.waiting, 1);
  IoRequest* head = inbox_.load(std::memory_order_relaxed);
  do {
    request.next = head;
  } while (!inbox_.compare_exchange_weak(head, &request));
  // After the push the request may complete at any moment; it is not touched again. The exchange lets only one of
  // several submitters signal.
  State asleep = State::kAsleep;
  if (state_.load() == asleep && state_.compare_exchange_strong(asleep, State::kAwake)) signal_event(event_.number());
}

void AioQueue::sleep() {
  const bool is_full = free_slots_.empty() && in_flight_ > 0;
  state_.store(is_full ? State::kFull : State::kAsleep);
  if (is_full || (inbox_.load() == nullptr && !stopping_.load())) {
    // Completions that come after the last reap() have added to the counter or will; either way this returns. Those
    // that were reaped before are still in the counter: then this returns once for nothing.
    uint64_t count = 0;
    const ssize_t result = ::read(event_.number(), &count, sizeof count);
    FPFS_CHECK(result == sizeof count || errno == EINTR, "an eventfd can be read");
  }
  state_.store(State::kAwake);
}

// From any thread, while this queue's own may be caught in a system call.
void AioQueue::fail_waiting(const Status& failure) {
  IoList waiting;
  {
    const MutexLock lock(pending_mutex_);
    take_inbox();
    waiting = std::move(pending_);
  }
  while (IoRequest* const next = waiting.pop_front()) {
    IoRequest& request = *next;
    request.done = request.transferred = 0;
    subtract(counted_.waiting, 1);
    complete(request, place(request, failure));
  }
}

uint64_t AioQueue::oldest_transfer_ns() const {
  uint64_t oldest = 0;
  for (const Slot& slot : slots_) {
    const uint64_t began = slot.began_ns.load(std::memory_order_relaxed);
    if (began != 0 && (oldest == 0 || began < oldest)) oldest = began;
  }
  return oldest;
}

// The next request to prepare; null when there is none.
IoRequest* AioQueue::next_pending() {
  const MutexLock lock(pending_mutex_);
  return pending_.pop_front();
}

bool AioQueue::has_pending() {
  const MutexLock lock(pending_mutex_);
  return !pending_.is_empty();
}

// For this thread, to submit or prepare them.
bool AioQueue::others_wait() {
  return !ready_.empty() || inbox_.load(std::memory_order_relaxed) != nullptr || has_pending();
}

void AioQueue::take_inbox() {
  IoList arrived;  // the stack, turned over
  for (IoRequest* request = inbox_.exchange(nullptr); request != nullptr;) {
    arrived.push_front(*request);
    request = std::exchange(request->next, nullptr);
  }
  pending_.append(std::move(arrived));
}

// --- the thread ------------------------------------------------------------------------------------------------------

void AioQueue::run() {
  for (;;) {
    {
      const MutexLock lock(pending_mutex_);
      take_inbox();
    }
    bool progress = false;
    if (repeating_ != nullptr || !repetitions_.empty()) {
      progress = submit_repetition();
    } else {
      progress = prepare_some();
      progress |= submit_ready(ready_.size());
    }
    progress |= reap();
    if (progress) continue;
    if (in_flight_ == 0 && ready_.empty() && repetitions_.empty() && stopping_.load() && inbox_.load() == nullptr &&
        !has_pending())
      return;
    sleep();
  }
}

// Prepares pending requests for the next io_submit. Returns whether it did anything.
bool AioQueue::prepare_some() {
  const size_t batch = in_flight_ < kBusyInFlight ? 1 : settings_.batch;
  bool progress = false;
  while (!free_slots_.empty() && ready_.size() < batch) {
    IoRequest* const next = next_pending();
    if (next == nullptr) break;
    IoRequest& request = *next;
    request.done = request.transferred = 0;
    progress = true;
    if (request.prepare != nullptr) {
      if (Status status = request.prepare(request); !status.is_ok()) {
        subtract(counted_.waiting, 1);
        complete(request, status);
        continue;
      }
    }
    Slot& slot = *free_slots_.back();
    free_slots_.pop_back();
    slot.request = &request;
    slot.continuations = 0;
    slot.repeated = false;
    fill(slot);
  }
  return progress;
}

// Transfers of neighbouring places that are under way together may reach the drive as one request, and one bad sector
// fails them all. A read that failed is therefore repeated once, with nothing else on the drive: then it fails for its
// own reasons only. Writes are not: what they fail for may have lost what lay there.
bool AioQueue::submit_repetition() {
  if (in_flight_ > 0) return false;
  if (repeating_ == nullptr) {
    repeating_ = repetitions_.front();
    repetitions_.pop_front();
    fill(*repeating_);
  }
  return submit_ready(1);
}

// Makes a slot ready for what is left of its request; a repetition before all others.
void AioQueue::fill(Slot& slot) {
  const IoRequest& request = *slot.request;
  const uint32_t left = request.length - request.done;
  const uint64_t position = request.offset + request.done;
  slot.asked = settings_.transfer_max == 0 ? left : std::min(left, settings_.transfer_max);
  (request.kind == IoRequest::Kind::kRead ? io_prep_pread : io_prep_pwrite)(
      &slot.block, request.handle, request.data + request.done, slot.asked, static_cast<long long>(position));
  io_set_eventfd(&slot.block, event_.number());
  slot.block.data = &slot;
  ready_.insert(&slot == repeating_ ? ready_.begin() : ready_.end(), &slot.block);
}

// Gives the first of the ready transfers to the kernel, as many as it takes. Returns whether it took or failed any.
bool AioQueue::submit_ready(size_t count_max) {
  if (count_max == 0) return false;
  const uint64_t now = monotonic_ns();
  const uint64_t coarse_now = monotonic_ns();
  for (size_t i = 0; i < count_max; ++i) {
    auto& slot = *static_cast<Slot*>(ready_[i]->data);
    slot.request->submitted_ns = now;
    slot.began_ns.store(coarse_now, std::memory_order_relaxed);  // also of a call of io_submit that does not return
  }
  const int result = ::io_submit(context_, static_cast<long>(count_max), ready_.data());
  add(counted_.submissions, 1);
  if (result > 0) {
    const auto count = static_cast<unsigned>(result);
    ready_.erase(ready_.begin(), ready_.begin() + count);
    in_flight_ += count;
    refusals_ = 0;
    add(counted_.in_flight, count);
    subtract(counted_.waiting, count);
    return true;
  }
  if (result == -EINTR) return true;
  if (result == 0 || result == -EAGAIN) {
    // The kernel is short of something. With transfers in flight, the next completion is the time to try again: the
    // caller goes to sleep until then. With none, only time helps.
    if (in_flight_ > 0) return false;
    if (++refusals_ < kRefusalsMax) {
      ::nanosleep(&kRefusalPause, nullptr);
      return true;
    }
  }
  // io_submit reports the trouble of the first transfer only; the others have their turn in the next round.
  Slot& slot = *static_cast<Slot*>(ready_.front()->data);
  ready_.erase(ready_.begin());
  refusals_ = 0;
  subtract(counted_.waiting, 1);
  const bool refused = result == 0 || result == -EAGAIN;
  const std::string operation = fmt::format("submit a {}", name_of(slot.request->kind));
  const Status status = refused ? Status::error(StatusCode::kSystem,
                                                operation + ": the kernel takes no asynchronous I/O any more (EAGAIN)")
                                : Status::from_errno(-result, operation);
  finish(slot, place(*slot.request, status));
  return true;
}

bool AioQueue::reap() {
  if (in_flight_ == 0) return false;
  struct timespec no_wait = {0, 0};  // libaio looks at the ring in user space first: an empty one costs no system call
  const int count = ::io_getevents(context_, 0, static_cast<long>(events_.size()), events_.data(), &no_wait);
  if (count == -EINTR) return true;
  FPFS_CHECK(count >= 0, "io_getevents of a live context with valid memory does not fail");
  if (count == 0) return false;
  in_flight_ -= static_cast<unsigned>(count);
  subtract(counted_.in_flight, static_cast<uint64_t>(count));
  for (int i = 0; i < count; ++i) {
    const struct io_event& event = events_[static_cast<size_t>(i)];
    const AwaitedThread::Scope awaited(i + 1 < count || others_wait());
    transferred(*static_cast<Slot*>(event.data), static_cast<int64_t>(event.res));
  }
  return true;
}

// --- outcomes --------------------------------------------------------------------------------------------------------

void AioQueue::transferred(Slot& slot, int64_t result) {
  IoRequest& request = *slot.request;
  slot.began_ns.store(0, std::memory_order_relaxed);
  add(counted_.transfer_ns, monotonic_ns() - request.submitted_ns);
  add(counted_.transfers, 1);
  if (result == -EIO && request.kind == IoRequest::Kind::kRead && !slot.repeated) {
    slot.repeated = true;
    add(counted_.waiting, 1);
    repetitions_.push_back(&slot);
    return;
  }
  if (result < 0)
    return finish(slot, place(request, Status::from_errno(static_cast<int>(-result), name_of(request.kind))));
  FPFS_CHECK(result <= slot.asked, "a transfer moves at most what was asked for");
  request.done += static_cast<uint32_t>(result);
  add(request.kind == IoRequest::Kind::kRead ? counted_.bytes_read : counted_.bytes_written,
      static_cast<uint64_t>(result));
  if (request.done == request.length) return finish(slot, Status::ok());

  if (result < slot.asked) {
    bool go_on = false;
    const Status status = judge_short(request, result == 0 ? kContinuationsMax : slot.continuations, &go_on);
    if (!go_on) return finish(slot, status);
    ++slot.continuations;
  }
  add(counted_.waiting, 1);
  fill(slot);
}

// What a short count means: the end of the file (ok), a pause (*go_on), or a failure.
Status AioQueue::judge_short(const IoRequest& request, unsigned continuations, bool* go_on) {
  const uint64_t position = request.offset + request.done;
  if (request.kind == IoRequest::Kind::kRead) {
    struct stat attributes {};
    if (::fstat(request.handle, &attributes) < 0) return place(request, Status::from_errno(errno, "stat after a read"));
    if (position >= static_cast<uint64_t>(attributes.st_size)) return Status::ok();
  }
  // An odd count can not go on: O_DIRECT needs whole blocks, and a healthy drive moves whole blocks.
  *go_on = request.done % kIoAlignment == 0 && continuations < kContinuationsMax;
  if (*go_on) return Status::ok();
  return place(request,
               Status::error(StatusCode::kIoError, fmt::format("{} moved only {} of {} bytes and then stopped",
                                                               name_of(request.kind), request.done, request.length)));
}

void AioQueue::finish(Slot& slot, const Status& status) {
  IoRequest& request = *slot.request;
  slot.request = nullptr;
  slot.began_ns.store(0, std::memory_order_relaxed);
  if (repeating_ == &slot) repeating_ = nullptr;
  free_slots_.push_back(&slot);
  request.transferred = request.done;
  complete(request, status);
}

void AioQueue::complete(IoRequest& request, const Status& status) {
  if (!status.is_ok()) add(counted_.errors, 1);
  request.complete(request, status);  // the request may be gone or submitted again when this returns
}

Status AioQueue::place(const IoRequest& request, const Status& status) const {
  return status.at(member_.value(), request.offset, request.length);
}

AioQueue::Counters AioQueue::counters() const {
  const auto get = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {get(counted_.bytes_read), get(counted_.bytes_written), get(counted_.errors),    get(counted_.in_flight),
          get(counted_.waiting),    get(counted_.transfer_ns),   get(counted_.transfers), get(counted_.submissions)};
}

}  // namespace fpfs
