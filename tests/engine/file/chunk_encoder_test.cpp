// What becomes of a chunk at the encoder, and what that leaves in its space.
#include "engine/file/chunk_encoder.h"

#include <gtest/gtest.h>

#include "tests/support/held_tasks.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;
constexpr MemberIndex kFirst(0);

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
  test::HeldTasks tasks_;
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

TEST_F(ChunkEncoderTest, WhatIsOnlyHashedNeedsNoSpace) {
  Chunk first(kFirst, true), second(kFirst, true), hashed(kFirst, true);
  hashed.compression.mode = Compression::Mode::kOff;
  for (Chunk* chunk : {&first, &second, &hashed}) encoder_->start(*chunk);  // two have all spaces
  EXPECT_FALSE(hashed.answer.has_value()) << "never inside start()";
  tasks_.run();
  ASSERT_TRUE(hashed.answer.has_value() && hashed.answer->is_ok());
  EXPECT_EQ(hashed.encoded.codec, Codec::kRaw);
  EXPECT_EQ(hashed.encoded.checksum, stored_checksum(Codec::kRaw, hashed.content, hashed.seed));
  EXPECT_EQ(hashed.space, nullptr);
  for (Chunk* chunk : {&first, &second}) encoder_->release(*chunk);
}

}  // namespace
}  // namespace fpfs
