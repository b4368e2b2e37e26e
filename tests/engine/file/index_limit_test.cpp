// The memory for the indexes of open files has a bound: what would need more is refused, and nothing else is.
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "engine/file/index_memory.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr uint64_t kLimit = 20;  // chunks

class IndexLimitTest : public ::testing::Test {
 protected:
  IndexLimitTest() : array_(3, 3, options()) {}
  static StoreOptions options() {
    StoreOptions options;
    options.index_chunks = kLimit;
    return options;
  }
  // How many chunks were taken before the first error, which is returned.
  std::pair<uint64_t, int> fill(File& file, uint64_t from) {
    for (uint64_t count = 0;; ++count) {
      const Status status = array_.write(file, (from + count) * kTestChunk, make_bytes(kTestChunk, count));
      if (!status.is_ok() || count > 10 * kLimit) return {count, status.errno_value()};
      EXPECT_TRUE(array_.commit(file).is_ok());
    }
  }
  SimArray array_;
};

TEST_F(IndexLimitTest, NoChunkIsAddedBeyondIt) {
  std::shared_ptr<File> file = array_.create("file"), other = array_.create("other"), small = array_.create("small");
  EXPECT_EQ(fill(*file, 0), std::pair(uint64_t{kLimit}, ENOMEM));
  EXPECT_EQ(fill(*other, 7), std::pair(uint64_t{0}, ENOMEM));
  // What needs no more of it works, and what was there is whole.
  EXPECT_TRUE(array_.write(*file, 5 * kTestChunk + 100, make_bytes(500, 9)).is_ok());
  EXPECT_TRUE(array_.write(*small, 0, make_bytes(500, 9)).is_ok());
  EXPECT_TRUE(array_.commit(*file).is_ok());
  EXPECT_TRUE(array_.commit(*small).is_ok());
  EXPECT_TRUE(array_.read_all(*file).is_ok());
  EXPECT_EQ(file->size(), kLimit * kTestChunk);
  // Cut off, they count no more.
  EXPECT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, kTestChunk).is_ok());
  EXPECT_EQ(fill(*other, 0), std::pair(kLimit - 1, ENOMEM));
}

TEST_F(IndexLimitTest, AFileThatWouldExceedItIsNotOpened) {
  std::shared_ptr<File> file = array_.create("file");
  fill(*file, 0);
  file = nullptr;
  array_.world().drain();
  std::shared_ptr<File> other = array_.create("other");
  ASSERT_TRUE(array_.write(*other, 0, make_bytes(kTestChunk, 1)).is_ok());
  ASSERT_TRUE(array_.commit(*other).is_ok());
  EXPECT_EQ(array_.try_open("file").status().errno_value(), ENOMEM);
  other = nullptr;
  array_.world().drain();
  file = array_.open("file");
  EXPECT_EQ(file->size(), kLimit * kTestChunk);
}

// An index that is written whole is copied for that: who would need a second copy beyond the limit gets none.
TEST(IndexMemoryCopies, AreTakenWhileThereAreNoOthersBeyondTheLimit) {
  IndexMemory memory(kLimit);
  std::optional<IndexMemory::Copies> first(std::in_place), second(std::in_place), third(std::in_place);
  EXPECT_TRUE(first->take(memory, kLimit));
  EXPECT_FALSE(second->take(memory, 1));
  first.reset();
  EXPECT_TRUE(third->take(memory, 1));
  EXPECT_TRUE(second->take(memory, 1));
}

// It appends its changes instead, and comes later.
TEST_F(IndexLimitTest, AllIndexesAreWrittenAnewAtLast) {
  constexpr uint64_t kChunks = kLimit / 2;
  const std::vector<std::string> names = {"a", "b"};
  std::vector<std::shared_ptr<File>> files;
  for (const std::string& name : names) {
    files.push_back(array_.create(name));
    ASSERT_TRUE(array_.write(*files.back(), 0, make_bytes(kChunks * kTestChunk, 1)).is_ok());
    ASSERT_TRUE(array_.commit(*files.back()).is_ok());
  }
  // A log that is written anew is freed behind it.
  std::vector<unsigned> copies(names.size());
  array_.sim().set_trace([&](const std::string& line) {
    for (size_t i = 0; i < names.size(); ++i) copies[i] += line.starts_with("punch /m0/tree/" + names[i] + " ");
  });
  for (uint64_t round = 0; round < 1500; ++round) {
    for (const auto& file : files)
      ASSERT_TRUE(array_.write(*file, round % kChunks * kTestChunk, make_bytes(100, round)).is_ok());
    std::vector<SimArray::Answer<ControlRequest>> commits(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      commits[i].request.kind = ControlRequest::Kind::kCommit;
      files[i]->control(commits[i].request);
    }
    for (auto& commit : commits) ASSERT_TRUE(array_.wait(commit).is_ok());
    array_.world().drain();
  }
  EXPECT_GT(copies[0], 2u);
  EXPECT_GT(copies[1], 2u);
}

}  // namespace
}  // namespace fpfs::test
