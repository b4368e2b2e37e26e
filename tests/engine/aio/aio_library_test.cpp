// fastpersist-aio as a program outside uses it: the shared library by its header. The program has functions of libaio
// and libc in front of the real ones, to let them fail.
#include <fcntl.h>
#include <libaio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/aio/aio.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace {

struct Plan {
  std::atomic<long long> bad_offset{-1};  // the transfer that begins there ends with `error`
  std::atomic<int> error{-EIO};
  std::atomic<int> sync_error{0};
  std::atomic<int> syncs{0};
  std::atomic<int> lock_error{0};
  std::atomic<long> in_flight{0}, in_flight_max{0};
  std::atomic<long> started{0}, ended{0};
  std::atomic<long> group{0};          // so many begin when all before them have ended; 0: nobody asks
  std::atomic<long> begun_early{0};    // began all the same
  std::atomic<long> submitted_max{0};  // by one call
};
Plan plan;

template <typename Number>
void raise_to(std::atomic<Number>& most, Number value) {
  Number before = most;
  while (before < value && !most.compare_exchange_weak(before, value)) {
  }
}

}  // namespace

extern "C" {

int io_submit(io_context_t context, long count, struct iocb** blocks) {
  raise_to(plan.submitted_max, count);
  raise_to(plan.in_flight_max, plan.in_flight += count);
  for (long i = 0; i < count; ++i)
    if (const long number = plan.started++; plan.group > 0 && plan.ended < number / plan.group * plan.group)
      ++plan.begun_early;
  const long result = ::syscall(SYS_io_submit, context, count, blocks);
  plan.in_flight -= count - std::max(result, 0l);
  plan.started -= count - std::max(result, 0l);
  return result < 0 ? -errno : static_cast<int>(result);
}

int io_getevents(io_context_t context, long min, long max, struct io_event* events, struct timespec* timeout) {
  const long count = ::syscall(SYS_io_getevents, context, min, max, events, timeout);
  for (long i = 0; i < count; ++i)
    if (events[i].obj->u.c.offset == plan.bad_offset) events[i].res = static_cast<unsigned long>(plan.error.load());
  plan.in_flight -= std::max(count, 0l);
  plan.ended += std::max(count, 0l);
  return count < 0 ? -errno : static_cast<int>(count);
}

int fdatasync(int file) {
  ++plan.syncs;
  if (plan.sync_error != 0) {
    errno = plan.sync_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

int mlock(const void* memory, size_t size) noexcept {
  if (plan.lock_error != 0) {
    errno = plan.lock_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_mlock, memory, size));
}

}  // extern "C"

namespace fastpersist {
namespace {

using fpfs::test::fill;
using fpfs::test::first_difference;

constexpr size_t kBlock = 16384;

// The parameter is AioOptions::direct.
class AioLibraryTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    plan.bad_offset = -1;
    plan.error = -EIO;
    plan.sync_error = plan.syncs = 0;
    plan.in_flight_max = plan.submitted_max = plan.group = 0;
    const std::string path = directory_ / "direct";
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (file >= 0) ::close(file);
    if (GetParam() && file < 0) GTEST_SKIP() << "no O_DIRECT in " << directory_.path();
  }

  static AioOptions options() { return {.block_size = kBlock, .queue_depth = 4, .direct = GetParam()}; }
  static std::unique_ptr<AioHandle> open(const AioOptions& options) {
    Error error;
    std::unique_ptr<AioHandle> aio = AioHandle::open(options, error);
    EXPECT_NE(aio, nullptr) << error.message;
    return aio;
  }
  static PinnedBuffer memory(size_t size) {
    Error error;
    PinnedBuffer buffer = PinnedBuffer::allocate(size, error);
    EXPECT_TRUE(error.is_ok()) << error.message;
    return buffer;
  }
  static PinnedBuffer data(size_t size, uint64_t seed, uint64_t position = 0) {
    PinnedBuffer buffer = memory(size);
    fill({buffer.data(), size}, seed, position);
    return buffer;
  }
  static std::vector<std::byte> content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    return {first, first + bytes.size()};
  }
  static void expect_content(const std::string& path, size_t size, uint64_t seed) {
    const std::vector<std::byte> found = content(path);
    ASSERT_EQ(found.size(), size);
    EXPECT_EQ(first_difference(found, seed, 0), size);
  }
  static void expect_all_right(const Waited& waited, size_t completed) {
    EXPECT_EQ(waited.completed, completed);
    for (const Failure& failure : waited.failures) ADD_FAILURE() << failure.error.message;
  }

  const fpfs::test::TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Direct, AioLibraryTest, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Cached, AioLibraryTest, testing::Values(false));

