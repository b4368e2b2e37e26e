// What comes before the first request; that needs a kernel with FUSE over io_uring and a mount
// (tests/mount/test_io_uring.py).
#include "fs/transport/ring_receivers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <list>
#include <thread>

#if defined(__has_feature)
#define FPFS_SANITIZED_ADDRESS __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define FPFS_SANITIZED_ADDRESS 1
#else
#define FPFS_SANITIZED_ADDRESS 0
#endif

namespace fpfs {
namespace {

// A channel that has so many threads and no connection.
class Handler final : public RequestHandler {
 public:
  explicit Handler(unsigned threads) : threads_left_(threads) {}
  void join() {
    for (Worker& worker : workers_)
      if (worker.thread.joinable()) worker.thread.join();
  }

  int descriptor() const override { return -1; }
  bool is_stopping() const override { return false; }
  bool handle(Worker&, size_t) override { return false; }
  bool refuse(uint64_t) override { return true; }
  bool start_ring_worker(RingEntry& entry) override {
    if (threads_left_ == 0) return false;
    --threads_left_;
    Worker& worker = workers_.emplace_back();
    worker.entry = &entry;
    worker.thread = std::thread([this, &worker] {
      receivers->serve(worker);
      worker.finished = true;
    });
    return true;
  }
  void connection_ended() override {}

  RingReceivers* receivers = nullptr;
  unsigned threads_left() const { return threads_left_; }
  bool has_ended(size_t worker) const { return std::next(workers_.begin(), worker)->finished; }

 private:
  unsigned threads_left_;
  std::list<Worker> workers_;
};

wire::InitOut init_reply() {
  wire::InitOut reply{};
  reply.write_max = 65536;
  return reply;
}

constexpr uint64_t kMemory = uint64_t{1} << 40;

struct Rig {
  explicit Rig(unsigned threads) : handler(threads), receivers(handler, *buffers, kMemory, false) {
    handler.receivers = &receivers;
  }
  ~Rig() { handler.join(); }
  std::unique_ptr<ReceiveBuffers> buffers = *ReceiveBuffers::create(4);
  Handler handler;
  RingReceivers receivers;
};

bool can_have_rings() {
  return RequestRing::create(-1).is_ok();
}

TEST(RingReceivers, NothingIsAgreedWithoutThreadsForAll) {
  const unsigned wanted = 2 * RequestRing::queue_count();
  for (unsigned threads : {0U, 1U, wanted - 1}) {
    auto rig = std::make_unique<Rig>(threads);
    EXPECT_FALSE(rig->receivers.prepare(init_reply())) << threads;
    EXPECT_EQ(rig->handler.threads_left(), 0U);
    rig->receivers.open(false);  // those that there are end
  }
}

TEST(RingReceivers, WorkersEndWhenNothingWasAgreed) {
  Rig rig(1000);
  EXPECT_EQ(rig.receivers.prepare(init_reply()), can_have_rings());
  EXPECT_EQ(rig.handler.threads_left(), 1000 - 2 * RequestRing::queue_count());
  rig.receivers.open(false);
}

// As when the connection ends between INIT's answer and the first request.
TEST(RingReceivers, WorkersEndWithTheConnection) {
  Rig rig(1000);
  if (!rig.receivers.prepare(init_reply())) {
    rig.receivers.open(false);
    GTEST_SKIP() << "this system has no io_uring for us";
  }
  rig.receivers.open(true);
}

// A process that has no descriptor for a ring gets one when it has: an answer may be waiting for it.
TEST(RingReceivers, AWorkerThatIsAddedLaterWaitsForItsRing) {
  if (FPFS_SANITIZED_ADDRESS)
    GTEST_SKIP() << "UBSan looks at objects through a pipe, and reports all when it gets none";
  Rig rig(1000);
  if (!rig.receivers.prepare(init_reply())) {
    rig.receivers.open(false);
    GTEST_SKIP() << "this system has no io_uring for us";
  }
  rig.receivers.open(true);
  const unsigned first = 2 * RequestRing::queue_count();
  const Result<RingEntry*> entry = rig.receivers.entries()->add(0);
  ASSERT_TRUE(entry.is_ok()) << entry.status().message();
  struct rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const struct rlimit none { 0, limit.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(rig.handler.start_ring_worker(**entry));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(rig.handler.has_ended(first));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  rig.handler.join();  // it has its ring, and sees that there is no connection
  EXPECT_TRUE(rig.handler.has_ended(first));
}

}  // namespace
}  // namespace fpfs
