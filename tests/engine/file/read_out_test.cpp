// Chunks that a reader has read to their end, and keeps himself (ReadRequest::reader_caches), go before memory that was
// never used: a load passes through few buffers, in whatever order its requests end.
#include <gtest/gtest.h>

#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;

// Two requests that meet in a chunk; the second one begins and ends while the first is being answered.
class ReadOutTest : public ::testing::TestWithParam<bool> {
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
  uint64_t evictions() { return array_.store().status().buffers.evictions; }

  SimArray array_{1, 2, options(), kChunk};
  std::shared_ptr<File> file_;
  Part first_{kChunk / 2, kChunk}, second_{kChunk / 2 * 3, kChunk};
};

TEST_P(ReadOutTest, InWhateverOrderTheyEnd) {
  const bool second_ends_first = GetParam();
  file_ = array_.create("a");
  ASSERT_TRUE(array_.write(*file_, 0, make_bytes(6 * kChunk, 1)).is_ok());
  ASSERT_TRUE(array_.commit(*file_).is_ok());
  file_.reset();
  ASSERT_TRUE(array_.close().is_ok());
  array_.open();
  file_ = array_.open("a");
  const uint64_t before = evictions();

  if (second_ends_first) {
    ASSERT_TRUE(array_.read(*file_, 2 * kChunk, 100).is_ok());  // so that the second need not wait for it
    first_.request.owner = this;
    first_.request.complete = answer_behind;
    file_->read(first_.request);
  } else {
    file_->read(first_.request);
    ASSERT_TRUE(array_.wait(first_).is_ok());
    file_->read(second_.request);
  }
  ASSERT_TRUE(array_.wait(second_).is_ok());
  array_.world().drain();
  // The first two chunks are read out: others take their place, and no new buffers.
  ASSERT_TRUE(array_.read(*file_, 4 * kChunk, 2 * kChunk).is_ok());
  EXPECT_EQ(evictions() - before, 2u);
  file_.reset();
}

INSTANTIATE_TEST_SUITE_P(SecondEndsFirst, ReadOutTest, ::testing::Bool());

}  // namespace
}  // namespace fpfs::test