constexpr size_t kSizes[] = {
    0, 1, 4095, 4096, 4097, kBlock - 1, kBlock, kBlock + 1, 8000, 7 * kBlock, 100 * 4096, 2 * kBlock + 100, 1'000'000};

TEST_P(AioLibraryTest, FilesOfAnySizeFromMemoryOfAnyAlignment) {
  const auto aio = open(options());
  for (const size_t size : kSizes) {
    for (const size_t skew : {0, 64, 1}) {
      SCOPED_TRACE(testing::Message() << size << " bytes, memory off by " << skew);
      const PinnedBuffer source = data(size + skew + 1, size);
      const std::string path = directory_ / "file";
      fill({source.data() + skew, size}, size, 0);
      aio->async_write_file(path, source.data() + skew, size);
      expect_all_right(aio->wait(), 1);
      expect_content(path, size, size);
      const PinnedBuffer target = memory(size + skew + 1);
      target.data()[size + skew] = std::byte{0x5A};
      aio->async_pread(path, target.data() + skew, size, 0);
      expect_all_right(aio->wait(), 1);
      EXPECT_EQ(first_difference({target.data() + skew, size}, size, 0), size);
      EXPECT_EQ(target.data()[size + skew], std::byte{0x5A}) << "beyond the memory of the read";
    }
  }
}

TEST_P(AioLibraryTest, PartsAtAnyOffsetLeaveTheRest) {
  constexpr size_t kSize = 10 * kBlock + 77;
  const auto aio = open(options());
  const std::string path = directory_ / "file";
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, 2 * kBlock + 5, kSize - 10}) {
    for (const size_t length : {1u, 10u, 4096u, 5000u, 60000u}) {
      SCOPED_TRACE(testing::Message() << length << " bytes at " << offset);
      const PinnedBuffer before = data(kSize, 1);
      ASSERT_TRUE(aio->sync_write_file(path, before.data(), kSize).is_ok());
      const PinnedBuffer part = data(length, 2, offset);
      ASSERT_TRUE(aio->sync_pwrite(path, part.data(), length, offset).is_ok());
      const std::vector<std::byte> found = content(path);
      ASSERT_EQ(found.size(), std::max<size_t>(kSize, offset + length));
      EXPECT_EQ(first_difference({found.data(), offset}, 1, 0), offset);
      EXPECT_EQ(first_difference({found.data() + offset, length}, 2, offset), length);
      const uint64_t end = offset + length;
      if (end < kSize) {
        EXPECT_EQ(first_difference({found.data() + end, kSize - end}, 1, end), kSize - end);
      }
      const PinnedBuffer target = memory(length);
      ASSERT_TRUE(aio->sync_pread(path, target.data(), length, offset).is_ok());
      EXPECT_EQ(first_difference({target.data(), length}, 2, offset), length);
    }
  }
}

// Opened with O_DIRECT or without, the descriptor is good for both kinds of blocks, and stays open.
TEST_P(AioLibraryTest, PartsToAnOpenFile) {
  const auto aio = open(options());
  const std::string path = directory_ / "file";
  const PinnedBuffer source = data(7 * kBlock + 5, 4);
  for (const int direct : {0, GetParam() ? O_DIRECT : 0}) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | direct, 0600);
    ASSERT_GE(file, 0);
    ::unlink(path.c_str());
    const size_t cuts[] = {0, 100, kBlock, 4 * kBlock, source.size()};
    plan.syncs = 0;
    for (size_t i = 0; i + 1 < std::size(cuts); ++i)
      aio->async_pwrite(file, source.data() + cuts[i], cuts[i + 1] - cuts[i], cuts[i], {.durable = i == 3});
    expect_all_right(aio->wait(), 4);
    EXPECT_EQ(plan.syncs, 1);
    expect_content("/proc/self/fd/" + std::to_string(file), source.size(), 4);
    EXPECT_EQ(::close(file), 0);
  }
}

