// IoQueue: the asynchronous data path to one member. O_DIRECT transfers of pool buffers, many in flight.
//
// The caller embeds an IoRequest in its own object and owns it until `complete` is called, exactly once per submit().
// Both hooks run on the queue's own thread (SimIoQueue: on the test's thread, in seeded order), never on the caller's
// and never inside submit(), so a caller may hold its locks while submitting. The exception is fail_waiting().
//
//   submit() ─→ [bounded by the caller: one request per pool buffer] ─→ prepare() ─→ transfer ─→ complete()
//
// prepare() is where the work next to the transfer happens (open or preallocate an object; hash a chunk, when nobody
// else waits for the thread), off the threads that answer FUSE requests; it fills in what only it knows (handle,
// offset). When it fails the transfer is skipped and complete() gets its Status.
//
// Completions carry the whole outcome: a negative result and a short count are both failures (kIoError, with offset and
// length), except that a read short at end of file sets `transferred` and succeeds, and a short write that moved some
// whole blocks is continued.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/intrusive_list.h"
#include "engine/base/status.h"
#include "engine/io/storage.h"

namespace fpfs {

struct IoRequest {
  enum class Kind : uint8_t { kRead, kWrite };

  // Filled in by the owner before submit(), or by prepare().
  Kind kind = Kind::kRead;
  Handle handle = kNoHandle;
  std::byte* data = nullptr;                        // aligned to kIoAlignment
  uint64_t offset = 0;                              // in the file, a multiple of kIoAlignment
  uint32_t length = 0;                              // bytes, a multiple of kIoAlignment
  Status (*prepare)(IoRequest& request) = nullptr;  // optional
  void (*complete)(IoRequest& request, const Status& status) = nullptr;
  void* owner = nullptr;  // for the hooks

  // Set by the queue.
  uint32_t transferred = 0;

  // The queue's own while submitted.
  IoRequest* next = nullptr;  // of what was just submitted, the latest first
  ListLink<IoRequest> link;   // of what waits
  uint32_t done = 0;
  uint64_t submitted_ns = 0;
};

using IoList = IntrusiveList<IoRequest, &IoRequest::link>;

// How the queue of a member uses its drive. Fixed when it is made.
struct QueueSettings {
  unsigned depth = 16;  // requests on the drive at a time
  // Transfers that are given to the kernel in one call, once some are on the drive. 1: each is given by itself.
  unsigned batch = 4;
  // Bytes of one transfer, a multiple of kIoAlignment: a longer request is several, one after another, and counts as
  // one of `depth` all the time. 0: every request is one transfer.
  uint32_t transfer_max = 0;
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // Thread-safe, does not block, does not fail: failures come through complete().
  virtual void submit(IoRequest& request) = 0;
  // The queue's own thread has nothing to do but wait for its drive, whatever waits for that as well. Otherwise what
  // prepare() would take long for is better done before, elsewhere. From any thread; a moment later it may be otherwise.
  virtual bool is_idle() const { return true; }
  // For a member that hangs: completes with `failure`, on the caller's thread, every request that is not on the drive.
  // What is on the drive keeps its memory until the drive gives it back, if ever: complete() is called then.
  virtual void fail_waiting(const Status& failure) { static_cast<void>(failure); }
  // Since when (monotonic_ns()) the oldest transfer is on the drive; 0: none is.
  virtual uint64_t oldest_transfer_ns() const { return 0; }
};

}  // namespace fpfs
