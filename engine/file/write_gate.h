// WriteGate: who may go on now, writes or controls.
//
// Any number of writes are active at once. A control (commit, truncation, hole) runs when none is, so that it finds the
// file at a consistent point; controls run in the order of their arrival, and a write that comes while one waits waits
// behind it. Whoever ends a write or a control looks behind it: at next_control(), and when there is none at
// take_parked().
//
// Thread safety: none; the file's lock.
#pragma once

#include <utility>

#include "engine/base/check.h"
#include "engine/file/requests.h"

namespace fpfs {

class WriteGate {
 public:
  // A write, or a landing, that may begin now is active from here on. False: a control waits.
  bool try_enter() {
    if (!controls_.is_empty()) return false;
    ++active_;
    return true;
  }
  // Behind the controls that wait.
  void park(WriteRequest& request) { parked_.push_back(request); }
  // The write, or landing, has ended: it succeeded, failed, or was cancelled.
  void leave() {
    FPFS_CHECK(active_ > 0, "only a write that is active ends");
    --active_;
  }

  void add(ControlRequest& request) { controls_.push_back(request); }
  // The control whose turn is next, while no write is active; null: none. It stays at the head.
  ControlRequest* next_control() const { return active_ == 0 ? controls_.front() : nullptr; }
  ControlRequest& pop_control() { return *controls_.pop_front(); }
  // The one at the head, whether or not it may run.
  ControlRequest* head() const { return controls_.front(); }
  // Nobody is active, and nobody waits.
  bool is_quiet() const { return active_ == 0 && controls_.is_empty(); }
  bool has_controls() const { return !controls_.is_empty(); }
  // The writes that may go on, as no control waits any more; none otherwise.
  WriteList take_parked() { return controls_.is_empty() ? std::move(parked_) : WriteList(); }

 private:
  ControlList controls_;
  WriteList parked_;
  unsigned active_ = 0;
};

}  // namespace fpfs