TEST_P(AioLibraryTest, DescriptorsThatNobodyCanWriteTo) {
  const auto aio = open(options());
  const PinnedBuffer source = data(2 * kBlock, 4);
  const std::string path = directory_ / "file";
  ASSERT_TRUE(aio->sync_write_file(path, source.data(), 100).is_ok());
  const int appends = ::open(path.c_str(), O_WRONLY | O_APPEND), reads = ::open(path.c_str(), O_RDONLY);
  struct Bad {
    int file, error;
  };
  for (const auto& [file, error] : {Bad{appends, EINVAL}, Bad{reads, EBADF}, Bad{-1, EBADF}, Bad{1 << 20, EBADF}}) {
    aio->async_pwrite(file, source.data(), kBlock - 1, 0);
    const Waited waited = aio->wait();
    ASSERT_EQ(waited.failures.size(), 1u) << file;
    EXPECT_EQ(waited.failures[0].error.number, error) << waited.failures[0].error.message;
    EXPECT_EQ(waited.failures[0].path, "/proc/self/fd/" + std::to_string(file));
  }
  expect_content(path, 100, 4);
  ::close(appends);
  ::close(reads);
}

TEST_P(AioLibraryTest, ALongerFileIsCut) {
  const auto aio = open(options());
  const std::string path = directory_ / "file";
  const PinnedBuffer source = data(5 * kBlock, 3);
  ASSERT_TRUE(aio->sync_write_file(path, source.data(), 5 * kBlock).is_ok());
  ASSERT_TRUE(aio->sync_write_file(path, source.data(), kBlock + 3).is_ok());
  expect_content(path, kBlock + 3, 3);
  ASSERT_TRUE(aio->sync_write_file(path, nullptr, 0).is_ok());
  expect_content(path, 0, 3);
}

TEST_P(AioLibraryTest, ManyInFlightOverSeveralThreads) {
  constexpr size_t kFiles = 100, kSize = 9 * kBlock + 1;
  AioOptions several = options();
  several.intra_op_parallelism = 3;
  const auto aio = open(several);
  std::vector<PinnedBuffer> sources;
  for (size_t i = 0; i < kFiles; ++i) {
    sources.push_back(data(kSize, i));
    EXPECT_EQ(aio->async_write_file(directory_ / std::to_string(i), sources[i].data(), kSize), i + 1);
  }
  expect_all_right(aio->wait(), kFiles);
  expect_all_right(aio->wait(), 0);
  std::vector<PinnedBuffer> targets;
  for (size_t i = 0; i < kFiles; ++i) {
    targets.push_back(memory(kSize));
    aio->async_pread(directory_ / std::to_string(i), targets[i].data(), kSize, 0);
  }
  expect_all_right(aio->wait(), kFiles);
  for (size_t i = 0; i < kFiles; ++i) EXPECT_EQ(first_difference({targets[i].data(), kSize}, i, 0), kSize) << i;
}

// Parts of one file by several requests, from several threads; each is counted once.
TEST_P(AioLibraryTest, ThreadsShareAHandle) {
  constexpr size_t kThreads = 4, kParts = 20, kPart = 2 * kBlock + 123;
  const auto aio = open(options());
  const std::string path = directory_ / "file";
  const PinnedBuffer source = data(kThreads * kParts * kPart, 5);
  std::atomic<size_t> completed{0};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < kParts; ++i) {
        const size_t at = (i * kThreads + thread) * kPart;
        aio->async_pwrite(path, source.data() + at, kPart, at);
        if (i % 7 == 0) {
          const Waited waited = aio->wait();
          EXPECT_TRUE(waited.is_ok());
          completed += waited.completed;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  completed += aio->wait().completed;
  EXPECT_EQ(completed, kThreads * kParts);
  expect_content(path, kThreads * kParts * kPart, 5);
}

TEST_P(AioLibraryTest, TheDestructorWaits) {
  const std::string path = directory_ / "file";
  const PinnedBuffer source = data(40 * kBlock, 6);
  open(options())->async_write_file(path, source.data(), source.size());
  expect_content(path, source.size(), 6);
}

TEST_P(AioLibraryTest, TheKnobsAreKept) {
  const PinnedBuffer source = data(64 * kBlock, 7);
  for (const bool single : {false, true})
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(testing::Message() << "single " << single << ", overlap " << overlap);
      plan.in_flight_max = plan.submitted_max = plan.started = plan.ended = plan.begun_early = 0;
      plan.group = overlap ? 0 : options().queue_depth;
      AioOptions some = options();
      some.single_submit = single;
      some.overlap_events = overlap;
      const auto aio = open(some);
      const std::string path = directory_ / "file";
      ASSERT_TRUE(aio->sync_write_file(path, source.data(), source.size()).is_ok());
      expect_content(path, source.size(), 7);
      EXPECT_LE(plan.in_flight_max, long{some.queue_depth});
      EXPECT_EQ(plan.begun_early, 0);
      if (single) {
        EXPECT_EQ(plan.submitted_max, 1);
      }
      EXPECT_EQ(aio->options().overlap_events, overlap);
    }
}

