// How many workers receive, at a socket in the place of /dev/fuse: it gives requests one by one to whoever reads.
#include "fs/transport/device_receivers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <list>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/file/file.h"
#include "fs/nodes/open_handles.h"
#include "tests/fs/socket_device.h"

namespace {
// Of all threads; of this one since it handled a request. (Once, it asks whether another is there.)
std::atomic<unsigned> polls{0}, looks{0};
thread_local unsigned polls_since_request = 0;
}  // namespace

// In front of the library's. Who polls once more is one who looks: it counts as it begins, since the machine decides when it
// ends.
extern "C" int poll(pollfd* descriptors, nfds_t count, int timeout_ms) {
  ++polls;
  looks += ++polls_since_request == 2 ? 1 : 0;
  return static_cast<int>(::syscall(SYS_poll, descriptors, count, timeout_ms));
}

namespace fpfs {
namespace {

constexpr unsigned kWorkers = 8;
// Requests of one that writes, by which both places of its receiver are tried.
constexpr unsigned kTrials = 2 * (ReceiverPlace::kJudgedBy + ReceiverPlace::kSettling);

class Rig final : public test::SocketDevice {
 public:
  explicit Rig(unsigned workers = kWorkers, bool discards = true) : receivers_(*this, *buffers_, workers, discards) {
    for (unsigned i = 0; i < workers; ++i) {
      Worker& worker = workers_.emplace_back();
      worker.thread = std::thread([this, &worker] {
        receivers_.serve(worker);
        worker.request.payload = nullptr;
      });
    }
  }
  ~Rig() {
    {
      const std::lock_guard lock(mutex_);
      stop();
      may_go_ = true;
    }
    changed_.notify_all();
    receivers_.wake_all();
    for (Worker& worker : workers_) worker.thread.join();
  }

