// The simulated environment: events run when the test says so, in an order that the seed decides.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/units.h"
#include "engine/io/sim/sim_environment.h"

namespace fpfs {
namespace {

struct AlignedFree {
  void operator()(std::byte* data) const { std::free(data); }
};
using AlignedBuffer = std::unique_ptr<std::byte, AlignedFree>;
AlignedBuffer make_buffer(size_t length, std::byte fill) {
  AlignedBuffer buffer(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, length)));
  std::fill(buffer.get(), buffer.get() + length, fill);
  return buffer;
}

std::string run_tasks(uint64_t seed) {
  SimEnvironment world(seed);
  std::string order;
  for (char c = 'a'; c < 'k'; ++c)
    world.executor().post([&order, &world, c] {
      order.push_back(c);
      if (c == 'c') world.executor().post([&order] { order.push_back('X'); });
    });
  EXPECT_TRUE(order.empty()) << "a task never runs inside post()";
  world.drain();
  return order;
}

TEST(SimEnvironmentTest, SeedDecidesTheOrder) {
  EXPECT_EQ(run_tasks(1), run_tasks(1));
  EXPECT_NE(run_tasks(1), run_tasks(2));
  EXPECT_EQ(run_tasks(1).size(), 11u);
}

TEST(SimEnvironmentTest, DelayedTasksRunAtTheirTimeAtTheEarliest) {
  SimEnvironment world(3);
  const time_t begin = world.now().tv_sec;
  time_t ran_at = 0;
  world.executor().post_after(std::chrono::seconds(10), [&] { ran_at = world.now().tv_sec; });
  world.drain();
  EXPECT_EQ(ran_at, 0) << "drain() leaves delayed tasks alone";
  EXPECT_TRUE(world.run_until([&] { return ran_at != 0; }));
  EXPECT_GE(ran_at, begin + 10);
  EXPECT_FALSE(world.step());
}

struct Answers {
  std::vector<std::pair<IoRequest*, Status>> list;
};
void note(IoRequest& request, const Status& status) {
  static_cast<Answers*>(request.owner)->list.emplace_back(&request, status);
}

TEST(SimEnvironmentTest, TransfersHappenInTwoStepsWithinTheDepth) {
  SimEnvironment world(4);
  const Handle root = world.storage().open_directory("/m0").value();
  const Handle file = world.storage().open_at(root, "a", O_RDWR | O_CREAT | O_DIRECT, 0600).value();
  auto queue = world.make_queue(MemberIndex(0), {.depth = 2}).value();
  Answers answers;
  AlignedBuffer buffers[4];
  IoRequest writes[4];
  for (unsigned i = 0; i < 4; ++i) {
    buffers[i] = make_buffer(8192, std::byte(i + 1));
    writes[i].kind = IoRequest::Kind::kWrite;
    writes[i].handle = file;
    writes[i].data = buffers[i].get();
    writes[i].offset = i * 8192;
    writes[i].length = 8192;
    writes[i].complete = note;
    writes[i].owner = &answers;
    queue->submit(writes[i]);
  }
  EXPECT_TRUE(answers.list.empty());
  world.drain();
  ASSERT_EQ(answers.list.size(), 4u);
  for (const auto& [request, status] : answers.list) EXPECT_TRUE(status.is_ok());

  AlignedBuffer back = make_buffer(65536, std::byte{9});
  IoRequest read;
  read.handle = file;
  read.data = back.get();
  read.length = 65536;
  read.complete = note;
  read.owner = &answers;
  queue->submit(read);
  world.drain();
  EXPECT_EQ(read.transferred, 32768u) << "a read ends at the end of the file";
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(back.get()[i * 8192 + 100], std::byte(i + 1));
  queue.reset();
  world.storage().close(file);
  world.storage().close(root);
}

