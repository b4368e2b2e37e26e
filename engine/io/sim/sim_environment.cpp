#include "engine/io/sim/sim_environment.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/io/awaited_thread.h"

namespace fpfs {

namespace {
constexpr uint64_t kBeginningOfTime = 1'700'000'000'000'000'000;  // nanoseconds since the epoch
constexpr uint64_t kStepNanosecondsMax = 100'000;
// How often a completion, and who submits, finds that others wait for the queue's thread.
constexpr unsigned kAwaitedPercent = 30;
// How often a delayed task runs although other events could.
constexpr unsigned kEarlyPercent = 3;
}  // namespace

SimEnvironment::SimEnvironment(uint64_t seed, const SimOptions& options)
    : schedule_random_(SimRandom(seed).next()),
      engine_random_(SimRandom(seed ^ 0x656e67696e65).next()),
      awaited_random_(SimRandom(seed ^ 0x61776169746564).next()),
      test_random_(SimRandom(seed ^ 0x74657374).next()),
      storage_(SimRandom(seed ^ 0x73746f72616765).next(), options.mount_paths),
      executor_(*this),
      now_ns_(kBeginningOfTime) {
  using Order = SimFilesystem::JournalOrder;
  const Order drawn = schedule_random_.chance(50) ? Order::kPerDirectory : Order::kWhole;
  storage_.set_journal_order(options.journal_order.value_or(drawn));
  const bool syncs_own_names = SimRandom(seed ^ 0x6e616d6573).chance(50);
  storage_.set_syncs_own_names(options.syncs_own_names.value_or(syncs_own_names));
  storage_.plant(options.planted);
  storage_.set_time(now_ns_);
}

SimEnvironment::~SimEnvironment() {
  FPFS_CHECK(queues_ == 0, "queues end before their environment");
}

Result<std::unique_ptr<IoQueue>> SimEnvironment::make_queue(MemberIndex, const QueueSettings& settings) {
  return std::unique_ptr<IoQueue>(std::make_unique<SimIoQueue>(*this, settings.depth));
}

struct timespec SimEnvironment::now() {
  return {static_cast<time_t>(now_ns_ / 1'000'000'000), static_cast<long>(now_ns_ % 1'000'000'000)};
}

void SimEnvironment::SimExecutor::post(Task task) {
  world_.add({.task = std::move(task), .transfer = {}});
}

void SimEnvironment::SimExecutor::post_after(std::chrono::milliseconds delay, Task task) {
  const uint64_t due = world_.now_ns_ + static_cast<uint64_t>(delay.count()) * 1'000'000;
  world_.add({.task = std::move(task), .due_ns = due, .transfer = {}});
}

SimIoQueue::~SimIoQueue() {
  world_.finish_queue(*this);
  --world_.queues_;
}

void SimIoQueue::submit(IoRequest& request) {
  FPFS_CHECK(request.length % kIoAlignment == 0 && request.complete != nullptr, "a request is whole when submitted");
  request.transferred = 0;
  world_.add(
      {.kind = SimEnvironment::Event::Kind::kStart, .task = {}, .queue = this, .request = &request, .transfer = {}});
}

bool SimIoQueue::is_idle() const {
  return !world_.awaited_random_.chance(kAwaitedPercent);
}

// --- events ----------------------------------------------------------------------------------------------------------

size_t SimEnvironment::choose(bool with_delayed) {
  candidates_.clear();
  size_t first_due = events_.size();
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    if (event.due_ns > now_ns_) {
      if (first_due == events_.size() || event.due_ns < events_[first_due].due_ns) first_due = i;
    } else if (event.kind != Event::Kind::kStart || event.queue->on_drive_ < event.queue->depth_) {
      candidates_.push_back(i);
    }
  }
  const bool early = with_delayed && first_due < events_.size() && schedule_random_.chance(kEarlyPercent);
  if (candidates_.empty() || early) return with_delayed ? first_due : events_.size();
  return candidates_[schedule_random_.below(candidates_.size())];
}

bool SimEnvironment::step_one(bool with_delayed) {
  const size_t index = choose(with_delayed);
  if (index == events_.size()) return false;
  now_ns_ = std::max(now_ns_ + schedule_random_.below(kStepNanosecondsMax), events_[index].due_ns);
  storage_.set_time(now_ns_);
  storage_.tick();
  run(index);
  return true;
}

void SimEnvironment::turn_clock_back(std::chrono::nanoseconds by) {
  const auto nanoseconds = static_cast<uint64_t>(by.count());
  now_ns_ -= nanoseconds;
  for (Event& event : events_)
    if (event.due_ns > 0) event.due_ns -= nanoseconds;
  storage_.set_time(now_ns_);
}

bool SimEnvironment::step() {
  return step_one(true);
}

bool SimEnvironment::run_until(const std::function<bool()>& done) {
  for (uint64_t steps = 0; !done(); ++steps)
    if (steps == kStepsMax || !step()) return false;
  return true;
}

void SimEnvironment::drain() {
  uint64_t steps = 0;
  while (step_one(false)) FPFS_CHECK(++steps < kStepsMax, "the world does not come to rest");
}

void SimEnvironment::run(size_t index) {
  Event event = std::move(events_[index]);
  events_.erase(events_.begin() + static_cast<ptrdiff_t>(index));
  switch (event.kind) {
    case Event::Kind::kTask:
      return event.task();
    case Event::Kind::kStart:
      return start(std::move(event));
    case Event::Kind::kCompletion:
      return complete(event);
  }
}

void SimEnvironment::start(Event event) {
  IoRequest& request = *event.request;
  ++event.queue->on_drive_;
  event.kind = Event::Kind::kCompletion;
  if (request.prepare != nullptr) event.transfer.outcome = request.prepare(request);
  if (event.transfer.outcome.is_ok() && request.kind == IoRequest::Kind::kWrite)
    event.transfer = storage_.start_write(request);
  add(std::move(event));
}

void SimEnvironment::complete(const Event& event) {
  IoRequest& request = *event.request;
  --event.queue->on_drive_;
  Status status = event.transfer.outcome;
  if (request.kind == IoRequest::Kind::kWrite) {
    status = storage_.finish_write(request, event.transfer);
    if (status.is_ok()) request.transferred = request.length;
  } else if (status.is_ok()) {
    const Result<size_t> bytes = storage_.read_direct(request);
    status = bytes.status();
    if (bytes.is_ok()) request.transferred = static_cast<uint32_t>(*bytes);
  }
  const AwaitedThread::Scope awaited(awaited_random_.chance(kAwaitedPercent));
  request.complete(request, status.is_ok() ? status : status.at(status.member(), request.offset, request.length));
}

void SimEnvironment::finish_queue(SimIoQueue& queue) {
  for (;;) {
    const auto mine = [&queue](const Event& event) { return event.queue == &queue; };
    const auto found = std::find_if(events_.begin(), events_.end(), mine);
    if (found == events_.end()) return;
    run(static_cast<size_t>(found - events_.begin()));
  }
}

void SimEnvironment::stop() {
  storage_.cut_now();
  drain();
  events_.clear();
}

void SimEnvironment::crash() {
  FPFS_CHECK(queues_ == 0, "the engine is destroyed before the world crashes");
  events_.clear();
  storage_.crash();
}

void SimEnvironment::kill() {
  FPFS_CHECK(queues_ == 0, "the engine is destroyed before its process is gone");
  events_.clear();
  storage_.kill();
}

}  // namespace fpfs
