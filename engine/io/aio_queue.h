// AioQueue: the IoQueue of production. One thread and one libaio context for one member.
//
// The thread takes requests from the inbox, prepares them, submits them, reaps and completes them. It sleeps in one
// place, on an eventfd that the kernel signals for completions and submit() for arrivals. While as much is on the drive as
// may be, arrivals do not wake it: for who submits, that is a switch to another processor. A request that is longer than
// a transfer may be goes to the drive in pieces, one after another. A read that fails with EIO is repeated once, with
// nothing else on the drive, as the drive may have got it in one request with a neighbour that cannot be read. Buffered
// handles go through the same queue; io_submit then does the transfer.
//
// Possible failures of a transfer, in complete(), all with member, offset and length: the errno of the transfer
// (kIoError, kNoSpace, ...); kIoError for a short count that is not the end of the file or that does not go on after
// kContinuationsMax tries; kSystem when the kernel did not take the request (EAGAIN) for a second with none in flight.
#pragma once

#include <libaio.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/file_descriptor.h"
#include "engine/base/mutex.h"
#include "engine/base/units.h"
#include "engine/io/io_queue.h"

namespace fpfs {

class AioQueue final : public IoQueue {
 public:
  struct Counters {
    uint64_t bytes_read = 0, bytes_written = 0;
    uint64_t errors = 0;       // requests that completed with a failure
    uint64_t in_flight = 0;    // on the drive now
    uint64_t waiting = 0;      // submitted, not yet on the drive
    uint64_t transfer_ns = 0;  // sum over completed transfers of the time on the drive
    uint64_t transfers = 0;    // completed transfers
    uint64_t submissions = 0;  // calls that gave transfers to the kernel
  };
  // At most this many pieces for one request whose transfers keep coming back short.
  static constexpr unsigned kContinuationsMax = 16;

  // `member` is for messages and the thread's name. A depth of 1 .. 4096, a batch of 1 or more. kSystem when the kernel
  // gives no context: the message says which limit to raise.
  static Result<std::unique_ptr<AioQueue>> create(MemberIndex member, const QueueSettings& settings);
  // Waits until everything that was submitted has completed. No submit() by others may run or follow.
  ~AioQueue() override;
  void submit(IoRequest& request) override;
  bool is_idle() const override { return state_.load(std::memory_order_relaxed) != State::kAwake; }
  void fail_waiting(const Status& failure) override;
  uint64_t oldest_transfer_ns() const override;
  Counters counters() const;

 private:
  enum class State : uint8_t {
    kAwake,
    kAsleep,  // until something arrives, or something on the drive ends
    kFull,    // until something on the drive ends: no more goes there, so it need not know what arrives
  };
  // One transfer on the drive or ready for it; outlives its iocb in the kernel.
  struct Slot {
    struct iocb block {};
    IoRequest* request = nullptr;
    uint32_t asked = 0;  // bytes of the transfer
    unsigned continuations = 0;
    bool repeated = false;
    std::atomic<uint64_t> began_ns{0};  // given to the kernel; 0: not there
  };

  AioQueue(MemberIndex member, const QueueSettings& settings, io_context_t context, FileDescriptor event);
  void run();
  void take_inbox() FPFS_REQUIRES(pending_mutex_);
  IoRequest* next_pending();
  bool has_pending();
  bool others_wait();
  bool prepare_some();
  bool submit_ready(size_t count_max);
  bool submit_repetition();
  bool reap();
  void sleep();
  void fill(Slot& slot);
  void transferred(Slot& slot, int64_t result);
  Status judge_short(const IoRequest& request, unsigned continuations, bool* go_on);
  void finish(Slot& slot, const Status& status);
  void complete(IoRequest& request, const Status& status);
  Status place(const IoRequest& request, const Status& status) const;

  const MemberIndex member_;
  const QueueSettings settings_;
  io_context_t context_;
  const FileDescriptor event_;  // eventfd

  // Shared with submitters. See submit() and sleep() for the order between them.
  std::atomic<IoRequest*> inbox_{nullptr};  // a stack, newest first
  std::atomic<State> state_{State::kAwake};
  std::atomic<bool> stopping_{false};

  // Taken from the inbox, in order of arrival. The thread's, but for fail_waiting().
  Mutex pending_mutex_;
  IoList pending_ FPFS_GUARDED_BY(pending_mutex_);

  // The thread's own.
  std::vector<Slot> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<struct iocb*> ready_;  // prepared, to be given to io_submit; at most depth_
  std::vector<struct io_event> events_;
  unsigned in_flight_ = 0;
  std::deque<Slot*> repetitions_;  // reads that failed and have not been repeated yet
  Slot* repeating_ = nullptr;      // the one of them that has its turn: ready or in flight
  unsigned refusals_ = 0;          // consecutive EAGAIN of io_submit with nothing in flight

  struct {
    std::atomic<uint64_t> bytes_read{0}, bytes_written{0}, errors{0}, in_flight{0}, waiting{0};
    std::atomic<uint64_t> transfer_ns{0}, transfers{0}, submissions{0};
  } counted_;

  std::thread thread_;  // last: started when everything else is there
};

}  // namespace fpfs
