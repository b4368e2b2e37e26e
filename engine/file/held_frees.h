// HeldFrees: what a file would free, while somebody holds a committed version of it that may name it.
//
// What is freed behind a commit is named by versions before it only. So it waits for those that are held by then, and
// for none that is held later: whoever always holds some version, the newest, keeps nothing for ever.
//
// Thread safety: none; the file's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/strong_number.h"

namespace fpfs {

class HeldFrees {
 public:
  using Free = std::function<void()>;  // begins to free something, once; with or without the file's lock
  struct TicketKind : IndexKind<uint64_t> {};
  using Ticket = StrongNumber<TicketKind>;  // of one who holds; they grow

  Ticket hold() {
    const Ticket ticket = next_;
    held_.insert(ticket);
    ++next_;
    return ticket;
  }
  // Keeps `free` until all who hold now have let go. False, and nothing happens: nobody does.
  bool keep(Free& free) {
    if (held_.empty()) return false;
    waiting_.emplace_back(next_, std::move(free));
    return true;
  }
  // What may be freed from now on, in the order in which it came.
  std::vector<Free> let_go(Ticket ticket) {
    FPFS_CHECK(held_.erase(ticket) == 1, "only what is held is let go, and once");
    std::vector<Free> free;
    while (!waiting_.empty() && (held_.empty() || waiting_.front().first <= *held_.begin())) {
      free.push_back(std::move(waiting_.front().second));
      waiting_.pop_front();
    }
    return free;
  }

 private:
  Ticket next_;
  std::set<Ticket> held_;
  std::deque<std::pair<Ticket, Free>> waiting_;  // with the first ticket that it need not wait for
};

}  // namespace fpfs
