// A model of a big machine, loaded into a FUSE daemon and into its clients (LD_PRELOAD). What takes time on a big machine
// is replaced by waits of given cost: copies between kernel and process, hashes, copies within the daemon, requests, the
// submission of I/O, and the drives. Everything else is the real daemon on the real kernel: threads, locks, queues,
// guesses, the order of things.
//
//   FPFS_MACHINE=cores=64,slow=200,copy=12e9,shared=FILE,... LD_PRELOAD=build/tools/libfpfs-bench-machine.so PROGRAM
//
// The machine's time runs `slow` times slower than ours: 12 GB/s are 60 MB/s with slow=200, so that what two real cores
// do besides is small. Who works holds one of the machine's cores (cores.h) and sleeps.
//
//   cores=N        how many; the process is told so when it asks (sysconf, get_nprocs, sched_getaffinity). 0: no limit
//   slow=N         0: nothing takes time; for making files
//   client=1       a client: its read(2) of FUSE files, and write(2) by handles that can read, cost a copy to or from the
//                  page cache, unless they are O_DIRECT
//   copy=BYTES     a second: one core's copying between kernel and process
//   move=BYTES     memcpy within the daemon
//   hash=BYTES     hashing. Long inputs are not hashed: all of a length have one hash
//   request=S      seconds of a core for taking a request, and for answering it, without its data
//   submit=S       for one transfer of a drive, both ways
//   read=, write=  a drive's bytes a second
//   read_latency=, write_latency=, sync=   seconds; sync: of fsync(2), fdatasync(2)
//   shared=FILE    the cores of all processes of the machine, and the accounts
//
// Left out: memory bandwidth, caches, NUMA; page faults; what the kernel does for a request besides the copy, unless
// `request` is made to say it; the time of a lock's owner. Requests through io_uring are not modelled.
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "tools/bench/scale/cores.h"
#include "tools/bench/scale/drives.h"

namespace {

using fpfs::scale::Cores;
using fpfs::scale::Drives;
using fpfs::scale::Work;

constexpr size_t kBytesMin = 16 * 1024;  // what is shorter is an index or a header: real
const dev_t kFuseDevice = makedev(10, 229);
constexpr long kFuseMagic = 0x65735546;

class Machine {
 public:
  // Null when the process is not part of one.
  static Machine* get() {
    static Machine* const machine = make();  // never destroyed: threads use it until the end
    return machine;
  }

  double value(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : std::strtod(found->second.c_str(), nullptr);
  }
  void work(Work kind, double seconds) { cores_->work(kind, scaled(seconds)); }
  void work_on(Work kind, size_t bytes, double rate) {
    if (rate > 0) work(kind, static_cast<double>(bytes) / rate);
  }
  void pause(double seconds) const {
    if (const uint64_t ns = scaled(seconds); ns > 0) fpfs::scale::sleep_until(fpfs::scale::now_ns() + ns);
  }
  Drives& drives() { return *drives_; }

  bool is_client = false;
  unsigned cores = 0;
  double copy = 0, move = 0, hash = 0, request = 0, submit = 0, sync = 0;

