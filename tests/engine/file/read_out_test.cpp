// Chunks that a reader has read whole, and keeps himself (ReadRequest::reader_caches), go before memory that was never
// used: a load passes through few buffers, in whatever order its requests come and end. They are not read ahead, as long as
// it seems that he has them. And what a reader jumps over is not read ahead.
#include <gtest/gtest.h>

#include "engine/file/read_out.h"
#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;

enum class Order {
  kOneAfterTheOther,
  kSecondWithinFirst,  // the second one begins and ends while the first is being answered
  kSecondBeforeFirst,
};

// Two requests that meet in the middle of a chunk.
class ReadOutTest : public ::testing::Test {
 protected:
  static StoreOptions options() {
    StoreOptions options;
    options.inline_max = 0;
    return options;
  }
  struct Part : SimArray::Answer<ReadRequest> {
    Part(uint64_t offset, uint32_t length) {
      request.offset = FileOffset(offset);
      request.length = length;
      request.reader_caches = true;
    }
  };
  static void answer_behind(ReadRequest& done, const Status& result) {
    auto& self = *static_cast<ReadOutTest*>(done.owner);
    EXPECT_TRUE(result.is_ok()) << result.message();
    self.file_->read(self.second_.request);
  }
  // A file of eight chunks, of which the store that is mounted now has nothing in memory.
  void SetUp() override {
    file_ = array_.create("a");
    ASSERT_TRUE(array_.write(*file_, 0, make_bytes(8 * kChunk, 1)).is_ok());
    ASSERT_TRUE(array_.commit(*file_).is_ok());
    file_.reset();
    ASSERT_TRUE(array_.close().is_ok());
    array_.open();
    file_ = array_.open("a");
    before_ = array_.store().status().buffers.evictions;
  }
  void read(Part& part) {
    file_->read(part.request);
    ASSERT_TRUE(array_.wait(part).is_ok());
    array_.world().drain();
  }
  // How many chunks were given up for others, up to `count` that are read now, beginning at chunk 4.
  uint64_t given_up_for(unsigned count) {
    EXPECT_TRUE(array_.read(*file_, 4 * kChunk, count * kChunk).is_ok());
    return array_.store().status().buffers.evictions - before_;
  }

  SimArray array_{1, 2, options(), kChunk};
  std::shared_ptr<File> file_;
  uint64_t before_ = 0;
  Part first_{0, kChunk / 2 * 3}, second_{kChunk / 2 * 3, kChunk};
};

class ReadOutOrderTest : public ReadOutTest, public ::testing::WithParamInterface<Order> {};

TEST_P(ReadOutOrderTest, InWhateverOrderTheyAreRead) {
  switch (GetParam()) {
    case Order::kOneAfterTheOther:
      read(first_);
      read(second_);
      break;
    case Order::kSecondWithinFirst:
      ASSERT_TRUE(array_.read(*file_, 2 * kChunk, 100).is_ok());  // so that the second need not wait for it
      first_.request.owner = this;
      first_.request.complete = answer_behind;
      file_->read(first_.request);
      ASSERT_TRUE(array_.wait(second_).is_ok());
      array_.world().drain();
      break;
    case Order::kSecondBeforeFirst:
      read(second_);
      read(first_);
      break;
  }
  // Two chunks are read out, and a half: others take the place of the two, and then new buffers.
  EXPECT_EQ(given_up_for(3), 2u);
}

TEST_F(ReadOutTest, WhatIsReadInPartStays) {
  read(second_);
  EXPECT_EQ(given_up_for(2), 0u);
}

// A header at the beginning of every third chunk, by two short requests.
TEST_F(ReadOutTest, WhoGoesFromHeaderToHeaderHasNothingReadAhead) {
  ReadCursor cursor;
  for (uint64_t header = 3 * kChunk; header < 8 * kChunk; header += 3 * kChunk) {
    ASSERT_TRUE(array_.read(*file_, header, kChunk / 32, &cursor).is_ok());
    ASSERT_TRUE(array_.read(*file_, header + kChunk / 32, kChunk / 16, &cursor).is_ok());
  }
  array_.world().drain();
  EXPECT_EQ(array_.store().status().buffers.evictable, 2u);
}

