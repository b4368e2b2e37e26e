#include "tools/common/interrupt.h"

#include <algorithm>
#include <csignal>
#include <thread>

namespace fpfs::tools {

namespace {

// A signal handler can reach nothing but a variable of static storage.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_interrupt(int) {
  interrupted.store(true, std::memory_order_relaxed);
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  sigset_t both;
  sigemptyset(&both);
  for (int number : {SIGINT, SIGTERM}) {
    sigaddset(&both, number);
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // a shell that put us into the background wants it so
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
  // Whoever started us may have left them blocked.
  pthread_sigmask(SIG_UNBLOCK, &both, nullptr);
  return interrupted;
}

void sleep_until(std::chrono::steady_clock::time_point wake, const std::atomic<bool>& flag) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kNap{50};
  while (!flag && Clock::now() < wake)
    std::this_thread::sleep_for(std::min<Clock::duration>(kNap, wake - Clock::now()));
}

}  // namespace fpfs::tools
