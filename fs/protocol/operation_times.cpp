#include "fs/protocol/operation_times.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "engine/base/thread_number.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

constexpr std::array<const char*, kOperations> kOperationNames = {
    "lookup",   "getattr",  "setattr", "open",      "create", "read",  "write", "flush",
    "fsync",    "release",  "unlink",  "rmdir",     "rename", "mkdir", "link",  "readdir",
    "getxattr", "setxattr", "statfs",  "fallocate", "ioctl",  "other"};
constexpr std::array<const char*, kFailures> kFailureNames = {"io", "space", "resources", "caller"};

// By opcode of the kernel's protocol (include/uapi/linux/fuse.h).
constexpr size_t kOpcodes = 52;
constexpr std::array<Operation, kOpcodes> make_table() {
  std::array<Operation, kOpcodes> table{};
  for (Operation& operation : table) operation = Operation::kOther;
  table[1] = Operation::kLookup;
  table[wire::kOpcodeGetAttributes] = Operation::kGetattr;
  table[4] = Operation::kSetattr;
  table[6] = table[8] = table[13] = Operation::kLink;  // SYMLINK, MKNOD, LINK
  table[9] = Operation::kMkdir;
  table[10] = Operation::kUnlink;
  table[11] = Operation::kRmdir;
  table[12] = table[45] = Operation::kRename;  // RENAME2
  table[wire::kOpcodeOpen] = Operation::kOpen;
  table[wire::kOpcodeRead] = Operation::kRead;
  table[wire::kOpcodeWrite] = Operation::kWrite;
  table[wire::kOpcodeStatfs] = Operation::kStatfs;
  table[wire::kOpcodeRelease] = Operation::kRelease;
  table[wire::kOpcodeFsync] = table[30] = Operation::kFsync;        // FSYNCDIR
  table[21] = table[24] = Operation::kSetxattr;                     // REMOVEXATTR
  table[wire::kOpcodeGetXattr] = table[23] = Operation::kGetxattr;  // LISTXATTR
  table[wire::kOpcodeFlush] = Operation::kFlush;
  table[28] = table[44] = Operation::kReaddir;  // READDIRPLUS
  table[wire::kOpcodeCreate] = table[wire::kOpcodeTemporaryFile] = Operation::kCreate;
  table[wire::kOpcodeIoctl] = Operation::kIoctl;
  table[43] = Operation::kFallocate;
  return table;
}
constexpr std::array<Operation, kOpcodes> kTable = make_table();

bool is_counted(uint32_t opcode) {
  return wire::is_answered(opcode) && opcode != wire::kOpcodeInit && opcode != wire::kOpcodeDestroy;
}

// What a READ was answered with, or a WRITE.
uint64_t bytes_of(Operation operation, const struct iovec* parts, int count) {
  uint64_t bytes = 0;
  if (operation == Operation::kRead)
    for (int part = 1; part < count; ++part) bytes += parts[part].iov_len;
  uint32_t written = 0;  // what the answer to a WRITE begins with
  if (operation == Operation::kWrite && count > 1 && parts[1].iov_len >= sizeof written) {
    std::memcpy(&written, parts[1].iov_base, sizeof written);
    bytes = written;
  }
  return bytes;
}

