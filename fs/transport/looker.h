// Looker: a thread that looks every millisecond after what may take too long, while there is something to look after. It
// sleeps when there has been nothing for a while.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "engine/base/mutex.h"

namespace fpfs {

class Looker {
 public:
  static constexpr uint64_t kPeriodNs = 1'000'000;

  // `look`: at monotonic_ns() `now_ns`, called by the thread. False: there was nothing to look after. Empty: no thread.
  explicit Looker(std::function<bool(uint64_t now_ns)> look);
  ~Looker();
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;

  // There is something from now on, as `look` sees: it is looked after within two periods.
  void goes_on();

 private:
  static constexpr unsigned kQuietLooks = 16;  // then it sleeps
  void run();

  const std::function<bool(uint64_t)> look_;
  Mutex mutex_;
  CondVar woken_;
  std::atomic<bool> is_asleep_{false};  // changed under mutex_
  std::atomic<bool> goes_on_{false};
  bool is_ending_ FPFS_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace fpfs
