// Who asks for a copy before the way to the store is known.
#include "engine/tier/awaited_chunk_source.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace fpfs::test {
namespace {

// Knows everything under one checksum.
class Known final : public ChunkSource {
 public:
  explicit Known(uint64_t checksum) : checksum_(checksum) {}
  void fetch(const Wanted& wanted, std::span<std::byte> into, Done done) override {
    into[0] = static_cast<std::byte>(wanted.chunk.value());
    done(Found{checksum_});
  }

 private:
  const uint64_t checksum_;
};

struct Asked {
  std::array<std::byte, 1> into{};
  std::optional<Result<ChunkSource::Found>> answer;
  unsigned answers = 0;
};

void ask(AwaitedChunkSource& source, uint64_t chunk, Asked& asked) {
  ChunkSource::Wanted wanted;
  wanted.chunk = ChunkIndex(chunk);
  source.fetch(wanted, asked.into, [&asked](const Result<ChunkSource::Found>& found) {
    asked.answer = found;
    ++asked.answers;
  });
}

Status away() {
  return Status::error(StatusCode::kUnreachable, "it does not answer");
}

TEST(AwaitedChunkSource, WhoAsksEarlyIsAnsweredWhenTheSourceIsFound) {
  AwaitedChunkSource source;
  std::array<Asked, 3> early;
  for (uint64_t chunk = 0; chunk < early.size(); ++chunk) ask(source, chunk + 1, early[chunk]);
  for (const Asked& asked : early) EXPECT_EQ(asked.answers, 0u);
  source.found(std::make_shared<Known>(7));
  Asked late;
  ask(source, 9, late);
  for (uint64_t chunk = 0; chunk < early.size(); ++chunk) {
    ASSERT_EQ(early[chunk].answers, 1u);
    EXPECT_EQ(early[chunk].answer->value().stored_mark, 7u);
    EXPECT_EQ(early[chunk].into[0], static_cast<std::byte>(chunk + 1));
  }
  ASSERT_EQ(late.answers, 1u);
  EXPECT_EQ(late.into[0], std::byte{9});
}

TEST(AwaitedChunkSource, WhoAsksIsToldWhyThereIsNone) {
  AwaitedChunkSource source;
  Asked early, late, found;
  ask(source, 1, early);
  source.not_found(away());
  ask(source, 2, late);
  for (const Asked* asked : {&early, &late}) {
    ASSERT_EQ(asked->answers, 1u);
    EXPECT_EQ(asked->answer->status().code(), StatusCode::kUnreachable);
  }
  source.found(std::make_shared<Known>(1));  // it is there after all
  ask(source, 3, found);
  ASSERT_EQ(found.answers, 1u);
  EXPECT_TRUE(found.answer->is_ok());
  source.not_found(away());  // and gone
  ask(source, 4, found);
  EXPECT_EQ(found.answer->status().code(), StatusCode::kUnreachable);
}

// Everybody is answered once, whenever they ask.
TEST(AwaitedChunkSource, WhileItIsFound) {
  for (unsigned round = 0; round < 200; ++round) {
    AwaitedChunkSource source;
    std::array<Asked, 40> asked;
    std::thread asks([&] {
      for (Asked& one : asked) ask(source, 1, one);
    });
    round % 2 == 0 ? source.found(std::make_shared<Known>(1)) : source.not_found(away());
    asks.join();
    for (const Asked& one : asked) ASSERT_EQ(one.answers, 1u);
  }
}

}  // namespace
}  // namespace fpfs::test