  // A long write of an open file, of which there are kWorkers.
  static constexpr uint32_t kLength = File::kLandingWriteMin + 1;
  void send(unsigned file) { send_one(transfer(wire::kOpcodeWrite, files_[file], 0, kLength, kLength)); }
  // A short one; where the long one ended: at kLength.
  static constexpr uint32_t kShort = 8;
  void send_short_write(unsigned file, uint64_t offset) {
    send_one(transfer(wire::kOpcodeWrite, files_[file], offset, kShort, kShort));
  }
  // So many long ones that both places of their receiver are tried; `behind_each`: what is done then.
  template <typename Then>
  void write_often(Then behind_each) {
    for (unsigned i = 0; i < kTrials; ++i) {
      send(0);
      (void)wait_for_all();
      behind_each(*this);
    }
  }
  // Which begins as a write does.
  void send_read(unsigned file, uint32_t bytes) { send_one(transfer(wire::kOpcodeRead, files_[file], 0, bytes, 0)); }
  // One that moves nothing. `thread`: who asks; 0 is nobody in particular.
  void send_short(uint32_t opcode, uint32_t thread = 0) {
    std::vector<std::byte> request(sizeof(wire::InHeader));
    wire::InHeader header{};
    header.length = static_cast<uint32_t>(request.size());
    header.opcode = opcode;
    header.pid = thread;
    std::memcpy(request.data(), &header, sizeof header);
    send_one(request);
  }
  // So many of one thread that it counts as the only one, and that all but one of those who received have left. (A request
  // that takes a millisecond, as may happen here, and it does not.)
  void ask_alone(uint32_t thread) {
    for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round) {
      ask(thread, SoleCaller::kRunMin + 1);
      if (!receivers_.is_asked_by_one()) continue;
      ask(thread, 2 * kWorkers);
      if (is_asked_by_one()) return;
    }
    FAIL() << "nobody asks alone";
  }
  void ask(uint32_t thread, unsigned times) {
    for (unsigned i = 0; i < times; ++i) {
      send_short(wire::kOpcodeLookup, thread);
      (void)wait_for_all();
    }
  }
  bool is_asked_by_one() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // who handled the last is back
    return receivers_.is_asked_by_one();
  }
  void send_one(const std::vector<std::byte>& request) {
    send_bytes(request);
    ++sent_;
  }
  // Whoever handles a request stays with it from now on, or not any more.
  void hold(bool yes) {
    {
      const std::lock_guard lock(mutex_);
      may_go_ = !yes;
      held_opcode_ = 0;
    }
    changed_.notify_all();
  }
  // Who handles one of these.
  void hold_only(uint32_t opcode) {
    const std::lock_guard lock(mutex_);
    may_go_ = false;
    held_opcode_ = opcode;
  }
  bool wait_until_at_it(unsigned count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return at_it_ == count; });
  }
  unsigned at_it() {
    const std::lock_guard lock(mutex_);
    return at_it_;
  }
  // Whoever handles a request leaves it to somebody else to answer.
  void leave_to_others() {
    const std::lock_guard lock(mutex_);
    is_left_ = true;
  }
  // The engine keeps what comes, until it is given back.
  void keep_payloads(bool yes) {
    const std::lock_guard lock(mutex_);
    keeps_payloads_ = yes;
    kept_.clear();
  }
  // Answers that gave way, which they do until somebody ends that, or a long time; and those of which somebody has.
  unsigned gave_way() const { return gave_way_; }
  unsigned gave_way_behind_short() const { return gave_way_behind_short_; }  // of these, to who wrote something short
  unsigned called_back() const { return called_back_; }
  // Requests whose worker could do what they ask for, as another waited.
  unsigned free_ones() {
    const std::lock_guard lock(mutex_);
    return free_;
  }
  // All that was sent is handled. Who handled the last?
  const Worker* wait_for_all() { return wait_for_all_but(0); }
  const Worker* wait_for_all_but(unsigned count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return handled_ + count == sent_; });
    EXPECT_EQ(handled_ + count, sent_);
    return last_;
  }

  // Epoll sets of this process.
  static unsigned epoll_sets() {
    unsigned count = 0;
    for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code failure;  // the iterator's own is gone by then
      count += std::filesystem::read_symlink(descriptor, failure) == "anon_inode:[eventpoll]" ? 1 : 0;
    }
    return count;
  }
  // Whether read(2) waits there.
  bool reads_block() const { return (::fcntl(descriptor(), F_GETFL) & O_NONBLOCK) == 0; }

  // All workers have come so far that they receive: each has had a request (one that may block, so that others do), and
  // somebody waits for the next beside the one that answered last.
  void give_each_one() {
    hold(true);
    for (unsigned i = 0; i < workers_.size(); ++i) {
      send_short(wire::kOpcodeLookup);
      ASSERT_TRUE(wait_until_at_it(i + 1));
    }
    hold(false);
    (void)wait_for_all();
    const unsigned before = free_ones();
    for (int i = 0; i < 10'000 && free_ones() == before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      send_short(wire::kOpcodeLookup);
      (void)wait_for_all();
    }
  }

  bool handle(Worker& worker, size_t length) override {
    (void)receivers_.answer(worker.request, [&]() -> ssize_t {
      if (::sched_getscheduler(0) != SCHED_IDLE) return 0;
      ++gave_way_;
      gave_way_behind_short_ += length < kLength ? 1 : 0;
      for (int i = 0; i < 20'000 && ::sched_getscheduler(0) == SCHED_IDLE; ++i)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      called_back_ += ::sched_getscheduler(0) == SCHED_OTHER ? 1 : 0;
      return 0;
    });
    wire::InHeader header;
    std::memcpy(&header, worker.request.payload->request, sizeof header);
    std::unique_lock lock(mutex_);
    ++at_it_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return may_go_ || (held_opcode_ != 0 && held_opcode_ != header.opcode); });
    --at_it_;
    ++handled_;
    free_ += worker.is_free ? 1 : 0;
    if (keeps_payloads_) kept_.push_back(std::move(worker.request.payload));
    last_ = &worker;
    polls_since_request = 0;
    if (!is_left_) receivers_.answered(worker.request);
    changed_.notify_all();
    return true;
  }

 private:
  std::unique_ptr<ReceiveBuffers> buffers_ = *ReceiveBuffers::create(2 * kWorkers);
  std::vector<OpenFile> files_ = std::vector<OpenFile>(kWorkers);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool may_go_ = true, is_left_ = false, keeps_payloads_ = false;
  std::vector<decltype(RequestContext::payload)> kept_;
  uint32_t held_opcode_ = 0;  // 0: each
  unsigned at_it_ = 0, handled_ = 0, sent_ = 0, free_ = 0;
  std::atomic<unsigned> gave_way_{0}, gave_way_behind_short_{0}, called_back_{0};
  const Worker* last_ = nullptr;
  DeviceReceivers receivers_;
  std::list<Worker> workers_;
};

