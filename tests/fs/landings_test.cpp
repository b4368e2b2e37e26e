// Where the payload of writes comes to that a receiver reads, at a socket in the place of /dev/fuse, of files in an array.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "engine/io/posix_environment.h"
#include "fs/nodes/open_handles.h"
#include "fs/transport/device_receivers.h"
#include "tests/engine/store/small_store.h"
#include "tests/fs/socket_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using test::kSmallChunk;

// One worker receives, and writes what came as the WRITE operation does.
class Rig final : public test::SocketDevice {
 public:
  explicit Rig(unsigned files) : files_(files), contents_(files) {
    test::format_small_array(environment_, {place_ / "a", place_ / "b"});
    store_ = test::open_small_store(environment_, {place_ / "a", place_ / "b"}, false);
    if (store_ == nullptr) std::abort();
    for (unsigned i = 0; i < files; ++i) {
      auto created = store_->create(store_->root(), "f" + std::to_string(i), 0644);
      if (!created.is_ok()) std::abort();
      created->node.handle.reset();
      files_[i].file = created->file;
    }
    worker_.thread = std::thread([this] {
      receivers_.serve(worker_);
      worker_.request.payload = nullptr;
    });
  }
  ~Rig() {
    stop();
    receivers_.wake_all();
    worker_.thread.join();
    for (OpenFile& open : files_) open.file = nullptr;
    EXPECT_TRUE(store_->close().is_ok());
  }

  // The next write of one of the files, and waits until it is answered.
  void send(unsigned index, uint32_t bytes) {
    std::vector<std::byte>& content = contents_[index];
    std::vector<std::byte> request = transfer(wire::kOpcodeWrite, files_[index], content.size(), bytes, bytes);
    const std::span<std::byte> payload = std::span(request).subspan(wire::kWritePayloadOffset);
    test::fill(payload, ++sent_, 0);
    content.insert(content.end(), payload.begin(), payload.end());
    send_bytes(request);
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return written_ == sent_; }));
  }
  // Writes whose payload needed no copy here.
  unsigned landed() const { return landed_; }
  // Every file has what was sent for it.
  void expect_contents() {
    for (size_t i = 0; i < files_.size(); ++i) {
      std::vector<std::byte> read(contents_[i].size());
      ASSERT_TRUE(store_->commit_sync(*files_[i].file).is_ok());
      ASSERT_TRUE(store_->read_sync(*files_[i].file, FileOffset(0), read).is_ok());
      EXPECT_TRUE(read == contents_[i]) << i;
    }
  }

  bool handle(Worker& worker, size_t length) override {
    RequestContext& context = worker.request;
    const std::byte* const bytes = context.payload->request;
    const wire::Flow flow = wire::flow_of({bytes, std::min(length, wire::kWritePayloadOffset)});
    if (context.landing.file != nullptr) ++landed_;
    WriteRequest write;
    write.offset = flow.offset;
    write.length = flow.bytes;
    write.data = bytes + wire::kWritePayloadOffset;
    write.landing = context.landing.file != nullptr ? &context.landing : nullptr;
    std::promise<bool> is_written;
    write.owner = &is_written;
    write.complete = [](WriteRequest& request, const Status& status) {
      static_cast<std::promise<bool>*>(request.owner)->set_value(status.is_ok());
    };
    OpenHandles::file(flow.handle).file->write(write);
    EXPECT_TRUE(is_written.get_future().get());
    receivers_.answered(context);
    {
      const std::lock_guard lock(mutex_);
      ++written_;
    }
    changed_.notify_all();
    return true;
  }

 private:
  test::TemporaryDirectory place_;
  PosixEnvironment environment_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ReceiveBuffers> buffers_ = *ReceiveBuffers::create(2);
  std::vector<OpenFile> files_;
  std::vector<std::vector<std::byte>> contents_;
  std::atomic<unsigned> landed_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned sent_ = 0, written_ = 0;
  DeviceReceivers receivers_{*this, *buffers_, 1, false};
  Worker worker_;
};

// Whose write comes nobody can guess.
void send_by_chance(Rig& rig, unsigned files, unsigned writes, uint32_t bytes) {
  std::mt19937 random(1);
  for (unsigned i = 0; i < writes && !testing::Test::HasFatalFailure(); ++i) rig.send(random() % files, bytes);
}

TEST(Landings, AStreamIsReceivedWhereItBelongs) {
  Rig rig(1);
  send_by_chance(rig, 1, 40, kSmallChunk / 2 + 4096);
  EXPECT_GE(rig.landed(), 38u);
  rig.expect_contents();
}

// As torch.save writes in the legacy format: each tensor with its length before it.
TEST(Landings, WhatIsShortBetweenTwoOfAStreamDoesNotEndIt) {
  Rig rig(1);
  constexpr unsigned kTensors = 20;
  for (unsigned i = 0; i < kTensors && !HasFatalFailure(); ++i) {
    rig.send(0, 8);
    rig.send(0, 2 * kSmallChunk);
  }
  EXPECT_GE(rig.landed(), 2 * kTensors - 3);  // the first long one is what shows that there is a stream
  rig.expect_contents();
}

TEST(Landings, WholeChunksMayLieInEachOthersPlace) {
  Rig rig(4);
  send_by_chance(rig, 4, 60, kSmallChunk);
  EXPECT_GE(rig.landed(), 55u);
  rig.expect_contents();
}

// Half of a chunk lies in one that has a half already.
TEST(Landings, PartsOfChunksDoNot) {
  Rig rig(4);
  send_by_chance(rig, 4, 60, kSmallChunk / 2 + 4096);
  EXPECT_LE(rig.landed(), 30u);
  rig.expect_contents();
}

}  // namespace
}  // namespace fpfs
