// AioQueue over a libaio that misbehaves as the kernel is allowed to. This program defines the library's functions
// itself, in front of the real ones, and passes them on to the kernel after its plan.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/aio_queue.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace {

struct Plan {
  std::atomic<int> setup_error{0};
  std::atomic<int> refusals{0};           // so many io_submit calls return -EAGAIN
  std::atomic<long> accepted_max{1000};   // transfers that one io_submit takes
  std::atomic<unsigned long> piece{0};    // bytes that one transfer moves at most; 0: no limit
  std::atomic<int> failed{-1};            // the completion with this number (from 0) turns into `error`
  std::atomic<long long> bad_offset{-1};  // every completion of a transfer that begins there turns into `error`
  std::atomic<int> error{-EIO};
  std::atomic<int> interruptions{0};  // so many io_getevents calls return -EINTR
  std::atomic<int> completions{0};
  std::atomic<int> submits{0};
  std::atomic<int> looks{0};       // calls of io_getevents
  std::atomic<bool> hangs{false};  // no transfer ends
};
Plan plan;

bool spend(std::atomic<int>& budget) {
  if (budget.load() <= 0) return false;
  --budget;
  return true;
}

}  // namespace

extern "C" {

int io_setup(int count, io_context_t* context) {
  if (plan.setup_error != 0) return plan.setup_error;
  return ::syscall(SYS_io_setup, count, context) < 0 ? -errno : 0;
}

int io_submit(io_context_t context, long count, struct iocb** blocks) {
  ++plan.submits;
  if (spend(plan.refusals)) return -EAGAIN;
  count = std::min(count, plan.accepted_max.load());
  if (plan.piece > 0)
    for (long i = 0; i < count; ++i) blocks[i]->u.c.nbytes = std::min(blocks[i]->u.c.nbytes, plan.piece.load());
  const long result = ::syscall(SYS_io_submit, context, count, blocks);
  return result < 0 ? -errno : static_cast<int>(result);
}

int io_getevents(io_context_t context, long min, long max, struct io_event* events, struct timespec* timeout) {
  ++plan.looks;
  if (spend(plan.interruptions)) return -EINTR;
  if (plan.hangs) return 0;
  const long count = ::syscall(SYS_io_getevents, context, min, max, events, timeout);
  for (long i = 0; i < count; ++i)
    if (plan.completions++ == plan.failed || events[i].obj->u.c.offset == plan.bad_offset)
      events[i].res = static_cast<unsigned long>(plan.error.load());
  return count < 0 ? -errno : static_cast<int>(count);
}

}  // extern "C"

namespace fpfs {
namespace {

class AioQueueFaultsTest : public testing::Test {
 protected:
  static constexpr uint32_t kLength = 131072;

  struct Transfer {
    test::AlignedBytes memory{kLength};
    IoRequest request;
    Status status;
    bool completed = false;
  };