TEST(DeviceReceivers, OneStreamIsServedByOneWorker) {
  Rig rig;
  const Worker* first = nullptr;
  for (int i = 0; i < 20; ++i) {  // whoever received before it was known to be a stream has time to leave
    rig.send(0);
    first = rig.wait_for_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 50; ++i) {
    rig.send(0);
    ASSERT_EQ(rig.wait_for_all(), first);
  }
}

TEST(DeviceReceivers, OnlyTheReceiverOfOneThatWritesLooksForMore) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody looks on one processor";
  const auto looks_of = [](auto send, bool is_left = false) {
    Rig rig;
    if (is_left) rig.leave_to_others();
    looks = 0;
    for (unsigned i = 0; i < 40; ++i) {
      send(rig, i);
      (void)rig.wait_for_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return looks.load();
  };
  const auto write = [](Rig& rig, unsigned) { rig.send(0); };
  EXPECT_GT(looks_of(write), 1u);
  EXPECT_EQ(looks_of(write, true), 0u) << "whose writer waits for others";
  EXPECT_EQ(looks_of([](Rig& rig, unsigned) { rig.send_read(0, kMiB); }), 0u);
  // Behind what is short and goes on where a long one ended, too: it stands between two of them.
  const auto short_ones = [](uint64_t apart) {
    return [apart](Rig& rig, unsigned i) {
      i == 0 ? rig.send(0) : rig.send_short_write(0, Rig::kLength + apart + (i - 1) * Rig::kShort);
    };
  };
  unsigned looks_behind_short = 0;  // of a few, and a busy machine takes some of these
  for (int round = 0; round < 20 && looks_behind_short <= 1; ++round) looks_behind_short = looks_of(short_ones(0));
  EXPECT_GT(looks_behind_short, 1u);
  EXPECT_LE(looks_of(short_ones(100)), 1u) << "behind the long one";
  // Of two, only until the second is known.
  EXPECT_LE(looks_of([](Rig& rig, unsigned i) { rig.send(i % 2); }), 1u);
}

// What the first of many rounds found that found any: what else the machine does decides whether one does.
template <typename Round>
unsigned found_in_rounds(Round round) {
  unsigned found = 0;
  for (int i = 0; i < 100 && found == 0; ++i) found = round();
  return found;
}

TEST(DeviceReceivers, WhoGivesWayForTooLongIsCalledBack) {
  if (DeviceReceivers::processors() < 2 || !GiveWay::is_possible()) GTEST_SKIP() << "nobody gives way here";
  const unsigned gave_way = found_in_rounds([] {
    Rig rig;
    rig.write_often([](Rig&) {});
    EXPECT_EQ(rig.called_back(), rig.gave_way());
    return rig.gave_way();
  });
  EXPECT_GT(gave_way, 0u);
}

// It stays where it is over what is short between two long ones.
TEST(DeviceReceivers, WhatIsShortInBetweenIsGivenWayToo) {
  if (DeviceReceivers::processors() < 2 || !GiveWay::is_possible()) GTEST_SKIP() << "nobody gives way here";
  const unsigned gave_way_behind_short = found_in_rounds([] {
    Rig rig;
    rig.write_often([](Rig& each) {
      each.send_short_write(0, Rig::kLength);
      (void)each.wait_for_all();
    });
    return rig.gave_way_behind_short();
  });
  EXPECT_GT(gave_way_behind_short, 0u);
}

// Whose receivers are others' as well.
TEST(DeviceReceivers, OfSeveralStreamsNoneGivesWay) {
  if (DeviceReceivers::processors() < 2 || !GiveWay::is_possible()) GTEST_SKIP() << "nobody gives way here";
  Rig rig;
  for (unsigned i = 0; i < 2 * kTrials; ++i) {
    rig.send(i % 2);
    (void)rig.wait_for_all();
  }
  EXPECT_EQ(rig.gave_way(), 0u);
}