 private:
  static Machine* make() {
    const char* const text = std::getenv("FPFS_MACHINE");
    if (text == nullptr) return nullptr;
    auto machine = std::make_unique<Machine>();
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');)
      machine->values_[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    machine->set_up();
    if (machine->cores_ == nullptr) std::abort();
    return machine.release();
  }

  void set_up() {
    slow_ = value("slow");
    is_client = value("client") > 0;
    cores = static_cast<unsigned>(value("cores"));
    copy = value("copy");
    move = value("move");
    hash = value("hash");
    request = value("request");
    submit = value("submit");
    sync = value("sync");
    cores_ = Cores::open(values_["shared"], slow_ > 0 ? cores : 0);
    Drives::Speed speed;
    if (slow_ > 0)
      speed = {value("read") / slow_, value("write") / slow_, scaled(value("read_latency")),
               scaled(value("write_latency"))};
    drives_ = std::make_unique<Drives>(speed);
    ::prctl(PR_SET_TIMERSLACK, 1);  // threads inherit it
  }
  uint64_t scaled(double seconds) const { return static_cast<uint64_t>(seconds * slow_ * 1e9); }

  std::map<std::string, std::string> values_;
  double slow_ = 0;
  std::unique_ptr<Cores> cores_;
  std::unique_ptr<Drives> drives_;
};

// Before the process has other threads.
__attribute__((constructor)) void begin() {
  (void)Machine::get();
}

// The C library's own, or that of the library in question.
template <typename Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_fuse_device(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == kFuseDevice;
}

// A file of a FUSE filesystem whose data goes through the page cache. That of a handle that can only write does not: the
// daemon asks for FOPEN_DIRECT_IO.
bool is_cached_file(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if ((flags & O_DIRECT) != 0 || (flags & O_ACCMODE) == O_WRONLY) return false;
  // fstatfs(2) is a request to the daemon. A client uses one descriptor for all that it reads.
  thread_local int known = -1;
  thread_local bool is_fuse = false;
  if (known != descriptor) {
    struct statfs about {};
    is_fuse = ::fstatfs(descriptor, &about) == 0 && about.f_type == kFuseMagic;
    known = descriptor;
  }
  return is_fuse;
}

// The data goes between kernel and process. A request has been taken by whom it holds up, and a caller waits for the
// end of the copy: so who reads sleeps behind the system call, and who writes before it.
void transferred(int descriptor, ssize_t bytes) {
  Machine* const machine = Machine::get();
  if (machine == nullptr || bytes <= 0) return;
  const int kept = errno;
  const auto length = static_cast<size_t>(bytes);
  if (machine->is_client) {
    if (length >= kBytesMin && is_cached_file(descriptor)) machine->work_on(Work::kClient, length, machine->copy);
  } else if (is_fuse_device(descriptor)) {
    machine->work(Work::kRequest, machine->request);
    if (length >= kBytesMin) machine->work_on(Work::kCopy, length, machine->copy);
  }
  errno = kept;
}

void client_transferred(int descriptor, ssize_t bytes) {
  const Machine* const machine = Machine::get();
  if (machine != nullptr && machine->is_client) transferred(descriptor, bytes);
}

size_t length_of(const struct iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

bool is_modelled(const struct iocb& transfer) {
  return (transfer.aio_lio_opcode == IO_CMD_PREAD || transfer.aio_lio_opcode == IO_CMD_PWRITE) &&
         transfer.u.c.nbytes >= kBytesMin && (transfer.u.c.flags & 1U) != 0;
}

uint64_t hash_of_length(size_t length, uint64_t seed) {
  uint64_t mixed = (seed ^ length) * 0x9E3779B97F4A7C15ULL;
  return mixed ^ (mixed >> 29);
}

unsigned cores_told() {
  const Machine* const machine = Machine::get();
  return machine != nullptr ? machine->cores : 0;
}

int sync_modelled(const char* name, int descriptor) {
  if (Machine* const machine = Machine::get()) machine->pause(machine->sync);
  return next_of<int(int)>(name)(descriptor);
}

}  // namespace

extern "C" {

ssize_t read(int descriptor, void* buffer, size_t length) {
  static auto* const next = next_of<ssize_t(int, void*, size_t)>("read");
  const ssize_t result = next(descriptor, buffer, length);
  transferred(descriptor, result);
  return result;
}

ssize_t readv(int descriptor, const struct iovec* parts, int count) {
  static auto* const next = next_of<ssize_t(int, const struct iovec*, int)>("readv");
  const ssize_t result = next(descriptor, parts, count);
  transferred(descriptor, result);
  return result;
}

ssize_t write(int descriptor, const void* buffer, size_t length) {
  static auto* const next = next_of<ssize_t(int, const void*, size_t)>("write");
  transferred(descriptor, static_cast<ssize_t>(length));
  return next(descriptor, buffer, length);
}

ssize_t pread(int descriptor, void* buffer, size_t length, off_t offset) {
  static auto* const next = next_of<ssize_t(int, void*, size_t, off_t)>("pread");
  const ssize_t result = next(descriptor, buffer, length, offset);
  client_transferred(descriptor, result);
  return result;
}

ssize_t pwrite(int descriptor, const void* buffer, size_t length, off_t offset) {
  static auto* const next = next_of<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  client_transferred(descriptor, static_cast<ssize_t>(length));
  return next(descriptor, buffer, length, offset);
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  static auto* const next = next_of<ssize_t(int, const struct iovec*, int)>("writev");
  transferred(descriptor, static_cast<ssize_t>(length_of(parts, count)));
  return next(descriptor, parts, count);
}

// Used before anything can be looked up; and by what looks it up.
void* memcpy(void* __restrict to, const void* __restrict from, size_t length) {
  // By a pointer that the compiler does not see through: it would make a memcpy of it.
  static void* (*volatile const c_library_move)(void*, const void*, size_t) = &::memmove;
  c_library_move(to, from, length);
  if (length >= kBytesMin) {
    Machine* const machine = Machine::get();
    if (machine != nullptr && !machine->is_client) machine->work_on(Work::kMove, length, machine->move);
  }
  return to;
}

// Objects hold nothing, so they need no space: they get their length only.
int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  static auto* const next = next_of<int(int, int, off_t, off_t)>("fallocate");
  const Machine* const machine = Machine::get();
  if (machine == nullptr || machine->is_client || mode != 0) return next(descriptor, mode, offset, length);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return -1;
  return status.st_size >= offset + length ? 0 : ::ftruncate(descriptor, offset + length);
}

uint64_t XXH3_64bits_withSeed_dispatch(const void* data, size_t length, uint64_t seed) {
  static auto* const next = next_of<uint64_t(const void*, size_t, uint64_t)>("XXH3_64bits_withSeed_dispatch");
  Machine* const machine = Machine::get();
  if (machine == nullptr || length < kBytesMin) return next(data, length, seed);
  machine->work_on(Work::kHash, length, machine->hash);
  return hash_of_length(length, seed);
}

int io_submit(io_context_t drive, long count, struct iocb** transfers) {
  static auto* const next = next_of<int(io_context_t, long, struct iocb**)>("io_submit");
  Machine* const machine = Machine::get();
  if (machine == nullptr) return next(drive, count, transfers);
  long done = 0;
  for (; done < count && is_modelled(*transfers[done]); ++done) {
    machine->work(Work::kSubmit, machine->submit);
    machine->drives().start(drive, *transfers[done]);
  }
  // The caller offers the rest again.
  return done > 0 ? static_cast<int>(done) : next(drive, 1, transfers);
}

int io_getevents(io_context_t drive, long min, long count, struct io_event* events, struct timespec* timeout) {
  static auto* const next = next_of<int(io_context_t, long, long, struct io_event*, struct timespec*)>("io_getevents");
  Machine* const machine = Machine::get();
  const int taken = machine != nullptr ? machine->drives().take(drive, static_cast<int>(count), events) : 0;
  return taken > 0 ? taken : next(drive, min, count, events, timeout);
}

int fsync(int descriptor) {
  return sync_modelled("fsync", descriptor);
}
int fdatasync(int descriptor) {
  return sync_modelled("fdatasync", descriptor);
}

int get_nprocs() noexcept {
  static auto* const next = next_of<int()>("get_nprocs");
  return cores_told() > 0 ? static_cast<int>(cores_told()) : next();
}

long sysconf(int name) noexcept {
  static auto* const next = next_of<long(int)>("sysconf");
  if (name == _SC_NPROCESSORS_ONLN && cores_told() > 0) return cores_told();
  return next(name);
}

int sched_getaffinity(pid_t process, size_t length, cpu_set_t* set) noexcept {
  static auto* const next = next_of<int(pid_t, size_t, cpu_set_t*)>("sched_getaffinity");
  const int result = next(process, length, set);
  if (result != 0 || cores_told() == 0) return result;
  std::memset(set, 0, length);
  for (unsigned core = 0; core < cores_told() && core / 8 < length; ++core) CPU_SET_S(core, length, set);
  return 0;
}

}  // extern "C"
