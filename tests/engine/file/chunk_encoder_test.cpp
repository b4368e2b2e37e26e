// The encoder's spaces: who has one, who waits for one, and what a member that hangs keeps.
#include "engine/file/chunk_encoder.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;
constexpr MemberIndex kFirst(0), kSecond(1);

// Runs tasks when the test says so.
class HeldTasks : public Executor {
 public:
  void post(Task task) override { tasks_.push_back(std::move(task)); }
  void post_after(std::chrono::milliseconds, Task task) override { post(std::move(task)); }
  size_t count() const { return tasks_.size(); }
  void run() {
    while (!tasks_.empty()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Task> tasks_;
};

class ChunkEncoderTest : public ::testing::Test {
 protected:
  struct Chunk : EncodeRequest {
    Chunk(MemberIndex of, bool shrinks) : content(kChunk) {
      test::fill(content, of.value(), 0);
      if (shrinks) test::make_shrink(content);
      member = of;
      raw = content;
      seed = 7;
      compression.mode = Compression::Mode::kZstd;
      owner = this;
      ready = [](EncodeRequest& request, const Status& status) { static_cast<Chunk*>(request.owner)->answer = status; };
    }
    std::vector<std::byte> content;
    std::optional<Status> answer;
  };
  ~ChunkEncoderTest() override { tasks_.run(); }

  static constexpr unsigned kSpaces = 2;
  HeldTasks tasks_;
  TaskCounter counter_{tasks_, tasks_};
  std::unique_ptr<ChunkEncoder> encoder_ = ChunkEncoder::create(2, kSpaces, kChunk, counter_).value();
};

TEST_F(ChunkEncoderTest, WhatShrinksLiesInItsSpaceUntilItIsReleased) {
  Chunk chunk(kFirst, true);
  encoder_->start(chunk);
  EXPECT_FALSE(chunk.answer.has_value()) << "never inside start()";
  tasks_.run();
  ASSERT_TRUE(chunk.answer.has_value() && chunk.answer->is_ok());
  EXPECT_EQ(chunk.encoded.codec, Codec::kBlocks);
  ASSERT_NE(chunk.space, nullptr);
  std::vector<std::byte> back(kChunk);
  EXPECT_TRUE(decode_chunk(Codec::kBlocks, {chunk.space->data, chunk.encoded.length}, back, chunk.seed).is_ok());
  EXPECT_EQ(back, chunk.content);
  encoder_->release(chunk);
  EXPECT_EQ(chunk.space, nullptr);
}

TEST_F(ChunkEncoderTest, WhatDoesNotShrinkKeepsNoSpace) {
  Chunk chunk(kFirst, false);
  encoder_->start(chunk);
  tasks_.run();
  ASSERT_TRUE(chunk.answer.has_value() && chunk.answer->is_ok());
  EXPECT_EQ(chunk.encoded.codec, Codec::kRaw);
  EXPECT_EQ(chunk.encoded.length, kChunk);
  EXPECT_EQ(chunk.space, nullptr);
  encoder_->release(chunk);  // nothing to release
}

TEST_F(ChunkEncoderTest, WhoFindsNoSpaceWaitsInOrderAndOnlyForItsMember) {
  Chunk first(kFirst, true), second(kFirst, true), third(kFirst, true), fourth(kFirst, true), other(kSecond, true);
  for (Chunk* chunk : {&first, &second, &third, &fourth, &other}) encoder_->start(*chunk);
  tasks_.run();
  EXPECT_TRUE(first.answer && second.answer && other.answer);
  EXPECT_FALSE(third.answer || fourth.answer);
  encoder_->release(first);
  tasks_.run();
  EXPECT_TRUE(third.answer.has_value());
  EXPECT_FALSE(fourth.answer.has_value());
  for (Chunk* chunk : {&second, &third, &other}) encoder_->release(*chunk);
  tasks_.run();
  EXPECT_TRUE(fourth.answer.has_value());
  encoder_->release(fourth);
}

TEST_F(ChunkEncoderTest, AMemberThatHangsFailsWhoWaitsAndKeepsItsSpacesOnly) {
  Chunk first(kFirst, true), second(kFirst, true), third(kFirst, true), other(kSecond, true);
  for (Chunk* chunk : {&first, &second, &third}) encoder_->start(*chunk);
  tasks_.run();
  encoder_->fail_waiting(kFirst, Status::error(StatusCode::kIoError, "hangs"));
  ASSERT_TRUE(third.answer.has_value());
  EXPECT_EQ(third.answer->code(), StatusCode::kIoError);
  EXPECT_EQ(third.space, nullptr);
  encoder_->start(other);
  tasks_.run();
  EXPECT_TRUE(other.answer && other.answer->is_ok());
  for (Chunk* chunk : {&first, &second, &other}) encoder_->release(*chunk);
}

TEST_F(ChunkEncoderTest, WhatIsNotEncodedWhenItStopsFails) {
  Chunk encoded(kFirst, true), posted(kFirst, true), waiting(kFirst, true), late(kFirst, true);
  encoder_->start(encoded);
  tasks_.run();
  encoder_->start(posted);
  encoder_->start(waiting);
  encoder_->stop();
  ASSERT_TRUE(waiting.answer.has_value());
  EXPECT_FALSE(waiting.answer->is_ok());
  encoder_->start(late);
  EXPECT_FALSE(posted.answer || late.answer);
  tasks_.run();
  for (const Chunk* chunk : {&posted, &late}) {
    ASSERT_TRUE(chunk->answer.has_value());
    EXPECT_FALSE(chunk->answer->is_ok());
    EXPECT_EQ(chunk->space, nullptr);
  }
  EXPECT_TRUE(encoded.answer->is_ok());
  encoder_->release(encoded);
}

}  // namespace
}  // namespace fpfs