// In one of many rounds: in each a thread may be kept from running for a millisecond.
TEST(DeviceReceivers, WhoAsksAloneIsServedByOneWorkerThatLooksForMore) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody looks on one processor";
  Rig rig;
  rig.give_each_one();
  unsigned polls_of_one = 0;
  for (int round = 0; round < 200 && polls_of_one == 0; ++round) {
    ASSERT_NO_FATAL_FAILURE(rig.ask_alone(7));
    std::set<const Worker*> seen;
    polls = 0;
    for (unsigned i = 0; i < 10; ++i) {
      rig.send_short(i % 2 == 0 ? wire::kOpcodeLookup : wire::kOpcodeRelease, i % 2 == 0 ? 7 : 0);
      seen.insert(rig.wait_for_all());
    }
    if (seen.size() == 1) polls_of_one = polls;
  }
  EXPECT_GT(polls_of_one, 0u);
}

// Asynchronous I/O. (Also who asks for one at a time may be taken for several, when it takes a millisecond.)
TEST(DeviceReceivers, WhoAsksForSeveralAtOnceIsNotAlone) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody serves alone on one processor";
  Rig rig;
  rig.give_each_one();
  const auto ends = [&rig](bool at_once) {
    unsigned count = 0;
    for (int round = 0; round < 40 && !testing::Test::HasFailure(); ++round) {
      rig.ask_alone(static_cast<uint32_t>(::gettid()));
      for (int i = 0; i < 4; ++i) {
        rig.send_read(0, 4096);
        if (!at_once) (void)rig.wait_for_all();
      }
      (void)rig.wait_for_all();
      count += rig.is_asked_by_one() ? 0 : 1;
    }
    return count;
  };
  EXPECT_GT(ends(true), ends(false));
}

// One that counts as receiver may have something in hand when the others leave.
TEST(DeviceReceivers, SomebodyReceivesAlthoughAReceiverIsCaught) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody serves alone on one processor";
  Rig rig;
  rig.give_each_one();
  rig.hold_only(wire::kOpcodeRelease);
  rig.send_short(wire::kOpcodeRelease);
  ASSERT_TRUE(rig.wait_until_at_it(1));
  for (unsigned i = 0; i < 4 * SoleCaller::kRunMin; ++i) {
    rig.send_short(wire::kOpcodeLookup, 7);
    rig.wait_for_all_but(1);
  }
  rig.hold(false);
  (void)rig.wait_for_all();
}

// Who asks alone may find the drive slow; others need not wait for it.
TEST(DeviceReceivers, OthersNeedNotWaitForWhoAskedAlone) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody serves alone on one processor";
  Rig rig;
  for (int round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(rig.ask_alone(7));
    rig.hold(true);
    rig.send_short(wire::kOpcodeLookup, 7);
    ASSERT_TRUE(rig.wait_until_at_it(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 50));
    for (unsigned i = 2; i < kWorkers; ++i) {
      rig.send_short(wire::kOpcodeLookup, 8);
      ASSERT_TRUE(rig.wait_until_at_it(i));
    }
    rig.hold(false);
    (void)rig.wait_for_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // who looks sleeps
  }
}

// It may also wait for memory, as the engine has all of it.
TEST(DeviceReceivers, OthersServeWhoAskedAloneWhenItsReceiverHasNoMemory) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody serves alone on one processor";
  Rig rig;
  rig.give_each_one();
  ASSERT_NO_FATAL_FAILURE(rig.ask_alone(7));
  rig.keep_payloads(true);
  for (unsigned i = 0; i < 2 * kWorkers - 1; ++i) {
    rig.send_short(wire::kOpcodeLookup, 7);
    (void)rig.wait_for_all();
  }
  rig.keep_payloads(false);
}

TEST(DeviceReceivers, WhenAnotherAsksTooThereAreMoreAgain) {
  if (DeviceReceivers::processors() < 2) GTEST_SKIP() << "nobody looks on one processor";
  Rig rig;
  rig.give_each_one();
  ASSERT_NO_FATAL_FAILURE(rig.ask_alone(7));
  std::set<const Worker*> seen;
  for (uint32_t i = 0; i < 100; ++i) {
    rig.send_short(wire::kOpcodeLookup, 7 + i % 2);
    seen.insert(rig.wait_for_all());
  }
  EXPECT_GT(seen.size(), 1u);
}

