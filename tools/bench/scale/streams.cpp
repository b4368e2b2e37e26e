// Streams at once: a process for each path that writes the file, or reads it, block by block, for a while. Prints JSON:
// the bytes a second of all together, from the first block that ends after half of the time to the last one, and how many
// bytes there were in all.
//
//   fpfs-bench-streams write|fill|read SECONDS BLOCK cached|direct PATH[@OFFSET]...
//   fpfs-bench-streams make            LENGTH  BLOCK cached|direct PATH...
//
// write: a new file that grows. fill: a file that has its length (1 GiB) before it is written. make: files of this length,
// whatever time it takes. A reader that comes to the end of its file ends the measurement; OFFSET is where it begins.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBlocksMax = 1 << 16;
constexpr off_t kFilled = off_t{1} << 30;

struct Plan {
  std::string mode;
  double amount = 0;
  size_t block = 0;
  int flags = 0;
  std::vector<std::string> paths;

  bool reads() const { return mode == "read"; }
  bool is_timed() const { return mode != "make"; }
};

// What one process shares with its parent.
struct Stream {
  std::atomic<uint32_t> count;
  std::atomic<int> failure;
  std::atomic<double> end_of_file;  // seconds; 0: not seen
  double ended[kBlocksMax];         // when each block was done, seconds
};

struct Shared {
  std::atomic<unsigned> ready;
  std::atomic<double> begin;  // seconds of the clock; 0: not yet
};

double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

template <typename Type>
Type* share(size_t count) {
  void* const memory =
      ::mmap(nullptr, sizeof(Type) * count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::exit(1);
  return static_cast<Type*>(memory);
}

int open_stream(const Plan& plan, const std::string& path, off_t& offset) {
  const size_t at = path.rfind('@');
  offset = at == std::string::npos ? 0 : std::strtoll(path.c_str() + at + 1, nullptr, 10);
  const int flags = plan.reads() ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
  const int file = ::open(path.substr(0, at).c_str(), flags | plan.flags, 0600);
  if (file >= 0 && plan.mode == "fill" && ::ftruncate(file, kFilled) != 0) return -1;
  return file;
}

// The errno of what failed, or 0.
int transfer(const Plan& plan, const std::string& path, Shared& shared, Stream& own) {
  off_t offset = 0;
  const int file = open_stream(plan, path, offset);
  void* const block = std::aligned_alloc(4096, plan.block);
  if (file < 0 || block == nullptr) return errno;
  std::memset(block, 0x5A, plan.block);
  shared.ready.fetch_add(1);
  while (shared.begin.load() == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  const double end = shared.begin.load() + plan.amount;
  const auto length = static_cast<off_t>(plan.amount);
  for (off_t done = 0; plan.is_timed() ? now() < end : done < length; done += static_cast<off_t>(plan.block)) {
    if (plan.mode == "fill") offset %= kFilled;
    const ssize_t moved =
        plan.reads() ? ::pread(file, block, plan.block, offset) : ::pwrite(file, block, plan.block, offset);
    if (moved < 0) return errno;
    if (static_cast<size_t>(moved) < plan.block) {
      own.end_of_file.store(now());
      break;
    }
    offset += moved;
    const uint32_t count = own.count.load();
    if (count == kBlocksMax) return EOVERFLOW;
    own.ended[count] = now();
    own.count.store(count + 1);
  }
  return ::close(file) == 0 ? 0 : errno;
}

int report(const Plan& plan, double begin, const Stream* streams) {
  double to = plan.is_timed() ? begin + plan.amount : 1e300;
  std::vector<double> ended;
  for (size_t i = 0; i < plan.paths.size(); ++i) {
    const double end_of_file = streams[i].end_of_file.load();
    if (end_of_file > 0) to = std::min(to, end_of_file);
    ended.insert(ended.end(), streams[i].ended, streams[i].ended + streams[i].count.load());
  }
  const size_t blocks = ended.size();
  const double from = plan.is_timed() ? begin + (to - begin) / 2 : begin;
  std::sort(ended.begin(), ended.end());
  ended.erase(std::upper_bound(ended.begin(), ended.end(), to), ended.end());
  const auto later = std::lower_bound(ended.begin(), ended.end(), from);
  // When no stream is sure to have ended two in the second half, all count: blocks of several streams end at one moment.
  if (static_cast<size_t>(ended.end() - later) > plan.paths.size())
    ended.erase(ended.begin(), later);
  else
    ended.insert(ended.begin(), begin);
  if (ended.size() < 2) {
    std::fprintf(stderr, "fpfs-bench-streams: no block was done in this time\n");
    return 1;
  }
  const double seconds = ended.back() - ended.front();
  std::printf("{\"rate\": %.0f, \"seconds\": %.6f, \"bytes\": %zu}\n",
              static_cast<double>((ended.size() - 1) * plan.block) / seconds, seconds, blocks * plan.block);
  return 0;
}

int run(const Plan& plan) {
  auto* const shared = share<Shared>(1);
  auto* const streams = share<Stream>(plan.paths.size());
  for (size_t i = 0; i < plan.paths.size(); ++i) {
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child > 0) continue;
    streams[i].failure.store(transfer(plan, plan.paths[i], *shared, streams[i]));
    shared->ready.fetch_add(streams[i].failure.load() != 0 ? 1 : 0);
    ::_exit(0);
  }
  while (shared->ready.load() < plan.paths.size()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const double begin = now();
  shared->begin.store(begin);
  while (::wait(nullptr) > 0) continue;
  for (size_t i = 0; i < plan.paths.size(); ++i)
    if (const int failure = streams[i].failure.load(); failure != 0) {
      std::fprintf(stderr, "fpfs-bench-streams: %s: %s\n", plan.paths[i].c_str(), std::strerror(failure));
      return 1;
    }
  return report(plan, begin, streams);
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> given(words + 1, words + count);
  if (given.size() < 5) {
    std::fprintf(stderr, "usage: fpfs-bench-streams write|fill|read|make SECONDS|LENGTH BLOCK cached|direct PATH...\n");
    return 2;
  }
  Plan plan;
  plan.mode = given[0];
  plan.amount = std::strtod(given[1].c_str(), nullptr);
  plan.block = std::strtoull(given[2].c_str(), nullptr, 10);
  plan.flags = given[3] == "direct" ? O_DIRECT : 0;
  plan.paths.assign(given.begin() + 4, given.end());
  return run(plan);
}
