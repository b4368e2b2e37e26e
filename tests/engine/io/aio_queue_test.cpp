#include "engine/io/aio_queue.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/awaited_thread.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr MemberIndex kMember(3);

// One request with its memory and its outcome.
struct Transfer {
  explicit Transfer(size_t size) : memory(size) {
    request.data = memory.data();
    request.length = static_cast<uint32_t>(size);
    request.owner = this;
    request.complete = [](IoRequest& io, const Status& outcome) {
      auto& self = *static_cast<Transfer*>(io.owner);
      std::lock_guard lock(self.mutex);
      self.status = outcome;
      ++self.completions;
      self.condition.notify_all();
    };
  }
  const Status& wait() {
    std::unique_lock lock(mutex);
    condition.wait(lock, [this] { return completions > 0; });
    return status;
  }
  test::AlignedBytes memory;
  IoRequest request;
  std::mutex mutex;
  std::condition_variable condition;
  Status status;
  int completions = 0;
};

struct Place {
  const char* name;
  const char* directory;  // null: the default for temporary files
  int flags;
};

class AioQueueTest : public testing::TestWithParam<Place> {
 protected:
  static std::string parent() {
    return GetParam().directory != nullptr ? GetParam().directory : std::filesystem::temp_directory_path().string();
  }
  void SetUp() override { start(4); }
  void TearDown() override {
    queue_.reset();
    for (int handle : handles_) ::close(handle);
  }
  void start(unsigned depth) {
    queue_.reset();
    Result<std::unique_ptr<AioQueue>> queue = AioQueue::create(kMember, {.depth = depth});
    ASSERT_TRUE(queue.is_ok()) << queue.status().message();
    queue_ = std::move(*queue);
  }
  Handle open(const std::string& name, int flags = O_RDWR | O_CREAT) {
    int handle = ::open((directory_ / name).c_str(), flags | GetParam().flags | O_CLOEXEC, 0600);
    // A filesystem without O_DIRECT takes the same requests without it.
    if (handle < 0 && errno == EINVAL) handle = ::open((directory_ / name).c_str(), flags | O_CLOEXEC, 0600);
    EXPECT_GE(handle, 0) << strerror(errno);
    handles_.push_back(handle);
    return handle;
  }
  // A file of `size` bytes of stream `seed`.
  Handle file_with_data(const std::string& name, size_t size, uint64_t seed) {
    std::vector<std::byte> data(size);
    test::fill(data, seed, 0);
    const int handle = ::open((directory_ / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::pwrite(handle, data.data(), size, 0), static_cast<ssize_t>(size));
    EXPECT_EQ(::fsync(handle), 0);
    ::close(handle);
    return open(name, O_RDWR);
  }
  const Status& run(Transfer& transfer) {
    queue_->submit(transfer.request);
    return transfer.wait();
  }

  test::TemporaryDirectory directory_{parent()};
  std::vector<int> handles_;
  std::unique_ptr<AioQueue> queue_;
};

// What takes long is better done by others while more is there for the queue's thread.
TEST_P(AioQueueTest, CompletionsLearnWhetherOthersWaitForTheThread) {
  constexpr unsigned kCount = 8;
  start(1);
  const Handle handle = file_with_data("a", 4096, 5);
  struct Awaited : Transfer {
    Awaited() : Transfer(4096) {
      request.prepare = [](IoRequest& io) {
        All& submitted = *static_cast<Awaited*>(static_cast<Transfer*>(io.owner))->all;
        std::unique_lock lock(submitted.mutex);
        submitted.condition.wait(lock, [&submitted] { return submitted.are_submitted; });
        return Status::ok();
      };
      request.complete = [](IoRequest& io, const Status& outcome) {
        auto& self = *static_cast<Awaited*>(static_cast<Transfer*>(io.owner));
        std::lock_guard lock(self.mutex);
        self.awaited = AwaitedThread::is_this();
        self.status = outcome;
        ++self.completions;
        self.condition.notify_all();
      };
    }
    struct All {
      std::mutex mutex;
      std::condition_variable condition;
      bool are_submitted = false;
    }* all = nullptr;
    bool awaited = false;
  };
  Awaited::All all;
  std::deque<Awaited> transfers(kCount);
  for (Awaited& transfer : transfers) {
    transfer.all = &all;
    transfer.request.handle = handle;
    queue_->submit(transfer.request);
  }
  {
    const std::lock_guard lock(all.mutex);
    all.are_submitted = true;
  }
  all.condition.notify_all();
  for (unsigned i = 0; i < kCount; ++i) {
    ASSERT_TRUE(transfers[i].wait().is_ok()) << transfers[i].status.message();
    EXPECT_EQ(transfers[i].awaited, i + 1 < kCount) << i;
  }
  EXPECT_FALSE(AwaitedThread::is_this());
}

TEST_P(AioQueueTest, ManyWritesAndReadsInAnyOrderLandInTheirPlaces) {
  constexpr uint32_t kLength = 16384;
  constexpr unsigned kCount = 500;
  const Handle handle = open("a");
  std::deque<Transfer> transfers;
  for (unsigned i = 0; i < kCount; ++i) {
    const uint64_t place = (i * 7919u) % kCount;  // coprime: every place once, in a scattered order
    Transfer& transfer = transfers.emplace_back(kLength);
    transfer.request.kind = IoRequest::Kind::kWrite;
    transfer.request.handle = handle;
    transfer.request.offset = place * kLength;
    test::fill(transfer.memory.span(), 5, transfer.request.offset);
    queue_->submit(transfer.request);
  }
  for (Transfer& transfer : transfers) {
    EXPECT_TRUE(transfer.wait().is_ok()) << transfer.status.message();
    EXPECT_EQ(transfer.request.transferred, kLength);
  }
  for (Transfer& transfer : transfers) {
    transfer.completions = 0;
    transfer.request.kind = IoRequest::Kind::kRead;
    memset(transfer.memory.data(), 0, kLength);
    queue_->submit(transfer.request);
  }
  for (Transfer& transfer : transfers) {
    EXPECT_TRUE(transfer.wait().is_ok()) << transfer.status.message();
    EXPECT_EQ(test::first_difference(transfer.memory.span(), 5, transfer.request.offset), kLength);
  }
  queue_.reset();
  for (Transfer& transfer : transfers) EXPECT_EQ(transfer.completions, 1);
}

TEST_P(AioQueueTest, CountsWhatItMoved) {
  const Handle handle = open("a");
  Transfer write(8192), read(4096), bad(4096);
  write.request.kind = IoRequest::Kind::kWrite;
  write.request.handle = read.request.handle = handle;
  memset(write.memory.data(), 1, 8192);
  EXPECT_TRUE(run(write).is_ok());
  EXPECT_TRUE(run(read).is_ok());
  EXPECT_FALSE(run(bad).is_ok());
  const AioQueue::Counters counters = queue_->counters();
  EXPECT_EQ(counters.bytes_written, 8192u);
  EXPECT_EQ(counters.bytes_read, 4096u);
  EXPECT_EQ(counters.errors, 1u);
  EXPECT_EQ(counters.transfers, 2u);
  EXPECT_EQ(counters.in_flight, 0u);
  EXPECT_EQ(counters.waiting, 0u);
}

TEST_P(AioQueueTest, PrepareFillsInTheRequest) {
  const Handle handle = file_with_data("a", 65536, 9);
  struct Context {
    Handle handle;
    std::thread::id thread;
  };
  static Context context;
  context = {handle, std::this_thread::get_id()};
  Transfer read(4096);
  read.request.prepare = [](IoRequest& io) {
    EXPECT_NE(std::this_thread::get_id(), context.thread);
    io.handle = context.handle;
    io.offset = 8192;
    return Status::ok();
  };
  EXPECT_TRUE(run(read).is_ok()) << read.status.message();
  EXPECT_EQ(test::first_difference(read.memory.span(), 9, 8192), 4096u);
}

TEST_P(AioQueueTest, AFailedPrepareSkipsTheTransfer) {
  const Handle handle = open("a");
  std::deque<Transfer> transfers;
  for (unsigned i = 0; i < 50; ++i) {
    Transfer& transfer = transfers.emplace_back(4096);
    transfer.request.kind = IoRequest::Kind::kWrite;
    transfer.request.handle = handle;
    transfer.request.offset = i * 4096;
    test::fill(transfer.memory.span(), 2, transfer.request.offset);
    if (i % 3 == 1)
      transfer.request.prepare = [](IoRequest&) { return Status::error(StatusCode::kNoSpace, "prepare says no"); };
    queue_->submit(transfer.request);
  }
  for (unsigned i = 0; i < 50; ++i) {
    EXPECT_EQ(transfers[i].wait().code(), i % 3 == 1 ? StatusCode::kNoSpace : StatusCode::kOk);
    EXPECT_EQ(transfers[i].request.transferred, i % 3 == 1 ? 0u : 4096u);
    std::vector<std::byte> back(4096);
    const int plain = ::open((directory_ / "a").c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t count = ::pread(plain, back.data(), 4096, i * 4096);
    ::close(plain);
    const bool written = count == 4096 && test::first_difference(back, 2, i * 4096) == 4096;
    EXPECT_EQ(written, i % 3 != 1) << i;
  }
  EXPECT_EQ(queue_->counters().errors, 17u);
}

TEST_P(AioQueueTest, ReadsEndWhereTheFileEnds) {
  struct Case {
    size_t size;
    uint64_t offset;
    uint32_t transferred;
  };
  for (const Case& each : {Case{10000, 0, 10000}, Case{10000, 8192, 1808}, Case{8192, 0, 8192}, Case{8192, 8192, 0},
                           Case{10000, 12288, 0}, Case{0, 0, 0}, Case{100000, 16384, 16384}}) {
    SCOPED_TRACE(testing::Message() << each.size << " bytes, read at " << each.offset);
    const Handle handle = file_with_data("file" + std::to_string(each.size), each.size, 11);
    Transfer read(16384);
    read.request.handle = handle;
    read.request.offset = each.offset;
    EXPECT_TRUE(run(read).is_ok()) << read.status.message();
    EXPECT_EQ(read.request.transferred, each.transferred);
    EXPECT_EQ(test::first_difference(read.memory.span().first(each.transferred), 11, each.offset), each.transferred);
  }
}

TEST_P(AioQueueTest, FailuresSayWhere) {
  const Handle read_only = open("a", O_RDONLY | O_CREAT);
  Transfer write(4096), closed(8192);
  write.request.kind = IoRequest::Kind::kWrite;
  write.request.handle = read_only;
  write.request.offset = 40960;
  EXPECT_EQ(run(write).errno_value(), EBADF);
  EXPECT_EQ(write.status.member(), kMember.value());
  EXPECT_EQ(write.status.offset(), 40960u);
  EXPECT_EQ(write.status.length(), 4096u);
  EXPECT_NE(write.status.message().find("write"), std::string::npos) << write.status.message();
  closed.request.handle = 1'000'000;
  EXPECT_EQ(run(closed).errno_value(), EBADF);
  // Others go on as if nothing had happened.
  Transfer read(4096);
  read.request.handle = file_with_data("b", 4096, 1);
  EXPECT_TRUE(run(read).is_ok());
}

TEST_P(AioQueueTest, ABadRequestDoesNotTakeItsNeighboursAlong) {
  const Handle good = file_with_data("a", 65536, 4);
  const Handle bad = open("b", O_WRONLY | O_CREAT);
  std::deque<Transfer> transfers;
  for (unsigned i = 0; i < 64; ++i) {
    Transfer& transfer = transfers.emplace_back(4096);
    transfer.request.handle = i % 4 == 2 ? bad : good;
    transfer.request.offset = i % 16 * 4096;
    queue_->submit(transfer.request);
  }
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(transfers[i].wait().errno_value(), i % 4 == 2 ? EBADF : 0);
    if (i % 4 != 2) {
      EXPECT_EQ(test::first_difference(transfers[i].memory.span(), 4, i % 16 * 4096), 4096u);
    }
  }
}

TEST_P(AioQueueTest, DestructionWaitsForEverySubmittedRequest) {
  constexpr unsigned kCount = 200;
  const Handle handle = open("a");
  std::deque<Transfer> transfers;
  for (unsigned i = 0; i < kCount; ++i) {
    Transfer& transfer = transfers.emplace_back(32768);
    transfer.request.kind = IoRequest::Kind::kWrite;
    transfer.request.handle = handle;
    transfer.request.offset = i * uint64_t{32768};
    test::fill(transfer.memory.span(), 6, transfer.request.offset);
    queue_->submit(transfer.request);
  }
  queue_.reset();
  for (Transfer& transfer : transfers) {
    EXPECT_EQ(transfer.completions, 1);
    EXPECT_TRUE(transfer.status.is_ok());
  }
  struct stat attributes {};
  ASSERT_EQ(::fstat(handle, &attributes), 0);
  EXPECT_EQ(attributes.st_size, kCount * 32768);
}

// A request that submits itself again from its completion, until a file is written, also across the destruction.
TEST_P(AioQueueTest, CompletionsMaySubmit) {
  struct Chain {
    AioQueue* queue;
    unsigned left = 100;
    test::AlignedBytes memory{4096};
    IoRequest request;
    Status status;
  } chain;
  chain.queue = queue_.get();
  chain.request.kind = IoRequest::Kind::kWrite;
  chain.request.handle = open("a");
  chain.request.data = chain.memory.data();
  chain.request.length = 4096;
  chain.request.owner = &chain;
  chain.request.complete = [](IoRequest& io, const Status& status) {
    auto& self = *static_cast<Chain*>(io.owner);
    if (!status.is_ok()) self.status = status;
    if (--self.left == 0) return;
    io.offset += 4096;
    self.queue->submit(io);
  };
  queue_->submit(chain.request);
  queue_.reset();
  EXPECT_EQ(chain.left, 0u);
  EXPECT_TRUE(chain.status.is_ok()) << chain.status.message();
}

// Submitters from many threads, each with one request at a time, so that the queue falls asleep and wakes all the time.
TEST_P(AioQueueTest, WakesForEverySubmitter) {
  constexpr unsigned kThreads = 8, kRounds = 300;
  const Handle handle = file_with_data("a", kThreads * 4096, 8);
  std::vector<std::thread> threads;
  std::atomic<unsigned> wrong{0};
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kRounds; ++i) {
        Transfer read(4096);
        read.request.handle = handle;
        read.request.offset = (t + i) % kThreads * 4096;
        queue_->submit(read.request);
        const bool right =
            read.wait().is_ok() && test::first_difference(read.memory.span(), 8, read.request.offset) == 4096;
        if (!right) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(queue_->counters().bytes_read, kThreads * kRounds * uint64_t{4096});
}

// The process's file size limit makes the kernel cut writes short, as a nearly full drive does.
TEST_P(AioQueueTest, AShortWriteGoesOnAndEndsInItsReason) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit limit = {24576, before.rlim_max};
  Transfer write(65536);
  write.request.kind = IoRequest::Kind::kWrite;
  write.request.handle = open("a");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status status = run(write);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.errno_value(), EFBIG) << status.message();
  EXPECT_EQ(write.request.transferred, 24576u);
}

INSTANTIATE_TEST_SUITE_P(Places, AioQueueTest,
                         testing::Values(Place{"direct", nullptr, O_DIRECT}, Place{"buffered", nullptr, 0},
                                         Place{"memory", "/dev/shm", O_DIRECT}),
                         [](const auto& place) { return std::string(place.param.name); });

TEST(AioQueueCreate, RefusesSenselessDepths) {
  EXPECT_EQ(AioQueue::create(MemberIndex(0), {.depth = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AioQueue::create(MemberIndex(0), {.depth = 1'000'000}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fpfs