TEST(DeviceReceivers, EachStreamHasAReceiver) {
  Rig rig;
  for (unsigned streams = 2; streams <= kWorkers / 2; ++streams) {
    for (unsigned file = 0; file < streams; ++file) rig.send(file);
    (void)rig.wait_for_all();
    rig.hold(true);
    for (unsigned file = 0; file < streams; ++file) rig.send(file);
    EXPECT_TRUE(rig.wait_until_at_it(streams)) << rig.at_it() << " of " << streams;
    rig.hold(false);
    (void)rig.wait_for_all();
  }
}

TEST(DeviceReceivers, HalfOfTheWorkersReceiveAtMost) {
  constexpr unsigned kStreams = kWorkers / 2 + 2;  // a socket does not hold many requests more
  Rig rig;
  for (unsigned file = 0; file < kStreams; ++file) rig.send(file);
  (void)rig.wait_for_all();
  rig.hold(true);
  for (unsigned file = 0; file < kStreams; ++file) rig.send(file);
  EXPECT_TRUE(rig.wait_until_at_it(kWorkers / 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(rig.at_it(), kWorkers / 2);
  rig.hold(false);
  (void)rig.wait_for_all();
}

TEST(DeviceReceivers, WhileLittleComesTheyWaitInRead) {
  Rig rig;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 40; ++i) {
      rig.send_short(wire::kOpcodeLookup);
      (void)rig.wait_for_all();
    }
    EXPECT_TRUE(rig.reads_block());
    for (int i = 0; i < 10; ++i) {  // a stream between
      rig.send(0);
      (void)rig.wait_for_all();
    }
  }
}

// The kernel looks at all of them for each request.
TEST(DeviceReceivers, OnlyWhoWaitsForWritesHasAnEpollSet) {
  const unsigned others = Rig::epoll_sets();
  Rig rig(kWorkers, false);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 40; ++i) {
      rig.send_short(wire::kOpcodeLookup);
      (void)rig.wait_for_all();
    }
    rig.give_each_one();
    for (int i = 0; i < 10'000 && Rig::epoll_sets() != others; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(Rig::epoll_sets(), others);
    for (int i = 0; i < 20 || (i < 10'000 && Rig::epoll_sets() != others + 1); ++i) {
      rig.send(0);
      (void)rig.wait_for_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(Rig::epoll_sets(), others + 1);  // the stream's
  }
}

TEST(DeviceReceivers, WhoReadsLittleIsNoStream) {
  Rig rig;
  rig.give_each_one();
  unsigned free = rig.free_ones();
  for (int i = 0; i < 10; ++i) {
    rig.send_read(0, File::kLandingWriteMin);
    (void)rig.wait_for_all();
    EXPECT_EQ(rig.free_ones(), ++free);
  }
  rig.send_read(0, File::kLandingWriteMin + 1);
  (void)rig.wait_for_all();
  EXPECT_EQ(rig.free_ones(), free);
}

TEST(DeviceReceivers, RequestsThatBlockLeaveSomebodyToReceive) {
  Rig rig;
  rig.give_each_one();
  rig.hold(true);
  constexpr unsigned kHeld = kWorkers - 1;
  for (unsigned i = 0; i < kHeld; ++i) {
    rig.send_short(wire::kOpcodeFlush);
    ASSERT_TRUE(rig.wait_until_at_it(i + 1));
  }
  rig.send_short(wire::kOpcodeLookup);
  EXPECT_TRUE(rig.wait_until_at_it(kWorkers));
  rig.hold(false);
  (void)rig.wait_for_all();
}

// In some rounds the other waits already when the first has its request.
TEST(DeviceReceivers, TheLastOneIsNotFree) {
  const unsigned free_ones = found_in_rounds([] {
    Rig rig(2);
    rig.give_each_one();
    const unsigned before = rig.free_ones();
    rig.hold(true);
    rig.send_short(wire::kOpcodeFlush);
    EXPECT_TRUE(rig.wait_until_at_it(1));
    rig.send_short(wire::kOpcodeFlush);
    EXPECT_TRUE(rig.wait_until_at_it(2));
    rig.hold(false);
    (void)rig.wait_for_all();
    return rig.free_ones() - before;
  });
  EXPECT_EQ(free_ones, 1u);
}

TEST(DeviceReceivers, OneWorkerDoesItAlone) {
  Rig rig(1);
  for (int i = 0; i < 20; ++i) {
    rig.send(static_cast<unsigned>(i) % 3);
    (void)rig.wait_for_all();
  }
}

}  // namespace
}  // namespace fpfs
