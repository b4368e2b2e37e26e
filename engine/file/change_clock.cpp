#include "engine/file/change_clock.h"

namespace fpfs {

namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

int64_t nanoseconds(const struct timespec& time) {
  return time.tv_sec * kNanoseconds + time.tv_nsec;
}

}  // namespace

struct timespec ChangeClock::now() const {
  constexpr int64_t kTickMax = kNanoseconds / 10;  // beyond it the clock was set back
  const struct timespec coarse = environment_.stamp();
  const int64_t newest = newest_ns_.load();
  const int64_t ahead = newest - nanoseconds(coarse);
  if (ahead <= 0 || ahead > kTickMax) return coarse;
  return {.tv_sec = newest / kNanoseconds, .tv_nsec = newest % kNanoseconds};
}

void ChangeClock::note(const struct timespec& ctime) {
  const int64_t stamp = nanoseconds(ctime);
  int64_t newest = newest_ns_.load();
  if (stamp <= newest) return;
  if (stamp > nanoseconds(environment_.now())) return;  // the clock was set back since
  while (!newest_ns_.compare_exchange_weak(newest, stamp))
    if (newest >= stamp) return;
}

}  // namespace fpfs
