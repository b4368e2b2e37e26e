// Whose thread does what takes a processor long: a member's own while nobody waits for it, the workers otherwise.
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "engine/io/awaited_thread.h"
#include "engine/io/posix_environment.h"
#include "engine/store/store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;
constexpr uint32_t kChunk = kHandedOverMin;
constexpr unsigned kBuffers = 40;

// Counts what it passes on; keeps it back while it is told to.
template <typename Item>
class KeptBack {
 public:
  explicit KeptBack(std::function<void(Item)> pass) : pass_(std::move(pass)) {}
  void take(Item item) {
    const std::lock_guard lock(mutex_);
    ++taken_;
    if (keeps_) return kept_.push_back(std::move(item));
    pass_(std::move(item));
  }
  void keep() {
    const std::lock_guard lock(mutex_);
    keeps_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    keeps_ = false;
    for (Item& item : kept_) pass_(std::move(item));
    kept_.clear();
  }
  size_t taken() const {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  const std::function<void(Item)> pass_;
  mutable std::mutex mutex_;
  bool keeps_ = false;
  size_t taken_ = 0;
  std::deque<Item> kept_;
};

class ToldWorkers final : public Executor {
 public:
  explicit ToldWorkers(Executor& workers)
      : workers_(workers), tasks_([&workers](Task task) { workers.post(std::move(task)); }) {}
  void post(Task task) override { tasks_.take(std::move(task)); }
  void post_after(milliseconds delay, Task task) override { workers_.post_after(delay, std::move(task)); }
  void keep() { tasks_.keep(); }
  void let_go() { tasks_.let_go(); }
  size_t posted() const { return tasks_.taken(); }

 private:
  Executor& workers_;
  KeptBack<Task> tasks_;
};

// Says of its thread what it is told; keeps requests back while it is told to.
class ToldQueue final : public IoQueue {
 public:
  explicit ToldQueue(std::unique_ptr<IoQueue> queue) : queue_(std::move(queue)) {}
  ~ToldQueue() override { queue_.reset(); }
  void submit(IoRequest& request) override {
    auto* const passed = new Passed;
    passed->outer = &request;
    passed->queue = this;
    passed->inner = request;
    passed->inner.owner = passed;
    if (request.prepare != nullptr) passed->inner.prepare = &ToldQueue::prepare;
    passed->inner.complete = &ToldQueue::complete;
    requests_.take(passed);
  }
  bool is_idle() const override { return !is_busy_; }
  void keep() { requests_.keep(); }
  void let_go() { requests_.let_go(); }
  size_t submitted() const { return requests_.taken(); }
  void set_busy(bool is_busy) { is_busy_ = is_busy; }
  // Whether the thread that runs is a queue's.
  static bool is_this_thread() { return is_this_; }

 private:
  struct Passed {
    IoRequest inner;
    IoRequest* outer = nullptr;
    ToldQueue* queue = nullptr;
  };
  static Status prepare(IoRequest& inner) {
    IoRequest& outer = *static_cast<Passed*>(inner.owner)->outer;
    const Status status = outer.prepare(outer);
    inner.handle = outer.handle;
    inner.offset = outer.offset;
    return status;
  }
  static void complete(IoRequest& inner, const Status& status) {
    const std::unique_ptr<Passed> passed(static_cast<Passed*>(inner.owner));
    IoRequest& outer = *passed->outer;
    outer.transferred = inner.transferred;
    const AwaitedThread::Scope awaited(passed->queue->is_busy_);
    is_this_ = true;
    outer.complete(outer, status);
  }

  static inline thread_local bool is_this_ = false;

