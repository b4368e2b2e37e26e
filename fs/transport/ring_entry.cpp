#include "fs/transport/ring_entry.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "engine/base/log.h"
#include "engine/base/units.h"

namespace fpfs {
namespace {

constexpr unsigned kStateBits = 2;
constexpr uint64_t kStateMask = (1U << kStateBits) - 1;
constexpr uint64_t kOneRequest = 1U << kStateBits;

size_t bytes_behind_header(const struct iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 1; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

}  // namespace

RingEntry::RingEntry(std::byte* mapping, size_t payload_bytes, unsigned queue, uint64_t index)
    : mapping_(mapping), payload_bytes_(payload_bytes), queue_(queue), index_(index) {}

RingEntry::~RingEntry() {
  ::munmap(mapping_, kHeaderBytes + payload_bytes_);
}

uint64_t RingEntry::unique_of(uint64_t state) const {
  // The lowest bit says "interrupt" in FUSE.
  const uint64_t number = (state >> kStateBits << 1) & ((uint64_t{1} << RingEntries::kIndexShift) - 1);
  return RingEntries::kMark | index_ << RingEntries::kIndexShift | number;
}

void RingEntry::begin_request() {
  const uint64_t last = state_.load(std::memory_order_relaxed) & ~kStateMask;
  state_.store((last + kOneRequest) | kOpen, std::memory_order_release);
}

bool RingEntry::measure(size_t& operation_bytes, size_t& payload_bytes) {
  wire::InHeader in;
  std::memcpy(&in, header().in_out, sizeof in);
  payload_bytes = header().payload_bytes;
  if (payload_bytes > payload_bytes_ || in.length < sizeof in + payload_bytes) return false;
  operation_bytes = in.length - sizeof in - payload_bytes;
  return operation_bytes <= sizeof header().operation;
}

bool RingEntry::answer(uint64_t unique, const struct iovec* parts, int count) {
  uint64_t state = state_.load(std::memory_order_acquire);
  if ((state & kStateMask) != kOpen || unique_of(state) != unique) return false;
  if (!state_.compare_exchange_strong(state, (state & ~kStateMask) | kAnswering, std::memory_order_acquire))
    return false;
  wire::OutHeader out;
  std::memcpy(&out, parts[0].iov_base, sizeof out);
  size_t bytes = bytes_behind_header(parts, count);
  if (bytes > payload_bytes_) {
    log(LogLevel::kError, "an answer of {} bytes is longer than the {} agreed with the kernel; it is EIO instead",
        bytes, payload_bytes_);
    out.error = -EIO;
    count = 1;
    bytes = 0;
  }
  std::byte* to = mapping_ + kHeaderBytes;
  for (int i = 1; i < count; ++i) {
    std::memcpy(to, parts[i].iov_base, parts[i].iov_len);
    to += parts[i].iov_len;
  }
  out.unique = header().commit_id;
  std::memcpy(header().in_out, &out, sizeof out);
  header().payload_bytes = static_cast<uint32_t>(bytes);
  {
    const MutexLock lock(mutex_);
    state_.store((state & ~kStateMask) | kAnswered, std::memory_order_release);
  }
  answered_.notify_one();
  return true;
}

bool RingEntry::is_answered() const {
  return (state_.load(std::memory_order_acquire) & kStateMask) == kAnswered;
}

void RingEntry::wait_until_answered() const {
  const MutexLock lock(mutex_);
  while (!is_answered()) answered_.wait(mutex_);
}

RingEntries::RingEntries(size_t limit, size_t payload_bytes)
    : limit_(limit), payload_bytes_(payload_bytes), entries_(new std::atomic<RingEntry*>[limit]) {
  for (size_t i = 0; i < limit_; ++i) entries_[i].store(nullptr, std::memory_order_relaxed);
}

RingEntries::~RingEntries() {
  for (size_t i = 0; i < limit_; ++i) delete entries_[i].load(std::memory_order_relaxed);
}

Result<RingEntry*> RingEntries::add(unsigned queue) {
  const MutexLock lock(mutex_);
  if (count_ == limit_) return Status::error(StatusCode::kBusy, "there are as many ring entries as there may be");
  const size_t bytes = RingEntry::kHeaderBytes + payload_bytes_;
  // Pages are touched when first used.
  void* mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return Status::from_errno(errno, "map " + format_size(bytes) + " for a ring entry");
  auto* const entry = new RingEntry(static_cast<std::byte*>(mapping), payload_bytes_, queue, count_);
  entries_[count_++].store(entry, std::memory_order_release);
  return entry;
}

ssize_t RingEntries::answer(const struct iovec* parts, int count) {
  const uint64_t unique = static_cast<const wire::OutHeader*>(parts[0].iov_base)->unique;
  const size_t index = (unique & ~kMark) >> kIndexShift;
  RingEntry* const entry = index < limit_ ? entries_[index].load(std::memory_order_acquire) : nullptr;
  if (entry == nullptr || !entry->answer(unique, parts, count)) {
    errno = ENOENT;
    return -1;
  }
  return static_cast<ssize_t>(sizeof(wire::OutHeader) + bytes_behind_header(parts, count));
}

}  // namespace fpfs