  void SetUp() override {
    plan.setup_error = plan.refusals = plan.interruptions = plan.completions = plan.submits = plan.looks = 0;
    plan.accepted_max = 1000;
    plan.piece = 0;
    plan.hangs = false;
    plan.failed = -1;
    plan.bad_offset = -1;
    plan.error = -EIO;
    handle_ = ::open((directory_ / "a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(handle_, 0);
  }
  void TearDown() override { ::close(handle_); }

  // Of piece `number` of the file, to be submitted.
  IoRequest& make(IoRequest::Kind kind, unsigned number) {
    Transfer& transfer = transfers_.emplace_back();
    IoRequest& request = transfer.request;
    request.kind = kind;
    request.handle = handle_;
    request.offset = uint64_t{number} * kLength;
    request.length = kLength;
    request.data = transfer.memory.data();
    request.owner = &transfer;
    request.complete = [](IoRequest& io, const Status& status) {
      auto& self = *static_cast<Transfer*>(io.owner);
      EXPECT_FALSE(self.completed);
      self.status = status;
      self.completed = true;
    };
    if (kind == IoRequest::Kind::kWrite) test::fill(transfer.memory.span(), 3, request.offset);
    return request;
  }
  // Writes `count` pieces of the file, or reads them; returns when all have completed.
  void run(IoRequest::Kind kind, unsigned count, const QueueSettings& settings = {.depth = 4}) {
    transfers_.clear();
    Result<std::unique_ptr<AioQueue>> queue = AioQueue::create(MemberIndex(1), settings);
    ASSERT_TRUE(queue.is_ok()) << queue.status().message();
    for (unsigned i = 0; i < count; ++i) (*queue)->submit(make(kind, i));
  }
  void expect_all_right() {
    for (Transfer& transfer : transfers_) {
      EXPECT_TRUE(transfer.completed);
      EXPECT_TRUE(transfer.status.is_ok()) << transfer.status.message();
      EXPECT_EQ(transfer.request.transferred, kLength);
      EXPECT_EQ(test::first_difference(transfer.memory.span(), 3, transfer.request.offset), kLength);
    }
  }

  test::TemporaryDirectory directory_;
  int handle_ = -1;
  std::deque<Transfer> transfers_;
};

TEST_F(AioQueueFaultsTest, NoContextSaysWhichLimitToRaise) {
  plan.setup_error = -EAGAIN;
  Status status = AioQueue::create(MemberIndex(2), {.depth = 16}).status();
  EXPECT_EQ(status.code(), StatusCode::kSystem);
  EXPECT_NE(status.message().find("raise sysctl fs.aio-max-nr"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("member 2"), std::string::npos) << status.message();
  plan.setup_error = -ENOSYS;
  EXPECT_EQ(AioQueue::create(MemberIndex(2), {.depth = 16}).status().code(), StatusCode::kUnsupported);
  plan.setup_error = -ENOMEM;
  EXPECT_EQ(AioQueue::create(MemberIndex(2), {.depth = 16}).status().errno_value(), ENOMEM);
}

TEST_F(AioQueueFaultsTest, GoesOnAfterRefusals) {
  for (const int refusals : {1, 3, 20}) {
    plan.refusals = refusals;
    run(IoRequest::Kind::kWrite, 20);
    expect_all_right();
  }
}

TEST_F(AioQueueFaultsTest, GivesUpWhenRefusedForTooLong) {
  plan.refusals = 1'000'000;
  run(IoRequest::Kind::kWrite, 1);
  EXPECT_TRUE(transfers_[0].completed);
  EXPECT_EQ(transfers_[0].status.code(), StatusCode::kSystem);
  EXPECT_EQ(transfers_[0].status.member(), 1);
  EXPECT_NE(transfers_[0].status.message().find("EAGAIN"), std::string::npos) << transfers_[0].status.message();
}

TEST_F(AioQueueFaultsTest, TakesPartOfABatch) {
  plan.accepted_max = 1;
  run(IoRequest::Kind::kWrite, 30, {.depth = 8});
  expect_all_right();
  EXPECT_GE(plan.submits, 30);
  run(IoRequest::Kind::kRead, 30, {.depth = 8});
  expect_all_right();
}

TEST_F(AioQueueFaultsTest, ContinuesTransfersThatStopAtWholeBlocks) {
  plan.piece = 32768;
  run(IoRequest::Kind::kWrite, 10);
  expect_all_right();
  run(IoRequest::Kind::kRead, 10);
  expect_all_right();
  EXPECT_EQ(plan.completions, 2 * 10 * 4);
}

TEST_F(AioQueueFaultsTest, DoesNotContinueForEver) {
  run(IoRequest::Kind::kWrite, 2);
  for (const unsigned piece : {2048u, 4096u}) {  // an odd count is the end; whole blocks go on for a while
    plan.piece = piece;
    const unsigned moved = piece == 2048 ? 2048 : 4096 * (AioQueue::kContinuationsMax + 1);
    for (const auto kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
      run(kind, 1);
      EXPECT_EQ(transfers_[0].status.code(), StatusCode::kIoError);
      EXPECT_EQ(transfers_[0].request.transferred, moved);
      EXPECT_NE(transfers_[0].status.message().find(std::to_string(moved) + " of 131072"), std::string::npos)
          << transfers_[0].status.message();
    }
  }
  plan.piece = 0;
  plan.error = 0;  // a transfer that moves nothing and names no error
  for (const auto kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
    plan.completions = 0;
    plan.failed = 0;
    run(kind, 1);
    EXPECT_EQ(transfers_[0].status.code(), StatusCode::kIoError);
  }
}

TEST_F(AioQueueFaultsTest, ADriveErrorReachesItsOwnRequestOnly) {
  run(IoRequest::Kind::kWrite, 20);
  for (const auto kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
    plan.bad_offset = 7 * kLength;
    run(kind, 20);
    unsigned failures = 0;
    for (Transfer& transfer : transfers_) {
      EXPECT_TRUE(transfer.completed);
      if (transfer.status.is_ok()) continue;
      ++failures;
      EXPECT_EQ(transfer.status.code(), StatusCode::kIoError);
      EXPECT_EQ(transfer.status.offset(), transfer.request.offset);
      EXPECT_EQ(transfer.status.length(), kLength);
    }
    EXPECT_EQ(failures, 1u);
  }
}

// What the block layer merged with a bad neighbour.
TEST_F(AioQueueFaultsTest, AReadThatFailedIsRepeatedOnceByItself) {
  run(IoRequest::Kind::kWrite, 20);
  for (const unsigned long piece : {0ul, 32768ul}) {
    plan.piece = piece;
    plan.completions = 0;
    plan.failed = 7;
    run(IoRequest::Kind::kRead, 20);
    expect_all_right();
    EXPECT_EQ(plan.completions, (piece == 0 ? 20 : 20 * 4) + 1);
  }
  plan.piece = 0;
  plan.completions = 0;
  plan.failed = 0;
  run(IoRequest::Kind::kWrite, 1);
  EXPECT_EQ(plan.completions, 1) << "a write is not repeated";
  EXPECT_EQ(transfers_[0].status.code(), StatusCode::kIoError);
}

TEST_F(AioQueueFaultsTest, AFullDriveIsNoSpace) {
  plan.failed = 0;
  plan.error = -ENOSPC;
  run(IoRequest::Kind::kWrite, 1);
  EXPECT_EQ(transfers_[0].status.code(), StatusCode::kNoSpace);
}

TEST_F(AioQueueFaultsTest, AnErrorAfterAShortTransferIsAnError) {
  plan.piece = 32768;
  plan.failed = 2;
  run(IoRequest::Kind::kWrite, 1);
  EXPECT_EQ(transfers_[0].status.code(), StatusCode::kIoError);
  EXPECT_EQ(transfers_[0].request.transferred, 65536u);
}

TEST_F(AioQueueFaultsTest, InterruptionsAreNoErrors) {
  plan.interruptions = 10;
  run(IoRequest::Kind::kWrite, 20);
  expect_all_right();
}

TEST_F(AioQueueFaultsTest, LongRequestsGoInPieces) {
  for (const auto& [transfer_max, pieces] : {std::pair(0U, 1), {kLength, 1}, {65536U, 2}, {49152U, 3}, {4096U, 32}}) {
    const QueueSettings settings = {.depth = 4, .transfer_max = transfer_max};
    for (const IoRequest::Kind kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
      plan.completions = 0;
      run(kind, 5, settings);
      expect_all_right();
      EXPECT_EQ(plan.completions, 5 * pieces) << transfer_max;
    }
  }
  // Short transfers are continued as ever, and so is what lies behind them; too many of them are a failure.
  plan.completions = 0;
  plan.piece = 20480;
  run(IoRequest::Kind::kWrite, 1, {.transfer_max = 32768});
  expect_all_right();
  EXPECT_EQ(plan.completions, 7);
  plan.piece = 4096;
  run(IoRequest::Kind::kWrite, 1, {.transfer_max = 65536});
  EXPECT_EQ(transfers_[0].status.code(), StatusCode::kIoError);
  // The end of the file, at the end of a piece and in one.
  plan.piece = 0;
  for (const uint32_t size : {65536U, 70000U}) {
    ASSERT_EQ(::ftruncate(handle_, size), 0);
    run(IoRequest::Kind::kRead, 1, {.transfer_max = 32768});
    EXPECT_TRUE(transfers_[0].status.is_ok()) << transfers_[0].status.message();
    EXPECT_EQ(transfers_[0].request.transferred, size);
  }
}

TEST_F(AioQueueFaultsTest, TransfersShareCalls) {
  constexpr unsigned kCount = 10;
  // The first two go by themselves (kBusyInFlight); nothing comes back meanwhile.
  for (const auto& [batch, calls] : {std::pair(1U, 10), {3U, 5}, {4U, 4}, {64U, 3}}) {
    transfers_.clear();
    plan.submits = 0;
    plan.hangs = true;
    static std::atomic<bool> all_are_there;
    all_are_there = false;
    Result<std::unique_ptr<AioQueue>> made = AioQueue::create(MemberIndex(1), {.depth = 2 * kCount, .batch = batch});
    ASSERT_TRUE(made.is_ok());
    for (unsigned i = 0; i <= kCount; ++i) {
      IoRequest& request = make(IoRequest::Kind::kWrite, i);
      request.prepare = [](IoRequest&) {
        while (!all_are_there) std::this_thread::yield();
        return Status::ok();
      };
      request.complete = [](IoRequest&, const Status& status) { EXPECT_TRUE(status.is_ok()) << status.message(); };
      if (i < kCount) (*made)->submit(request);
    }
    all_are_there = true;
    for (int i = 0; i < 2000 && (*made)->counters().in_flight < kCount; ++i) ::usleep(1000);
    EXPECT_EQ((*made)->counters().in_flight, kCount);
    EXPECT_EQ(plan.submits, calls) << batch;
    EXPECT_EQ((*made)->counters().submissions, static_cast<uint64_t>(calls));
    plan.hangs = false;
    (*made)->submit(transfers_.back().request);  // wakes the thread: the plan has swallowed the kernel's word
  }
}

TEST_F(AioQueueFaultsTest, WhatIsNotOnAHangingDriveCanBeFailed) {
  constexpr unsigned kDepth = 2, kCount = 7;
  Result<std::unique_ptr<AioQueue>> made = AioQueue::create(MemberIndex(1), {.depth = kDepth});
  ASSERT_TRUE(made.is_ok());
  AioQueue& queue = **made;
  EXPECT_EQ(queue.oldest_transfer_ns(), 0u);
  plan.hangs = true;
  for (unsigned i = 0; i < kCount; ++i) queue.submit(make(IoRequest::Kind::kWrite, i));
  for (int i = 0; i < 2000 && queue.counters().in_flight < kDepth; ++i) ::usleep(1000);
  ASSERT_EQ(queue.counters().in_flight, kDepth);
  EXPECT_NE(queue.oldest_transfer_ns(), 0u);
  queue.fail_waiting(Status::error(StatusCode::kIoError, "it hangs"));
  unsigned failed = 0;
  for (const Transfer& transfer : transfers_) failed += transfer.completed ? 1 : 0;
  EXPECT_EQ(failed, kCount - kDepth);
  EXPECT_EQ(queue.counters().waiting, 0u);
  // The drive answers: what it had ends as if nothing had been. (The end of the queue wakes the thread, which would
  // otherwise wait for the kernel's word, which the plan has swallowed.)
  plan.hangs = false;
  queue.submit(make(IoRequest::Kind::kWrite, kCount));
  made->reset();
  unsigned written = 0;
  for (const Transfer& transfer : transfers_) {
    EXPECT_TRUE(transfer.completed);
    written += transfer.status.is_ok() ? 1 : 0;
    if (!transfer.status.is_ok()) {
      EXPECT_NE(transfer.status.message().find("it hangs"), std::string::npos);
    }
  }
  EXPECT_EQ(written, kDepth + 1);
}

TEST_F(AioQueueFaultsTest, WhatCannotGoToTheDriveDoesNotWakeTheThread) {
  constexpr unsigned kDepth = 2, kCount = 100;
  Result<std::unique_ptr<AioQueue>> made = AioQueue::create(MemberIndex(1), {.depth = kDepth});
  ASSERT_TRUE(made.is_ok());
  AioQueue& queue = **made;
  plan.hangs = true;
  for (unsigned i = 0; i < kDepth; ++i) queue.submit(make(IoRequest::Kind::kWrite, i));
  // Until the thread has looked for the last time, at the kernel's word that they have ended.
  for (int looks = -1; looks != plan.looks || !queue.is_idle();) {
    looks = plan.looks;
    ::usleep(50'000);
  }
  EXPECT_EQ(queue.counters().in_flight, kDepth);
  const int looks = plan.looks;
  for (unsigned i = 0; i < kCount; ++i) {
    queue.submit(make(IoRequest::Kind::kWrite, kDepth + i));
    EXPECT_TRUE(queue.is_idle()) << "it waits for its drive only";
    ::usleep(100);
  }
  EXPECT_EQ(plan.looks, looks);
  EXPECT_EQ(queue.counters().waiting, kCount);
  plan.hangs = false;
  made->reset();
  expect_all_right();
}

}  // namespace
}  // namespace fpfs
