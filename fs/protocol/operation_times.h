// OperationTimes: what requests came to, by operation: how many were answered, how long that took, what failed, and the
// bytes of reads and writes. Counted in every mount: `fpfs stats` and the metrics both show these numbers.
//
//   a request was received → begin()  ...  its answer was sent, by any thread → end()
//
// What is counted is what reaches the daemon: what the kernel answers from its caches does not. The time that a request
// waited in the kernel is not in it either.
//
// Thread safety: all methods from any thread. A request costs a compare-and-swap and four additions, none of them on a
// line of memory that all threads share.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "engine/base/mutex.h"
#include "fs/protocol/request_slots.h"

namespace fpfs {

// What requests of the kernel are counted as.
enum class Operation : uint8_t {
  kLookup,
  kGetattr,
  kSetattr,  // chmod, chown, utimens, truncate
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kFlush,  // close(2): where durable=close commits
  kFsync,  // of files and directories: commits
  kRelease,
  kUnlink,
  kRmdir,
  kRename,
  kMkdir,
  kLink,     // link, symlink, mknod
  kReaddir,  // readdir, readdirplus
  kGetxattr,
  kSetxattr,
  kStatfs,
  kFallocate,
  kIoctl,
  kOther,
};
constexpr size_t kOperations = static_cast<size_t>(Operation::kOther) + 1;
const char* to_string(Operation operation);  // "lookup", "getattr", ...
Operation operation_of(uint32_t opcode);

// Why a request failed.
enum class Failure : uint8_t {
  kIo,         // EIO, EROFS and what else is the fault of drives or of the daemon
  kSpace,      // ENOSPC, EDQUOT, EFBIG
  kResources,  // ENOMEM, EMFILE, ENFILE, EAGAIN, EBUSY
  kCaller,     // a missing right, an attribute that is not there, and the like: part of normal use
};
constexpr size_t kFailures = static_cast<size_t>(Failure::kCaller) + 1;
const char* to_string(Failure failure);  // "io", "space", "resources", "caller"
Failure failure_of(int errno_value);

// Durations in steps of a factor of two: bucket b has what took at most latency_bound_us(b), the last one all longer.
constexpr size_t kLatencyBuckets = 26;
constexpr uint64_t latency_bound_us(size_t bucket) {
  return uint64_t{4} << bucket;  // 4 us .. 67 s
}
size_t latency_bucket(uint64_t duration_ns);

struct OperationTotals {
  std::array<uint64_t, kLatencyBuckets> buckets{};  // answers, failures among them
  std::array<uint64_t, kFailures> failures{};
  uint64_t duration_ns = 0;  // of all together
  uint64_t count() const;
};

class OperationTimes {
 public:
  struct Totals {
    std::array<OperationTotals, kOperations> operations{};
    uint64_t bytes_read = 0, bytes_written = 0;  // of applications, that were answered
    uint64_t under_way = 0;                      // not answered yet
  };

  // `unique` tells requests under way apart. What is never answered (FORGET), or before there is a mount (INIT), is
  // left out.
  void begin(uint64_t unique, uint32_t opcode, uint64_t now_ns);
  // `parts`: the answer as it was sent, an OutHeader and what follows. Nothing of a request that did not begin, or was
  // answered before.
  void end(const struct iovec* parts, int count, uint64_t now_ns);
  // Since the mount. Not of one moment: what is answered meanwhile is in it or not.
  Totals totals() const;

 private:
  struct Request {
    uint64_t began_ns = 0;
    Operation operation = Operation::kOther;
  };
  // A request under way, in the place that its number leads to.
  struct alignas(64) Slot {
    std::atomic<uint64_t> unique{0};  // 0: free. Who has it owns the rest.
    std::atomic<uint64_t> began_ns{0};
    std::atomic<Operation> operation{Operation::kOther};
  };
  // Threads count in different ones.
  struct alignas(64) OperationCounts {
    std::array<std::atomic<uint64_t>, kLatencyBuckets> buckets{};
    std::array<std::atomic<uint64_t>, kFailures> failures{};
    std::atomic<uint64_t> duration_ns{0}, bytes{0};
  };
  using Shard = std::array<OperationCounts, kOperations>;
  static constexpr size_t kShards = 16;

  bool take(uint64_t unique, Request& request);
  static Shard& own(std::array<Shard, kShards>& shards);

  const std::unique_ptr<RequestSlots<Slot>> slots_ = std::make_unique<RequestSlots<Slot>>();
  const std::unique_ptr<std::array<Shard, kShards>> shards_ = std::make_unique<std::array<Shard, kShards>>();
  // Whose place is taken: with many under way, and while one waits long.
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, Request> others_ FPFS_GUARDED_BY(mutex_);
  std::atomic<size_t> others_count_{0};
};

}  // namespace fpfs
