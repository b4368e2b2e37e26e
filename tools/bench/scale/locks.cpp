// How long locks are held, by whom: loaded into a program (LD_PRELOAD), it counts for each mutex and each place that takes
// it how often that happens and for how long it is held.
//
//   FPFS_LOCKS=FILE LD_PRELOAD=build/tools/libfpfs-bench-locks.so PROGRAM
//
// FILE is made beforehand; it is mapped, and its layout is Table's, which tools/bench/suite/rows/serial.py reads. Nothing is
// counted until its first word is set. Times are of the wall clock: a holder that loses its processor seems to hold long,
// so a histogram is kept, not a sum. What one look at the clock takes is in each of them; `empty_ns` says how long a lock
// seems to be held that is given back at once.
//
// Requests that are read from /dev/fuse are counted as well; and the processor time in which a member's thread hashes and
// answers reads. It does so as long as nobody waits for it, and leaves it to the workers when it has more to do.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr size_t kBuckets = 128;  // four for each doubling of nanoseconds
constexpr size_t kEntries = 1 << 16;
constexpr size_t kHeldMax = 16;  // at once by one thread; more are not counted
constexpr size_t kMembersMax = 64;
constexpr size_t kMuch = 64 << 10;  // bytes; for less nobody looks at the clock
const dev_t kFuseDevice = makedev(10, 229);

struct Entry {
  std::atomic<uintptr_t> mutex;
  std::atomic<uintptr_t> place;  // the address behind the call
  std::atomic<uint64_t> waited;  // how often it was not free
  std::atomic<uint32_t> held[kBuckets];
};

struct Member {
  std::atomic<uint64_t> thread;
  std::atomic<uint64_t> left_ns;  // what it would leave to workers
};

struct Table {
  std::atomic<uint64_t> is_on;
  std::atomic<uint64_t> requests;
  std::atomic<uint64_t> lost;  // holds that found no entry
  std::atomic<uint64_t> empty_ns;
  Member members[kMembersMax];
  Entry entries[kEntries];
};

Table* table = nullptr;

struct Held {
  pthread_mutex_t* mutex;
  uintptr_t place;
  uint64_t since_ns;
  bool waited;
};
thread_local Held held[kHeldMax];
thread_local size_t held_count = 0;

template <typename Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

uint64_t now_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

size_t bucket_of(uint64_t ns) {
  if (ns < 4) return ns;
  const auto doublings = static_cast<unsigned>(std::bit_width(ns)) - 1;
  return std::min(kBuckets - 1, size_t{doublings - 1} * 4 + ((ns >> (doublings - 2)) & 3));
}

Entry* find(uintptr_t mutex, uintptr_t place) {
  size_t at = (mutex * 0x9E3779B97F4A7C15ULL ^ place * 0xC2B2AE3D27D4EB4FULL) >> 40;
  for (size_t tries = 0; tries < 64; ++tries, ++at) {
    Entry& entry = table->entries[at % kEntries];
    uintptr_t seen = entry.mutex.load(std::memory_order_relaxed);
    if (seen == 0 && entry.mutex.compare_exchange_strong(seen, mutex)) {
      entry.place.store(place);
      return &entry;
    }
    if (seen == mutex && entry.place.load() == place) return &entry;
  }
  return nullptr;
}

void begin(pthread_mutex_t* mutex, uintptr_t place, bool waited) {
  if (table == nullptr || table->is_on.load(std::memory_order_relaxed) == 0 || held_count == kHeldMax) return;
  held[held_count++] = {mutex, place, now_ns(), waited};
}

