// A core that copies or hashes slowly, and has nothing to do meanwhile: loaded into a FUSE daemon (LD_PRELOAD), it lets
// each transfer between the daemon and /dev/fuse, or each hash of a chunk, take as long as its bytes do at a given rate.
// Whoever transfers or hashes sleeps, so two cores can play many: how well that goes side by side is seen without the
// cores that it would need.
//
//   FPFS_HOLD_COPY=131072000 LD_PRELOAD=build/tools/libfpfs-bench-hold.so fastpersistfs -f DRIVES MOUNT
//
// FPFS_HOLD_COPY, FPFS_HOLD_HASH: bytes a second; 131072000 are 8 ms for 1 MiB. Without it nothing is held up. A rate far below what a
// core copies is a model of a machine whose time runs slower: what the daemon does besides weighs less there than in
// reality, and the order of things is the same.
//
// Held up is what carries data, not what asks and answers: transfers of at least kBytesMin. A request has been taken by
// whom it holds up, and a caller waits for the end of the copy: so a reader of /dev/fuse sleeps behind the system
// call, and a writer before it. Requests through io_uring are not held up, nor are hashes where the daemon was built
// without xxhash's run-time dispatch.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr size_t kBytesMin = 16 * 1024;
const dev_t kFuseDevice = makedev(10, 229);

uint64_t rate_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
}

bool is_fuse(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == kFuseDevice;
}

void sleep_for(size_t bytes, uint64_t rate) {
  const int kept = errno;
  const uint64_t nanoseconds = static_cast<uint64_t>(bytes) * 1'000'000'000 / rate;
  struct timespec left = {static_cast<time_t>(nanoseconds / 1'000'000'000),
                          static_cast<long>(nanoseconds % 1'000'000'000)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) continue;
  errno = kept;
}

void hold(int descriptor, size_t bytes) {
  static const uint64_t rate = rate_of("FPFS_HOLD_COPY");
  if (rate != 0 && bytes >= kBytesMin && is_fuse(descriptor)) sleep_for(bytes, rate);
}

void hold_received(int descriptor, ssize_t result) {
  if (result > 0) hold(descriptor, static_cast<size_t>(result));
}

// The C library's own.
template <typename Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t read(int descriptor, void* buffer, size_t length) {
  static auto* const next = next_of<ssize_t(int, void*, size_t)>("read");
  const ssize_t result = next(descriptor, buffer, length);
  hold_received(descriptor, result);
  return result;
}

ssize_t readv(int descriptor, const struct iovec* parts, int count) {
  static auto* const next = next_of<ssize_t(int, const struct iovec*, int)>("readv");
  const ssize_t result = next(descriptor, parts, count);
  hold_received(descriptor, result);
  return result;
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  static auto* const next = next_of<ssize_t(int, const struct iovec*, int)>("writev");
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  hold(descriptor, bytes);
  return next(descriptor, parts, count);
}

// Of libxxhash.
uint64_t XXH3_64bits_withSeed_dispatch(const void* data, size_t length, uint64_t seed) {
  static auto* const next = next_of<uint64_t(const void*, size_t, uint64_t)>("XXH3_64bits_withSeed_dispatch");
  static const uint64_t rate = rate_of("FPFS_HOLD_HASH");
  if (rate != 0 && length >= kBytesMin) sleep_for(length, rate);
  return next(data, length, seed);
}

}  // extern "C"
