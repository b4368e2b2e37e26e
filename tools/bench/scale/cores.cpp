#include "tools/bench/scale/cores.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

namespace fpfs::scale {
namespace {

// errno is the caller's: these calls stand between its own.
class KeepErrno {
 public:
  ~KeepErrno() { errno = kept_; }

 private:
  const int kept_ = errno;
};

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

}  // namespace

uint64_t now_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_until(uint64_t when_ns) {
  const struct timespec when = {static_cast<time_t>(when_ns / 1'000'000'000),
                                static_cast<long>(when_ns % 1'000'000'000)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) continue;
}

std::unique_ptr<Cores> Cores::open(const std::string& path, uint32_t count) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* memory = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, sizeof(Shared)) == 0)
    memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (memory != MAP_FAILED) return std::unique_ptr<Cores>(new Cores(*static_cast<Shared*>(memory), count));
  std::perror(("the cores of the modelled machine: " + path).c_str());
  return nullptr;
}

void Cores::work(Work kind, uint64_t ns) {
  if (ns == 0) return;
  const KeepErrno kept;
  if (count_ > 0) begin();
  sleep_until(now_ns() + ns);
  shared_.worked_ns[static_cast<unsigned>(kind)].fetch_add(ns, std::memory_order_relaxed);
  if (count_ > 0) end();
}

// Number n may go on when n + 1 - count_ of those before it have ended.
void Cores::begin() {
  const uint64_t number = shared_.asked.fetch_add(1);
  if (number < count_) return;
  std::atomic<uint32_t>& turn = shared_.turns[number % Shared::kTurns];
  const auto mine = static_cast<uint32_t>(number + 1);
  for (uint32_t seen = turn.load(); seen != mine; seen = turn.load()) futex(turn, FUTEX_WAIT, seen);
}

void Cores::end() {
  const uint64_t next = shared_.ended.fetch_add(1) + count_;
  std::atomic<uint32_t>& turn = shared_.turns[next % Shared::kTurns];
  turn.store(static_cast<uint32_t>(next + 1));
  futex(turn, FUTEX_WAKE, 1);
}

}  // namespace fpfs::scale
