#include "engine/io/stall_watch.h"

#include <time.h>

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread_number.h"
#include "engine/io/named_thread.h"

namespace fpfs {

using std::chrono::milliseconds;

StallWatch::~StallWatch() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(thread_mutex_);
    stopping_ = true;
    stop_.notify_all();
  }
  thread_.join();
}

void StallWatch::start(milliseconds limit) {
  limit_ms_.store(static_cast<uint64_t>(limit.count()));
  if (limit.count() > 0 && !thread_.joinable()) thread_ = start_thread("fpfs-watch", [this] { run(); });
}

Status StallWatch::check(StallDomain domain) const {
  if (!is_stalled(domain)) return Status::ok();
  return Status::error(StatusCode::kIoError, fmt::format("{} has not answered for {:g} s (io_timeout)", name_of(domain),
                                                         static_cast<double>(limit_ms_.load()) / 1000));
}

void StallWatch::set_name(StallDomain domain, const std::string& name) {
  const MutexLock lock(names_mutex_);
  names_[domain] = name;
}

std::string StallWatch::name_of(StallDomain domain) const {
  const MutexLock lock(names_mutex_);
  const auto known = names_.find(domain);
  if (known != names_.end()) return known->second;
  const std::optional<MemberIndex> member = member_of(domain);
  return member ? fmt::format("member {}", *member) : std::string("the drive");
}

void StallWatch::set_stalled(StallDomain domain, bool stalled) {
  if (state_of(domain).stalled.exchange(stalled) == stalled || domain == kElsewhereDomain) return;
  if (stalled)
    log(LogLevel::kError, "{}; what needs it fails until it answers", check(domain).message());
  else
    log(LogLevel::kWarning, "{} answers again", name_of(domain));
}

void StallWatch::note_error(StallDomain domain, const Status& failure) {
  if (state_of(domain).errors.fetch_add(1, std::memory_order_relaxed) > 0 || domain != kTreeDomain) return;
  log(LogLevel::kError, "{} fails: {}; look at the drive (dmesg). fpfs status counts what fails there from now on",
      name_of(domain), failure.message());
}

// --- calls -----------------------------------------------------------------------------------------------------------

StallWatch::Place* StallWatch::take_place() {
  for (Place& place : lines_[thread_number() % kLines].places) {
    uint64_t expected = Place::kFree;
    if (place.began_ns.compare_exchange_strong(expected, Place::kPaused, std::memory_order_acquire,
                                               std::memory_order_relaxed))
      return &place;
  }
  // A place that was made here stays, for the next who finds its line full.
  const MutexLock lock(others_mutex_);
  for (Place& place : others_) {
    uint64_t expected = Place::kFree;
    if (place.began_ns.compare_exchange_strong(expected, Place::kPaused)) return &place;
  }
  Place& place = others_.emplace_back();
  place.began_ns.store(Place::kPaused);
  return &place;
}

StallWatch::Call::Call(StallWatch& watch, StallDomain domain) : place_(watch.take_place()) {
  place_->domain.store(domain, std::memory_order_release);  // who sees it sees that the call before has ended
  place_->began_ns.store(monotonic_ns(), std::memory_order_release);
}

StallWatch::Call::~Call() {
  place_->began_ns.store(Place::kFree, std::memory_order_release);
}

uint64_t StallWatch::Place::began(StallDomain& waits_for) const {
  const uint64_t before = began_ns.load(std::memory_order_acquire);
  if (before == kFree || before == kPaused) return 0;
  waits_for = domain.load(std::memory_order_acquire);
  return began_ns.load(std::memory_order_relaxed) == before ? before : 0;  // else another call's by now
}

// --- looking ---------------------------------------------------------------------------------------------------------

void StallWatch::run() {
  for (;;) {
    {
      const milliseconds interval = std::clamp(limit() / 10, milliseconds(10), milliseconds(1000));
      const MutexLock lock(thread_mutex_);
      if (!stopping_) stop_.wait_for(thread_mutex_, interval);
      if (stopping_) return;
    }
    look();
  }
}

void StallWatch::look() {
  const uint64_t now = monotonic_ns();
  const uint64_t limit_ns = limit_ms_.load() * 1'000'000;
  const auto is_overdue = [&](uint64_t began) { return began != 0 && now > began && now - began > limit_ns; };
  std::array<bool, kStallDomains> overdue{};
  const auto look_at = [&](const Place& place) {
    StallDomain domain = kElsewhereDomain;
    if (is_overdue(place.began(domain))) overdue[domain.value()] = true;
  };
  for (const Line& line : lines_)
    for (const Place& place : line.places) look_at(place);
  {
    const MutexLock lock(others_mutex_);
    for (const Place& place : others_) look_at(place);
  }
  const MutexLock lock(watchers_mutex_);
  for (const auto& [number, source] : sources_)
    if (is_overdue(source.oldest())) overdue[source.domain.value()] = true;
  const bool any = std::find(overdue.begin(), overdue.end(), true) != overdue.end();
  if (any) any_stalled_.store(true);  // before who sees one of them stalled asks
  for (uint16_t i = 0; i < kStallDomains; ++i) set_stalled(StallDomain(i), overdue[i]);
  if (!any) return any_stalled_.store(false);
  for (uint16_t i = 0; i < kStallDomains; ++i)
    if (overdue[i])
      for (const auto& [number, listener] : listeners_) listener(StallDomain(i));
}

// --- registrations ---------------------------------------------------------------------------------------------------

StallWatch::Registration StallWatch::add_source(StallDomain domain, std::function<uint64_t()> oldest) {
  const MutexLock lock(watchers_mutex_);
  Registration registration;
  registration.watch_ = this;
  registration.number_ = next_number_++;
  sources_.emplace(registration.number_, Source{domain, std::move(oldest)});
  return registration;
}

StallWatch::Registration StallWatch::add_listener(std::function<void(StallDomain)> listener) {
  const MutexLock lock(watchers_mutex_);
  Registration registration;
  registration.watch_ = this;
  registration.number_ = next_number_++;
  listeners_.emplace(registration.number_, std::move(listener));
  return registration;
}

void StallWatch::remove(uint64_t number) {
  const MutexLock lock(watchers_mutex_);
  sources_.erase(number);
  listeners_.erase(number);
}

StallWatch::Registration::Registration(Registration&& other) noexcept
    : watch_(std::exchange(other.watch_, nullptr)), number_(other.number_) {}

StallWatch::Registration& StallWatch::Registration::operator=(Registration&& other) noexcept {
  if (this != &other) {
    reset();
    watch_ = std::exchange(other.watch_, nullptr);
    number_ = other.number_;
  }
  return *this;
}

void StallWatch::Registration::reset() {
  if (watch_ != nullptr) std::exchange(watch_, nullptr)->remove(number_);
}

}  // namespace fpfs