  std::unique_ptr<IoQueue> queue_;
  std::atomic<bool> is_busy_{false};
  KeptBack<Passed*> requests_{[this](Passed* passed) { queue_->submit(passed->inner); }};
};

class ToldEnvironment final : public PosixEnvironment {
 public:
  ToldEnvironment() : PosixEnvironment(2), told_(PosixEnvironment::workers()) {}
  Executor& workers() override { return told_; }
  ToldWorkers& told() { return told_; }
  Result<std::unique_ptr<IoQueue>> make_queue(MemberIndex member, const QueueSettings& settings) override {
    settings_ = settings;
    FPFS_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> inner, PosixEnvironment::make_queue(member, settings));
    auto queue = std::make_unique<ToldQueue>(std::move(inner));
    queue_ = queue.get();
    return std::unique_ptr<IoQueue>(std::move(queue));
  }
  ToldQueue& queue() { return *queue_; }
  const QueueSettings& settings() const { return settings_; }

 private:
  ToldWorkers told_;
  ToldQueue* queue_ = nullptr;
  QueueSettings settings_;
};

class WorkersTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kCount = 8;  // chunks of a file
  WorkersTest() {
    FormatOptions format;
    format.chunk_size = kChunk;
    EXPECT_TRUE(Array::format(environment_, directories_, format).is_ok());
    open();
  }
  ~WorkersTest() override { EXPECT_TRUE(store_->close().is_ok()); }

  void open() {
    StoreOptions options;
    options.buffer_memory = uint64_t{kBuffers} * kChunk;
    options.array.buffered_members = true;
    options.read_ahead = 1;
    options.queue_depth = 3;
    options.submit_batch = 2;
    options.transfer_size = 64 * kKiB;
    auto store = Store::open(environment_, directories_, options);
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
  }
  // Nothing is in memory then.
  void reopen() {
    EXPECT_TRUE(store_->close().is_ok());
    store_.reset();
    open();
  }
  std::shared_ptr<File> create(const std::string& name) {
    auto created = store_->create(store_->root(), name, 0644);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    return created->file;
  }
  std::shared_ptr<File> find(const std::string& name) {
    auto node = store_->lookup(store_->root(), name);
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    auto file = store_->open_file(node->handle.get(), false);
    node->handle.reset();
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return *file;
  }
  static std::vector<std::byte> content(uint64_t chunks) {
    std::vector<std::byte> bytes(chunks * kChunk);
    test::fill(bytes, 11, 0);
    return bytes;
  }
  void save(const std::string& name) {
    const std::shared_ptr<File> file = create(name);
    EXPECT_TRUE(store_->write_sync(*file, FileOffset(0), content(kCount)).is_ok());
    EXPECT_TRUE(store_->commit_sync(*file).is_ok());
  }
  void expect_content(const std::string& name) {
    const std::shared_ptr<File> file = find(name);
    std::vector<std::byte> buffer(kCount * kChunk);
    const Result<size_t> got = store_->read_sync(*file, FileOffset(0), buffer);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    EXPECT_TRUE(buffer == content(kCount));
  }
  template <typename Condition>
  static bool comes_true(Condition condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(2));
    return condition();
  }

  test::TemporaryDirectory place_{test::quick_place()};
  std::vector<std::string> directories_{place_ / "a"};
  ToldEnvironment environment_;
  std::unique_ptr<Store> store_;
};

TEST_F(WorkersTest, TheOptionsOfTheStoreAreTheQueues) {
  EXPECT_EQ(environment_.settings().depth, 3U);
  EXPECT_EQ(environment_.settings().batch, 2U);
  EXPECT_EQ(environment_.settings().transfer_max, 64 * kKiB);
  EXPECT_TRUE(store_->close().is_ok());
  store_.reset();
  StoreOptions options;
  options.buffer_memory = uint64_t{kBuffers} * kChunk;
  options.array.buffered_members = true;
  for (const unsigned batch : {0U, 65U}) {
    options.submit_batch = batch;
    EXPECT_EQ(Store::open(environment_, directories_, options).status().code(), StatusCode::kInvalidArgument) << batch;
  }
  options.submit_batch = 1;
  for (const uint32_t size : {4096U, 64U * 1024 + 1, 65U * 1024 * 1024}) {
    options.transfer_size = size;
    EXPECT_EQ(Store::open(environment_, directories_, options).status().code(), StatusCode::kInvalidArgument) << size;
  }
  open();
}