TEST_F(ReadOutTest, WhoGoesOnHasTheNextChunksReadAhead) {
  ReadCursor cursor;
  uint64_t at = 3 * kChunk;
  for (uint32_t length = kChunk / 32; at + length < 4 * kChunk; at += length)
    ASSERT_TRUE(array_.read(*file_, at, length, &cursor).is_ok());
  array_.world().drain();
  EXPECT_GE(array_.store().status().buffers.evictable, 4u);
}

// One who has got chunks 4 and 5 reads the file from its beginning.
class ReadOutAheadTest : public ReadOutTest {
 protected:
  void SetUp() override {
    ReadOutTest::SetUp();
    for (uint64_t at = 4 * kChunk; at < 6 * kChunk; at += kChunk / 2) {
      Part half(at, kChunk / 2);
      read(half);
    }
    // In their buffers.
    ASSERT_TRUE(array_.read(*file_, 6 * kChunk, 2 * kChunk).is_ok());
  }
  // What is read of the drives by who reads chunks 0 and 1, and has the others read ahead: chunks.
  uint64_t read_beginning(bool reader_caches) {
    const uint64_t before = array_.bytes_read();
    ReadCursor cursor;
    for (uint64_t at = 0; at < 2 * kChunk; at += kChunk / 2) {
      Part part(at, kChunk / 2);
      part.request.cursor = &cursor;
      part.request.reader_caches = reader_caches;
      read(part);
    }
    return (array_.bytes_read() - before) / kChunk;
  }
};

TEST_F(ReadOutAheadTest, WhatHeHasIsNotReadAhead) {
  EXPECT_EQ(read_beginning(true), 4u);
}

TEST_F(ReadOutAheadTest, WhatOthersHaveIs) {
  EXPECT_EQ(read_beginning(false), 6u);
}

TEST_F(ReadOutAheadTest, WhoAsksForOneAgainHasLostTheOther) {
  Part again(4 * kChunk + 4096, 4096);
  read(again);
  EXPECT_EQ(read_beginning(true), 5u);  // 4 is in memory now
}

// They were passed by before he came there.
TEST_F(ReadOutAheadTest, WhoHasLostThemHasTheRestReadAhead) {
  ReadCursor cursor;
  for (uint64_t at = 0; at <= 4 * kChunk; at += kChunk / 2) {
    Part part(at, kChunk / 2);
    part.request.cursor = &cursor;
    read(part);
  }
  Part next(5 * kChunk, kChunk / 2);
  file_->read(next.request);
  EXPECT_TRUE(next.answered);
}

TEST(ReadOut, OfTooManyRangesNothingIsKnown) {
  ReadOut read_out;
  for (uint64_t range = 0; range < ReadOut::kRangesMax; ++range) read_out.note(ChunkIndex(2 * range));
  EXPECT_TRUE(read_out.contains(ChunkIndex(0)));
  EXPECT_FALSE(read_out.contains(ChunkIndex(1)));
  read_out.note(ChunkIndex(1));  // joins two of them
  EXPECT_TRUE(read_out.contains(ChunkIndex(0)));
  read_out.note(ChunkIndex(3 * ReadOut::kRangesMax));
  read_out.note(ChunkIndex(4 * ReadOut::kRangesMax));
  EXPECT_FALSE(read_out.contains(ChunkIndex(0)));
}

TEST(ReadOut, NothingIsKnownWhenOneIsAskedForAgain) {
  ReadOut read_out;
  read_out.note(ChunkIndex(1));
  read_out.note(ChunkIndex(2));
  EXPECT_TRUE(read_out.ask(ChunkIndex(3)));
  EXPECT_TRUE(read_out.contains(ChunkIndex(1)));
  EXPECT_FALSE(read_out.ask(ChunkIndex(2)));
  EXPECT_FALSE(read_out.contains(ChunkIndex(1)));
}

INSTANTIATE_TEST_SUITE_P(Orders, ReadOutOrderTest,
                         ::testing::Values(Order::kOneAfterTheOther, Order::kSecondWithinFirst,
                                           Order::kSecondBeforeFirst));

}  // namespace
}  // namespace fpfs::test