TEST(SimEnvironmentTest, FailedPrepareSkipsTheTransfer) {
  SimEnvironment world(5);
  auto queue = world.make_queue(MemberIndex(0), {.depth = 2}).value();
  Answers answers;
  IoRequest request;
  request.kind = IoRequest::Kind::kWrite;
  request.prepare = [](IoRequest&) { return Status::error(StatusCode::kNoSpace, "no room"); };
  request.complete = note;
  request.owner = &answers;
  queue->submit(request);
  queue.reset();  // waits for what was submitted
  ASSERT_EQ(answers.list.size(), 1u);
  EXPECT_EQ(answers.list[0].second.code(), StatusCode::kNoSpace);
}

TEST(SimEnvironmentTest, FaultyTransfersFailOrLie) {
  using Effect = SimFault::Effect;
  for (const Effect effect : {Effect::kError, Effect::kShort, Effect::kLost, Effect::kMisdirected}) {
    SimEnvironment world(6);
    const Handle root = world.storage().open_directory("/m1").value();
    const Handle file = world.storage().open_at(root, "a", O_RDWR | O_CREAT | O_DIRECT, 0600).value();
    auto queue = world.make_queue(MemberIndex(1), {.depth = 2}).value();
    world.sim().inject({.call = SimFault::Call::kWrite, .effect = effect, .filesystem = 2, .role = {}});
    Answers answers;
    AlignedBuffer buffer = make_buffer(8192, std::byte{5});
    IoRequest write;
    write.kind = IoRequest::Kind::kWrite;
    write.handle = file;
    write.data = buffer.get();
    write.length = 8192;
    write.complete = note;
    write.owner = &answers;
    queue->submit(write);
    world.drain();
    ASSERT_EQ(answers.list.size(), 1u);
    const bool lies = effect == Effect::kLost || effect == Effect::kMisdirected;
    EXPECT_EQ(answers.list[0].second.is_ok(), lies);
    EXPECT_EQ(answers.list[0].second.code(), lies ? StatusCode::kOk : StatusCode::kIoError);
    const auto content = world.sim().content_of("/m1/a");
    if (effect == Effect::kLost) {
      EXPECT_TRUE(content.empty());
    }
    if (effect == Effect::kMisdirected) {
      ASSERT_EQ(content.size(), 16384u);
      EXPECT_EQ(content[0], std::byte{0});
      EXPECT_EQ(content[8192], std::byte{5});
    }
    queue.reset();
    world.storage().close(file);
    world.storage().close(root);
  }
}

TEST(SimEnvironmentTest, AfterTheCutEverythingEndsWithErrors) {
  SimEnvironment world(7);
  const Handle root = world.storage().open_directory("/m0").value();
  const Handle file = world.storage().open_at(root, "a", O_RDWR | O_CREAT | O_DIRECT, 0600).value();
  ASSERT_TRUE(world.storage().fsync(root).is_ok());
  auto queue = world.make_queue(MemberIndex(0), {.depth = 4}).value();
  Answers answers;
  AlignedBuffer buffer = make_buffer(4096, std::byte{5});
  IoRequest writes[4];
  for (unsigned i = 0; i < 4; ++i) {
    writes[i].kind = IoRequest::Kind::kWrite;
    writes[i].handle = file;
    writes[i].data = buffer.get();
    writes[i].offset = i * 4096;
    writes[i].length = 4096;
    writes[i].complete = note;
    writes[i].owner = &answers;
    queue->submit(writes[i]);
  }
  world.cut_at(world.boundaries() + 3);
  world.drain();
  EXPECT_TRUE(world.is_off());
  ASSERT_EQ(answers.list.size(), 4u) << "every submit is answered once";
  EXPECT_EQ(answers.list.back().second.code(), StatusCode::kIoError);
  queue.reset();
  world.storage().close(file);
  world.storage().close(root);
  world.crash();
  EXPECT_FALSE(world.is_off());
  EXPECT_TRUE(world.storage().open_directory("/m0").is_ok());
}

}  // namespace
}  // namespace fpfs