void add(std::atomic<uint64_t>& counter, uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

const char* to_string(Operation operation) {
  return kOperationNames[static_cast<size_t>(operation)];
}

const char* to_string(Failure failure) {
  return kFailureNames[static_cast<size_t>(failure)];
}

Operation operation_of(uint32_t opcode) {
  return opcode < kOpcodes ? kTable[opcode] : Operation::kOther;
}

Failure failure_of(int errno_value) {
  switch (errno_value) {
    case EIO:
    case EROFS:
    case ETIMEDOUT:
    case EUCLEAN:
    case EBADMSG:
      return Failure::kIo;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Failure::kSpace;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EBUSY:
      return Failure::kResources;
    default:
      return Failure::kCaller;
  }
}

size_t latency_bucket(uint64_t duration_ns) {
  // Rounded up, as a bound belongs to its bucket.
  const uint64_t quanta = (duration_ns + latency_bound_us(0) * 1000 - 1) / (latency_bound_us(0) * 1000);
  return quanta <= 1 ? 0 : std::min<size_t>(static_cast<size_t>(std::bit_width(quanta - 1)), kLatencyBuckets - 1);
}

uint64_t OperationTotals::count() const {
  return std::accumulate(buckets.begin(), buckets.end(), uint64_t{0});
}

void OperationTimes::begin(uint64_t unique, uint32_t opcode, uint64_t now_ns) {
  if (!is_counted(opcode) || unique == 0) return;
  const Request request{now_ns, operation_of(opcode)};
  Slot& slot = slots_->of(unique);
  uint64_t free = 0;
  if (slot.unique.compare_exchange_strong(free, unique, std::memory_order_acquire, std::memory_order_relaxed)) {
    slot.began_ns.store(now_ns, std::memory_order_relaxed);
    slot.operation.store(request.operation, std::memory_order_relaxed);
    return;
  }
  const MutexLock lock(mutex_);
  others_[unique] = request;
  others_count_.store(others_.size(), std::memory_order_relaxed);
}

// Whoever answers a request was handed it by the thread that began it, and sees what that wrote.
bool OperationTimes::take(uint64_t unique, Request& request) {
  Slot& slot = slots_->of(unique);
  if (slot.unique.load(std::memory_order_relaxed) == unique) {
    request = {slot.began_ns.load(std::memory_order_relaxed), slot.operation.load(std::memory_order_relaxed)};
    uint64_t expected = unique;
    return slot.unique.compare_exchange_strong(expected, 0, std::memory_order_release, std::memory_order_relaxed);
  }
  if (others_count_.load(std::memory_order_relaxed) == 0) return false;
  const MutexLock lock(mutex_);
  const auto found = others_.find(unique);
  if (found == others_.end()) return false;
  request = found->second;
  others_.erase(found);
  others_count_.store(others_.size(), std::memory_order_relaxed);
  return true;
}

OperationTimes::Shard& OperationTimes::own(std::array<Shard, kShards>& shards) {
  return shards[thread_number() % kShards];
}

void OperationTimes::end(const struct iovec* parts, int count, uint64_t now_ns) {
  wire::OutHeader header{};
  std::memcpy(&header, parts[0].iov_base, sizeof header);
  Request request;
  if (!take(header.unique, request)) return;
  OperationCounts& counts = own(*shards_)[static_cast<size_t>(request.operation)];
  const uint64_t duration = now_ns - std::min(now_ns, request.began_ns);
  add(counts.buckets[latency_bucket(duration)], 1);
  add(counts.duration_ns, duration);
  if (header.error != 0)
    add(counts.failures[static_cast<size_t>(failure_of(-header.error))], 1);
  else if (const uint64_t bytes = bytes_of(request.operation, parts, count); bytes > 0)
    add(counts.bytes, bytes);
}

OperationTimes::Totals OperationTimes::totals() const {
  Totals totals;
  for (size_t operation = 0; operation < kOperations; ++operation) {
    OperationTotals& sum = totals.operations[operation];
    uint64_t bytes = 0;
    for (const Shard& shard : *shards_) {
      const OperationCounts& counts = shard[operation];
      for (size_t b = 0; b < kLatencyBuckets; ++b) sum.buckets[b] += counts.buckets[b].load(std::memory_order_relaxed);
      for (size_t f = 0; f < kFailures; ++f) sum.failures[f] += counts.failures[f].load(std::memory_order_relaxed);
      sum.duration_ns += counts.duration_ns.load(std::memory_order_relaxed);
      bytes += counts.bytes.load(std::memory_order_relaxed);
    }
    if (operation == static_cast<size_t>(Operation::kRead)) totals.bytes_read = bytes;
    if (operation == static_cast<size_t>(Operation::kWrite)) totals.bytes_written = bytes;
  }
  for (const Slot& slot : *slots_)
    if (slot.unique.load(std::memory_order_relaxed) != 0) ++totals.under_way;
  totals.under_way += others_count_.load(std::memory_order_relaxed);
  return totals;
}

}  // namespace fpfs