void end(pthread_mutex_t* mutex) {
  for (size_t i = held_count; i-- > 0;) {
    if (held[i].mutex != mutex) continue;
    const Held was = held[i];
    held[i] = held[--held_count];
    const uint64_t ns = now_ns() - was.since_ns;
    Entry* const entry = find(reinterpret_cast<uintptr_t>(mutex), was.place);
    if (entry == nullptr) {
      table->lost.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    entry->held[bucket_of(ns)].fetch_add(1, std::memory_order_relaxed);
    if (was.waited) entry->waited.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

__attribute__((constructor)) void open_table() {
  const char* const path = std::getenv("FPFS_LOCKS");
  const int file = path != nullptr ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0 || ::ftruncate(file, sizeof(Table)) != 0) return;
  void* const memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return;
  constexpr int kLooks = 1000;
  const uint64_t before = now_ns();
  for (int i = 0; i < kLooks; ++i) (void)now_ns();
  const uint64_t look_ns = (now_ns() - before) / kLooks;
  table = static_cast<Table*>(memory);
  table->empty_ns.store(look_ns);
}

uint64_t thread_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Of the calling thread; none: it is no member's.
Member* find_member() {
  char name[16] = "";
  ::prctl(PR_GET_NAME, name);
  if (std::strncmp(name, "fpfs-aio-", 9) != 0) return nullptr;
  const auto thread = static_cast<uint64_t>(::gettid());
  for (Member& member : table->members) {
    uint64_t seen = 0;
    // Each kind of work looks on its own.
    if (member.thread.compare_exchange_strong(seen, thread) || seen == thread) return &member;
  }
  return nullptr;
}

// What workers do when a member's thread has more to do.
template <typename Work>
auto left_to_workers(size_t length, Work work) {
  if (length < kMuch || table == nullptr || table->is_on.load(std::memory_order_relaxed) == 0) return work();
  static thread_local Member* const member = find_member();
  const uint64_t before = member != nullptr ? thread_ns() : 0;
  const auto result = work();
  if (member != nullptr) member->left_ns.fetch_add(thread_ns() - before, std::memory_order_relaxed);
  return result;
}

// Waiting gives the mutex back meanwhile.
template <typename Wait>
int wait_without(pthread_mutex_t* mutex, uintptr_t place, Wait wait) {
  end(mutex);
  const int result = wait();
  begin(mutex, place, false);
  return result;
}

uintptr_t address(void* place) {
  return reinterpret_cast<uintptr_t>(place);
}

void count_request(int descriptor, ssize_t result) {
  struct stat status {};
  if (result > 0 && table != nullptr && table->is_on.load(std::memory_order_relaxed) != 0 &&
      ::fstat(descriptor, &status) == 0 && status.st_rdev == kFuseDevice)
    table->requests.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const next = next_of<int(pthread_mutex_t*)>("pthread_mutex_lock");
  static auto* const next_try = next_of<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  if (table == nullptr) return next(mutex);
  const bool waited = next_try(mutex) != 0;
  const int result = waited ? next(mutex) : 0;
  if (result == 0) begin(mutex, address(__builtin_return_address(0)), waited);
  return result;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static auto* const next = next_of<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  const int result = next(mutex);
  if (result == 0) begin(mutex, address(__builtin_return_address(0)), false);
  return result;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static auto* const next = next_of<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  end(mutex);
  return next(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const next = next_of<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  return wait_without(mutex, address(__builtin_return_address(0)), [=] { return next(condition, mutex); });
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const struct timespec* until) {
  static auto* const next =
      next_of<int(pthread_cond_t*, pthread_mutex_t*, const struct timespec*)>("pthread_cond_timedwait");
  return wait_without(mutex, address(__builtin_return_address(0)), [=] { return next(condition, mutex, until); });
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  static auto* const next =
      next_of<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*)>("pthread_cond_clockwait");
  return wait_without(mutex, address(__builtin_return_address(0)),
                      [=] { return next(condition, mutex, clock, until); });
}

ssize_t read(int descriptor, void* buffer, size_t length) {
  static auto* const next = next_of<ssize_t(int, void*, size_t)>("read");
  const ssize_t result = next(descriptor, buffer, length);
  count_request(descriptor, result);
  return result;
}

ssize_t readv(int descriptor, const struct iovec* parts, int count) {
  static auto* const next = next_of<ssize_t(int, const struct iovec*, int)>("readv");
  const ssize_t result = next(descriptor, parts, count);
  count_request(descriptor, result);
  return result;
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  static auto* const next = next_of<ssize_t(int, const struct iovec*, int)>("writev");
  size_t length = 0;
  for (int i = 0; i < count; ++i) length += parts[i].iov_len;
  return left_to_workers(length, [=] { return next(descriptor, parts, count); });
}

void* memcpy(void* to, const void* from, size_t length) noexcept {
  static auto* const next = next_of<void*(void*, const void*, size_t)>("memcpy");
  return left_to_workers(length, [=] { return next(to, from, length); });
}

uint64_t XXH3_64bits_withSeed_dispatch(const void* data, size_t length, uint64_t seed) {
  static auto* const next = next_of<uint64_t(const void*, size_t, uint64_t)>("XXH3_64bits_withSeed_dispatch");
  return left_to_workers(length, [=] { return next(data, length, seed); });
}

}  // extern "C"
