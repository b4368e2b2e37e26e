#include "fs/nodes/copy_waits.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "engine/base/mutex.h"

namespace fpfs {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1000};

}  // namespace

struct CopyWaits::Waiters : std::enable_shared_from_this<Waiters> {
  using Clock = std::chrono::steady_clock;
  struct Waiter {
    std::string path;
    std::function<bool()> is_left;
    Done done;
    uint64_t progress = 0;  // of the tier, and since when it was that
    Clock::time_point since;
  };

  Waiters(Environment& where, ArrayTier& to, RequestCounter& counter, std::chrono::milliseconds limit)
      : environment(where), tier(to), under_way(counter), timeout(limit) {}

  // Nothing happens when it was answered.
  void answer(uint64_t number, const Status& status) {
    Waiter waiter;
    {
      const MutexLock lock(mutex);
      const auto found = waiting.find(number);
      if (found == waiting.end()) return;
      waiter = std::move(found->second);
      waiting.erase(found);
    }
    tell(std::move(waiter), status);
  }
  // What the waiter holds goes before it is counted as answered.
  void tell(Waiter waiter, const Status& status) const {
    waiter.done(status.is_ok() ? status
                               : Status::error(StatusCode::kIoError,
                                               fmt::format("{} is committed here, but not copied (durable=tier): {}",
                                                           waiter.path, status.message())));
    waiter = {};
    under_way.end();
  }
  // Looks soon whether anybody waits still, and whether anything has reached the store.
  void watch(uint64_t number) {
    const auto delay = timeout.count() > 0 ? std::min(timeout, kBetweenLooks) : kBetweenLooks;
    environment.executor().post_after(delay, [weak = weak_from_this(), number] {
      if (const std::shared_ptr<Waiters> self = weak.lock()) self->look(number);
    });
  }
  void look(uint64_t number) {
    std::function<bool()> is_left;
    bool is_late = false;
    {
      const MutexLock lock(mutex);
      const auto found = waiting.find(number);
      if (found == waiting.end()) return;  // after end() the tier may be gone
      Waiter& waiter = found->second;
      is_left = waiter.is_left;
      const auto now = Clock::now();
      if (const uint64_t progress = tier.progress(); std::exchange(waiter.progress, progress) != progress)
        waiter.since = now;
      is_late = timeout.count() > 0 && now - waiter.since >= timeout;
    }
    if (is_left()) return answer(number, Status::error(StatusCode::kCancelled, "its process was killed"));
    if (!is_late) return watch(number);
    answer(number,
           Status::error(StatusCode::kUnreachable,
                         fmt::format("nothing has reached the store for {} s (tier_timeout); it is copied later",
                                     timeout.count() / 1000)));
  }

  Environment& environment;
  ArrayTier& tier;
  RequestCounter& under_way;
  const std::chrono::milliseconds timeout;
  Mutex mutex;  // above those of the tier
  bool has_ended FPFS_GUARDED_BY(mutex) = false;
  uint64_t next FPFS_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, Waiter> waiting FPFS_GUARDED_BY(mutex);
};

CopyWaits::CopyWaits(Environment& environment, ArrayTier& tier, RequestCounter& under_way,
                     std::chrono::milliseconds timeout)
    : waiters_(std::make_shared<Waiters>(environment, tier, under_way, timeout)) {}

void CopyWaits::wait(uint64_t inode, uint64_t sequence, const std::string& path, std::function<bool()> is_left,
                     Done done) {
  Waiters& waiters = *waiters_;
  waiters.under_way.begin();
  const Waiters::Waiter waiter{path, std::move(is_left), std::move(done), waiters.tier.progress(),
                               Waiters::Clock::now()};
  uint64_t number = 0;
  bool is_late = false;
  {
    const MutexLock lock(waiters.mutex);
    is_late = waiters.has_ended;
    number = ++waiters.next;
    if (!is_late) waiters.waiting[number] = waiter;
  }
  if (is_late) return waiters.tell(waiter, Status::error(StatusCode::kCancelled, "the mount is ending"));
  waiters.watch(number);
  waiters.tier.wait_for_commit(inode, sequence, [weak = std::weak_ptr(waiters_), number](const Status& status) {
    if (const std::shared_ptr<Waiters> self = weak.lock()) self->answer(number, status);
  });
}

void CopyWaits::end() {
  std::map<uint64_t, Waiters::Waiter> waiting;
  {
    const MutexLock lock(waiters_->mutex);
    waiters_->has_ended = true;
    waiting.swap(waiters_->waiting);
  }
  for (auto& [number, waiter] : waiting)
    waiters_->tell(std::move(waiter), Status::error(StatusCode::kCancelled, "the mount is ending"));
}

}  // namespace fpfs
