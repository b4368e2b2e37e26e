// RingEntry and RingEntries: requests that come through io_uring (fs/transport/request_ring.h) and where their answers
// go.
//
// An entry is memory that is shared with the kernel and holds one request, then its answer. A request gets a number of
// the daemon's own in the place of the kernel's, which says what entry it is in, so that any thread can answer it.
//
//   kernel: request ─► begin_request() ─► handled ... answer(), once, by any thread ─► kernel takes it, puts the next
//
// Thread safety: of an entry, answer() from any thread, the rest from its owner's. RingEntries: all methods from any.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {

class RingEntry {
 public:
  ~RingEntry();
  RingEntry(const RingEntry&) = delete;
  RingEntry& operator=(const RingEntry&) = delete;

  unsigned queue() const { return queue_; }  // the processor whose callers' requests it takes
  wire::RingEntryHeader& header() { return *reinterpret_cast<wire::RingEntryHeader*>(mapping_); }
  std::span<std::byte> payload() { return {mapping_ + kHeaderBytes, payload_bytes_}; }

  // The kernel has put a request in: gives it its number. It is answered when answer() returned true for that.
  void begin_request();
  uint64_t unique() const { return unique_of(state_.load(std::memory_order_relaxed)); }
  // `parts`: an OutHeader and what follows it, as for /dev/fuse. False: it was answered before, or is another's.
  bool answer(uint64_t unique, const struct iovec* parts, int count);
  bool is_answered() const;
  void wait_until_answered() const;
  // How much the request in hand holds behind the header and the first argument; false: its lengths contradict each
  // other.
  bool measure(size_t& operation_bytes, size_t& payload_bytes);

 private:
  friend class RingEntries;
  RingEntry(std::byte* mapping, size_t payload_bytes, unsigned queue, uint64_t index);
  enum State : uint64_t { kAnswered, kOpen, kAnswering };
  uint64_t unique_of(uint64_t state) const;

  static constexpr size_t kHeaderBytes = 4096;
  std::byte* const mapping_;
  const size_t payload_bytes_;
  const unsigned queue_;
  const uint64_t index_;
  std::atomic<uint64_t> state_{kAnswered};  // a State, and above it how many requests there were
  // For who waits; std::atomic's own wait() spins first, which takes the processor from who is to answer.
  mutable Mutex mutex_;
  mutable CondVar answered_;
};

class RingEntries {
 public:
  // For `queues` processors and payloads of up to `payload_bytes`; `limit` entries at most.
  RingEntries(size_t limit, size_t payload_bytes);
  ~RingEntries();
  // kUnavailable when there are `limit`, kSystem when there is no memory.
  Result<RingEntry*> add(unsigned queue);

  // Whether a request's number is one of these.
  static bool has_number(uint64_t unique) { return (unique & kMark) != 0; }
  // As writev(2) to /dev/fuse would: the bytes, or -1 with errno ENOENT when nobody waits for the answer.
  ssize_t answer(const struct iovec* parts, int count);

 private:
  friend class RingEntry;
  static constexpr uint64_t kMark = uint64_t{1} << 62;  // the kernel counts from 0
  static constexpr unsigned kIndexShift = 40;

  const size_t limit_;
  const size_t payload_bytes_;
  const std::unique_ptr<std::atomic<RingEntry*>[]> entries_;
  Mutex mutex_;
  size_t count_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
