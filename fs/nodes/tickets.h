// Tickets: calls of tools that take longer than a request should. A request begins one and gets a ticket, others ask
// with it whether it is over. So no process waits in the kernel for a store outside this machine, and nothing is held
// for one that was killed: what nobody has asked about for kForgottenAfter is forgotten.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace fpfs {

class Tickets {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kCountMax = 1024;
  static constexpr std::chrono::seconds kForgottenAfter{60};

  // `number`: drawn at random, so that nobody asks with another's. kBusy: there are too many.
  Status begin(uint64_t number, Clock::time_point now = Clock::now()) {
    const MutexLock lock(mutex_);
    std::erase_if(tickets_, [now](const auto& entry) { return now - entry.second.asked > kForgottenAfter; });
    if (tickets_.size() >= kCountMax)
      return Status::error(StatusCode::kBusy, "too many wait for such calls already; try again later");
    tickets_[number] = {now, std::nullopt};
    return Status::ok();
  }
  // Nothing happens when it was forgotten.
  void end(uint64_t number, const Status& outcome) {
    const MutexLock lock(mutex_);
    if (const auto found = tickets_.find(number); found != tickets_.end()) found->second.outcome = outcome;
  }
  // Nothing: not over. One that is over is forgotten with this. kNotFound: there is no such ticket.
  std::optional<Status> ask(uint64_t number, Clock::time_point now = Clock::now()) {
    const MutexLock lock(mutex_);
    const auto found = tickets_.find(number);
    if (found == tickets_.end())
      return Status::error(StatusCode::kNotFound, "it is not known any more what this waited for");
    found->second.asked = now;
    std::optional<Status> outcome = found->second.outcome;
    if (outcome.has_value()) tickets_.erase(found);
    return outcome;
  }

  // Somebody asks now and then.
  bool is_asked_for(uint64_t number, Clock::time_point now = Clock::now()) const {
    const MutexLock lock(mutex_);
    const auto found = tickets_.find(number);
    return found != tickets_.end() && now - found->second.asked <= kForgottenAfter;
  }

 private:
  struct Ticket {
    Clock::time_point asked;
    std::optional<Status> outcome;
  };
  mutable Mutex mutex_;
  std::map<uint64_t, Ticket> tickets_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