TEST_F(WorkersTest, AMembersThreadThatNobodyWaitsForWakesNobody) {
  save("file");
  reopen();
  expect_content("file");
  EXPECT_EQ(environment_.told().posted(), 0U);
}

TEST_F(WorkersTest, ABusyMembersChunksAreHashedByWorkers) {
  environment_.queue().set_busy(true);
  environment_.told().keep();
  const std::shared_ptr<File> file = create("file");
  EXPECT_TRUE(store_->write_sync(*file, FileOffset(0), content(kCount)).is_ok());
  EXPECT_EQ(environment_.told().posted(), kCount);
  EXPECT_EQ(environment_.queue().submitted(), 0U) << "what is not hashed goes to no member";
  environment_.told().let_go();
  EXPECT_TRUE(store_->commit_sync(*file).is_ok());
  EXPECT_EQ(environment_.queue().submitted(), kCount);
  environment_.queue().set_busy(false);
}

TEST_F(WorkersTest, WhatABusyMemberReadIsVerifiedByWorkers) {
  save("file");
  reopen();
  environment_.queue().set_busy(true);
  expect_content("file");
  EXPECT_GE(environment_.told().posted(), kCount);
  environment_.queue().set_busy(false);
}

TEST_F(WorkersTest, ABusyMembersDamageIsFound) {
  save("file");
  EXPECT_TRUE(store_->close().is_ok());
  store_.reset();
  uint64_t objects = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directories_[0] + "/objects")) {
    if (!entry.is_regular_file()) continue;
    ++objects;
    std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(3 * kChunk + 5).put('x');
  }
  EXPECT_EQ(objects, 1U);
  open();
  environment_.queue().set_busy(true);
  std::vector<std::byte> buffer(kCount * kChunk);
  const std::shared_ptr<File> file = find("file");
  const Result<size_t> got = store_->read_sync(*file, FileOffset(0), buffer);
  EXPECT_EQ(got.status().code(), StatusCode::kCorruption);
  environment_.queue().set_busy(false);
}

// One whose buffer a flush gave back is not copied by the thread of the flush.
TEST_F(WorkersTest, AParkedWriteIsTakenUpByAWorkerWhenTheMemberIsBusy) {
  environment_.queue().keep();
  const std::shared_ptr<File> file = create("file");
  const std::vector<std::byte> bytes = content(1);
  std::atomic<unsigned> answered{0}, by_member{0};
  struct Write : WriteRequest {
    std::atomic<unsigned>*answered = nullptr, *by_member = nullptr;
  };
  std::vector<Write> writes(kBuffers + 4);
  for (size_t i = 0; i < writes.size(); ++i) {
    Write& write = writes[i];
    write.offset = FileOffset(i * kChunk);
    write.length = kChunk;
    write.data = bytes.data();
    write.answered = &answered;
    write.by_member = &by_member;
    write.complete = [](WriteRequest& request, const Status& status) {
      EXPECT_TRUE(status.is_ok()) << status.message();
      if (ToldQueue::is_this_thread()) static_cast<Write&>(request).by_member->fetch_add(1);
      static_cast<Write&>(request).answered->fetch_add(1);
    };
    file->write(write);
  }
  const unsigned taken = answered.load();
  ASSERT_LT(taken, writes.size()) << "more than the pool holds";
  const size_t before = environment_.told().posted();
  environment_.told().keep();
  environment_.queue().set_busy(true);
  environment_.queue().let_go();
  const size_t parked = writes.size() - taken;
  // Or by whoever looks again, as a buffer's owner was busy when the pool looked (BufferPool::retry_waiters()).
  EXPECT_TRUE(comes_true([&] { return environment_.told().posted() - before + answered.load() - taken >= parked; }));
  environment_.told().let_go();
  EXPECT_TRUE(comes_true([&] { return answered.load() == writes.size(); }));
  EXPECT_EQ(by_member.load(), 0u) << "the member's thread copies";
  EXPECT_TRUE(store_->commit_sync(*file).is_ok());
  environment_.queue().set_busy(false);
}

}  // namespace
}  // namespace fpfs
