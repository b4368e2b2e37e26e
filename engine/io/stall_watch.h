// StallWatch: which members answer, and which hang. What bounded time means here.
//
// A drive that hangs cannot be made to answer: the kernel neither takes a transfer back that is on the drive nor wakes
// a thread that waits for one. So nobody waits for the drive itself for longer than the limit (`io_timeout`):
//
//   - every blocking call (WatchedStorage) and every transfer (AioQueue) is known here from its start to its end;
//   - when one takes longer than the limit, its member is *stalled*. From then on calls and transfers to this member
//     are refused at once (kIoError), and listeners are told, at that moment and about once a second until it answers.
//     Each gives up what it has with that member: Store fails the requests that wait for transfers and commits, the
//     FUSE front answers requests whose threads are caught in a call, and replaces those threads;
//   - what is caught keeps what it uses: a buffer under a transfer that may still happen is not used for anything else
//     until the transfer has ended;
//   - when everything overdue has ended, the member is no longer stalled.
//
// A domain is what stalls as a whole: stall_domain.h.
//
// Thread safety: all methods from any thread. Listeners run on the watch's own thread, one at a time; they must not
// wait for any drive.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/io/stall_domain.h"

namespace fpfs {

class StallWatch {
 public:
  StallWatch() = default;
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Starts watching. Zero (and before): nothing is ever overdue.
  void start(std::chrono::milliseconds limit);
  std::chrono::milliseconds limit() const { return std::chrono::milliseconds(limit_ms_.load()); }

  // What messages call a domain: "member 2 (/nvme2/fp)".
  void set_name(StallDomain domain, const std::string& name);

  bool is_stalled(StallDomain domain) const { return state_of(domain).stalled.load(std::memory_order_relaxed); }
  bool is_any_stalled() const { return any_stalled_.load(std::memory_order_relaxed); }
  // Ok, or why nothing may be asked of the domain now.
  Status check(StallDomain domain) const;
  // Calls of the domain that failed in a way that says something about its drive (EIO, EROFS, ENODEV, ...).
  uint64_t errors(StallDomain domain) const { return state_of(domain).errors.load(std::memory_order_relaxed); }
  void clear_errors(StallDomain domain) { state_of(domain).errors.store(0, std::memory_order_relaxed); }
  // Counts one that is the drive's (blames_the_drive()). The first of the tree is logged: what fails there has no other
  // line, as callers get the error.
  void note_error(StallDomain domain, const Status& failure);

  // A blocking call under way, from construction to destruction, on one thread.
  class Call;

  // Something else that may be caught: `oldest` returns since when (monotonic_ns()), 0 when there is nothing.
  class Registration {
   public:
    Registration() = default;
    Registration(Registration&& other) noexcept;
    Registration& operator=(Registration&& other) noexcept;
    ~Registration() { reset(); }
    void reset();  // on return nothing of it runs or will

   private:
    friend class StallWatch;
    StallWatch* watch_ = nullptr;
    uint64_t number_ = 0;
  };
  [[nodiscard]] Registration add_source(StallDomain domain, std::function<uint64_t()> oldest);
  // Called with the domain that is stalled. With kElsewhereDomain for a call outside any array.
  [[nodiscard]] Registration add_listener(std::function<void(StallDomain)> listener);

 private:
  // Where a call under way is noted. Whoever set `began_ns` owns it until it is kFree again.
  struct Place {
    static constexpr uint64_t kFree = 0;
    static constexpr uint64_t kPaused = UINT64_MAX;  // taken, and waiting for no drive
    std::atomic<uint64_t> began_ns{kFree};
    std::atomic<StallDomain> domain{kElsewhereDomain};
    // Since when its call waits for `waits_for`; 0: it does not.
    uint64_t began(StallDomain& waits_for) const;
  };
  // A thread takes places in the line of memory that its number leads to, so threads seldom meet at one.
  struct alignas(64) Line {
    std::array<Place, 4> places;
  };
  struct Source {
    StallDomain domain;
    std::function<uint64_t()> oldest;
  };
  struct State {
    std::atomic<bool> stalled{false};
    std::atomic<uint64_t> errors{0};
  };
  static constexpr size_t kLines = 128;

  const State& state_of(StallDomain domain) const { return states_[domain.value()]; }
  State& state_of(StallDomain domain) { return states_[domain.value()]; }
  std::string name_of(StallDomain domain) const;
  void set_stalled(StallDomain domain, bool stalled);
  Place* take_place();
  void run();
  void look();
  void remove(uint64_t number);

  std::atomic<uint64_t> limit_ms_{0};
  std::array<State, kStallDomains> states_;
  std::atomic<bool> any_stalled_{false};
  std::array<Line, kLines> lines_;
  // Of calls that found their line full.
  Mutex others_mutex_;
  std::list<Place> others_ FPFS_GUARDED_BY(others_mutex_);

  mutable Mutex names_mutex_;
  std::map<StallDomain, std::string> names_ FPFS_GUARDED_BY(names_mutex_);

  // Held while sources and listeners are called, so that reset() waits for them.
  Mutex watchers_mutex_;
  std::map<uint64_t, Source> sources_ FPFS_GUARDED_BY(watchers_mutex_);
  std::map<uint64_t, std::function<void(StallDomain)>> listeners_ FPFS_GUARDED_BY(watchers_mutex_);
  uint64_t next_number_ FPFS_GUARDED_BY(watchers_mutex_) = 1;

  Mutex thread_mutex_;
  CondVar stop_;
  bool stopping_ FPFS_GUARDED_BY(thread_mutex_) = false;
  std::thread thread_;
};

class StallWatch::Call {
 public:
  Call(StallWatch& watch, StallDomain domain);
  ~Call();
  // Between them the call does not wait for the drive.
  void pause() { place_->began_ns.store(Place::kPaused, std::memory_order_relaxed); }
  void resume() { place_->began_ns.store(monotonic_ns(), std::memory_order_release); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Place* const place_;
};

}  // namespace fpfs
