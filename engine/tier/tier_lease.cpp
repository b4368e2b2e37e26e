#include "engine/tier/tier_lease.h"

#include <time.h>

#include <algorithm>
#include <future>
#include <utility>

#include <fmt/format.h>

namespace fpfs {
namespace {

std::chrono::nanoseconds time_since_boot() {
  struct timespec time {};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

void TierLease::own(std::vector<std::string> fences) {
  const MutexLock lock(mutex_);
  fences_ = std::move(fences);
}

bool TierLease::is_lost() const {
  const MutexLock lock(mutex_);
  return is_lost_;
}

bool TierLease::holds() {
  bool holds = false;
  {
    const MutexLock lock(mutex_);
    const Time now = time_since_boot();
    holds = seen_at_.has_value() && now - *seen_at_ < duration_;
    const bool is_young = holds && now - *seen_at_ < duration_ / 4;
    const bool was_asked_just_now = now - asked_at_ < duration_ / 10;  // and has failed at once
    if (is_young || was_asked_just_now || std::exchange(is_asked_, true)) return holds;
    asked_at_ = now;
  }
  look();
  return holds;
}

void TierLease::when_known(Then then) {
  {
    const MutexLock lock(mutex_);
    const Time now = time_since_boot();
    if (!seen_at_.has_value() || now - *seen_at_ >= duration_) {
      waiting_.push_back(std::move(then));
      if (std::exchange(is_asked_, true)) return;
      asked_at_ = now;
      then = nullptr;
    }
  }
  then ? then(Status::ok()) : look();
}

Status TierLease::wait() {
  if (holds()) return Status::ok();
  const auto answer = std::make_shared<std::promise<Status>>();
  when_known([answer](const Status& known) { answer->set_value(known); });
  return answer->get_future().get();
}

void TierLease::close() {
  looks_->close();
}

void TierLease::look() {
  read_fence(*looks_, array_id_, [this](const Result<TierFence>& stored) { was_read(stored); });
}

void TierLease::was_read(const Result<TierFence>& stored) {
  std::vector<Then> waiting;
  Status status = stored.status();
  {
    const MutexLock lock(mutex_);
    is_asked_ = false;
    waiting.swap(waiting_);
    const bool is_late = time_since_boot() - asked_at_ >= duration_;
    if (status.is_ok()) {
      is_lost_ = std::ranges::find(fences_, stored->token) == fences_.end();
      seen_at_ = is_lost_ ? std::nullopt : std::optional(asked_at_);
      if (is_lost_)
        status = Status::error(StatusCode::kWrongStore,
                               fmt::format("tier: {}: what this array has copied there has become another array's, or "
                                           "a newer state's of this one; it changes nothing there any more",
                                           looks_->describe()));
    }
    // As of when it was asked it says nothing any more.
    if (status.is_ok() && is_late)
      status = Status::error(StatusCode::kUnreachable,
                             fmt::format("tier: {}: the store took longer than {} ms to say whose the copies are",
                                         looks_->describe(), duration_.count()));
  }
  for (const Then& then : waiting) then(status);
}

}  // namespace fpfs
