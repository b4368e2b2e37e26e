// The drives of a modelled machine: each context of libaio is one, and transfers end when its rate and its latency let
// them. Nothing is stored, and what is read is whatever the buffer held.
//
// Thread safety: all methods from any thread.
#pragma once

#include <libaio.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <vector>

namespace fpfs::scale {

class Drives {
 public:
  // What a drive moves in a second, and how long a transfer is under way besides; 0: no time.
  struct Speed {
    double read_bytes = 0, write_bytes = 0;
    uint64_t read_latency_ns = 0, write_latency_ns = 0;
  };

  explicit Drives(const Speed& speed) : speed_(speed) {}
  // Of a read or write that names an eventfd. Must be the process's own call of io_submit for it.
  void start(io_context_t drive, struct iocb& transfer);
  // Those that have ended, at most `count`. Their number.
  int take(io_context_t drive, int count, struct io_event* events);

 private:
  struct Drive {
    uint64_t busy_until_ns = 0;
    std::deque<struct io_event> ended;
  };
  struct Ending {
    uint64_t when_ns;
    Drive* drive;
    struct io_event event;
    int eventfd;
    bool operator>(const Ending& other) const { return when_ns > other.when_ns; }
  };
  void run();

  const Speed speed_;
  std::mutex mutex_;
  std::condition_variable earlier_;
  std::map<io_context_t, Drive> drives_;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> under_way_;
  bool runs_ = false;
};

}  // namespace fpfs::scale