// --- failures --------------------------------------------------------------------------------------------------------

TEST_P(AioLibraryTest, AFailureIsToldAndTheOthersSucceed) {
  const auto aio = open(options());
  const PinnedBuffer source = data(8 * kBlock, 8);
  for (const int error : {EIO, ENOSPC}) {
    plan.error = -error;
    plan.bad_offset = 3 * kBlock;
    const std::string path = directory_ / "bad";
    const uint64_t bad = aio->async_write_file(path, source.data(), source.size());
    aio->async_write_file(directory_ / "good", source.data(), 2 * kBlock);
    const Waited waited = aio->wait();
    EXPECT_EQ(waited.completed, 2u);
    ASSERT_EQ(waited.failures.size(), 1u);
    EXPECT_EQ(waited.failures[0].request, bad);
    EXPECT_EQ(waited.failures[0].path, path);
    EXPECT_EQ(waited.failures[0].error.number, error);
    EXPECT_NE(waited.failures[0].error.message.find(path), std::string::npos) << waited.failures[0].error.message;
    EXPECT_LT(waited.failures[0].bytes, source.size());
    plan.bad_offset = -1;
    expect_content(directory_ / "good", 2 * kBlock, 8);
  }
  plan.error = -EIO;
  ASSERT_TRUE(aio->sync_write_file(directory_ / "bad", source.data(), source.size()).is_ok());
  plan.bad_offset = 5 * kBlock;
  const PinnedBuffer target = memory(source.size());
  EXPECT_EQ(aio->sync_pread(directory_ / "bad", target.data(), target.size(), 0).number, EIO);
  EXPECT_TRUE(aio->wait().is_ok());
}

// Also of the bytes behind the last whole block.
TEST_P(AioLibraryTest, AFailureOfTheTailIsTold) {
  const auto aio = open(options());
  const PinnedBuffer source = data(2 * kBlock + 100, 8);
  plan.error = -ENOSPC;
  plan.bad_offset = 2 * kBlock;
  EXPECT_EQ(aio->sync_write_file(directory_ / "file", source.data(), source.size()).number, ENOSPC);
}

TEST_P(AioLibraryTest, DurableIsSyncedAndAFailedSyncIsTold) {
  const auto aio = open(options());
  const PinnedBuffer source = data(kBlock + 1, 9);
  ASSERT_TRUE(aio->sync_write_file(directory_ / "file", source.data(), source.size()).is_ok());
  EXPECT_EQ(plan.syncs, 0);
  ASSERT_TRUE(aio->sync_write_file(directory_ / "file", source.data(), source.size(), {.durable = true}).is_ok());
  EXPECT_EQ(plan.syncs, 1);
  plan.sync_error = EIO;
  aio->async_pwrite(directory_ / "file", source.data(), source.size(), 0, {.durable = true});
  const Waited waited = aio->wait();
  ASSERT_EQ(waited.failures.size(), 1u);
  EXPECT_EQ(waited.failures[0].error.number, EIO);
}

TEST_P(AioLibraryTest, AReadBeyondTheEndFails) {
  const auto aio = open(options());
  const std::string path = directory_ / "file";
  const PinnedBuffer source = data(kBlock + 1000, 10), target = memory(4 * kBlock);
  ASSERT_TRUE(aio->sync_write_file(path, source.data(), source.size()).is_ok());
  EXPECT_TRUE(aio->sync_pread(path, target.data(), source.size(), 0).is_ok());
  EXPECT_EQ(aio->sync_pread(path, target.data(), source.size() + 1, 0).number, ENODATA);
  EXPECT_EQ(aio->sync_pread(path, target.data(), 4 * kBlock, 0).number, ENODATA);
  EXPECT_EQ(aio->sync_pread(path, target.data(), kBlock, 100 * kBlock).number, ENODATA);
  aio->async_pread(path, target.data(), 4 * kBlock, 0);
  const Waited waited = aio->wait();
  ASSERT_EQ(waited.failures.size(), 1u);
  EXPECT_EQ(waited.failures[0].bytes, source.size());
}

TEST_P(AioLibraryTest, BeyondTheLimitOfFileSizes) {
  const auto aio = open(options());
  const PinnedBuffer source = data(8 * kBlock, 11);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit limit { 4 * kBlock, before.rlim_max };
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Error whole = aio->sync_write_file(directory_ / "file", source.data(), source.size());
  const Error block = aio->sync_pwrite(directory_ / "other", source.data(), kBlock, 4 * kBlock);
  const Error below = aio->sync_write_file(directory_ / "below", source.data(), 4 * kBlock);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(whole.number, EFBIG) << whole.message;
  EXPECT_EQ(block.number, EFBIG) << block.message;
  EXPECT_TRUE(below.is_ok()) << below.message;
}

TEST_P(AioLibraryTest, WhatCannotBeOpened) {
  const auto aio = open(options());
  const PinnedBuffer target = memory(kBlock);
  EXPECT_EQ(aio->sync_pread(directory_ / "missing", target.data(), kBlock, 0).number, ENOENT);
  EXPECT_EQ(aio->sync_write_file(directory_ / "no/file", target.data(), kBlock).number, ENOENT);
  EXPECT_EQ(aio->sync_write_file(directory_.path(), target.data(), kBlock).number, EISDIR);
  EXPECT_EQ(aio->sync_pread(directory_ / "missing", nullptr, kBlock, 0).number, EINVAL);
  EXPECT_EQ(aio->sync_pwrite(directory_ / "far", target.data(), kBlock, UINT64_MAX - 1).number, EFBIG);
  for (int i = 0; i < 3; ++i) aio->async_pread(directory_ / "missing", target.data(), kBlock, 0);
  const Waited waited = aio->wait();
  EXPECT_EQ(waited.completed, 3u);
  EXPECT_EQ(waited.failures.size(), 3u);
}

TEST(AioLibraryOptionsTest, NoDirectIo) {
  Error error;
  PinnedBuffer target = PinnedBuffer::allocate(kAlignment, error);
  const auto direct = AioHandle::open({}, error);
  ASSERT_NE(direct, nullptr);
  EXPECT_EQ(direct->sync_pread("/proc/version", target.data(), kAlignment, 0).number, EINVAL);
  const auto cached = AioHandle::open({.direct = false}, error);
  ASSERT_NE(cached, nullptr);
  EXPECT_TRUE(cached->sync_pread("/proc/version", target.data(), 8, 0).is_ok());
}

TEST(AioLibraryOptionsTest, OutOfRange) {
  for (const AioOptions& options :
       {AioOptions{.block_size = 0}, AioOptions{.block_size = 5000}, AioOptions{.block_size = size_t{2} << 30},
        AioOptions{.queue_depth = 0}, AioOptions{.queue_depth = 4097}, AioOptions{.intra_op_parallelism = 0},
        AioOptions{.intra_op_parallelism = 65}}) {
    Error error;
    EXPECT_EQ(AioHandle::open(options, error), nullptr);
    EXPECT_EQ(error.number, EINVAL);
    EXPECT_NE(error.message, "");
  }
}

TEST(PinnedBufferTest, AlignedAndMovable) {
  Error error;
  for (const size_t size : {size_t{1}, size_t{4096}, (size_t{5} << 20) + 1}) {
    PinnedBuffer buffer = PinnedBuffer::allocate(size, error);
    ASSERT_TRUE(error.is_ok()) << error.message;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0u);
    EXPECT_EQ(buffer.size(), size);
    buffer.data()[size - 1] = std::byte{7};
    const PinnedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.data()[size - 1], std::byte{7});
  }
  EXPECT_EQ(PinnedBuffer::allocate(0, error).data(), nullptr);
  EXPECT_EQ(error.number, EINVAL);
}

TEST(PinnedBufferTest, MemoryThatCannotBeLockedIsUsable) {
  plan.lock_error = EPERM;
  Error error;
  const PinnedBuffer buffer = PinnedBuffer::allocate(1 << 20, error);
  plan.lock_error = 0;
  ASSERT_TRUE(error.is_ok());
  EXPECT_FALSE(buffer.is_locked());
  EXPECT_EQ(buffer.lock_error(), EPERM);
  buffer.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace fastpersist
