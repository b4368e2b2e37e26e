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
TEST_F(IndexLimitTest, CopiesOfIndexesWaitForEachOther) {
  constexpr uint64_t kChunks = kLimit / 2;
  const std::vector<std::string> names = {"a", "b"};
  std::vector<std::shared_ptr<File>> files;
  for (const std::string& name : names) {
    files.push_back(array_.create(name));
    ASSERT_TRUE(array_.write(*files.back(), 0, make_bytes(kChunks * kTestChunk, 1)).is_ok());
    ASSERT_TRUE(array_.commit(*files.back()).is_ok());
  }
  // A log that is written anew is freed behind it. The index is copied when the last chunk is on its drive, and the
  // copy goes when the commit is answered: two commits that were under way like that at the same time are not both of
  // copies.
  using Commits = std::vector<SimArray::Answer<ControlRequest>>;
  const Commits* commits_now = nullptr;
  uint64_t lines = 0;
  struct Seen {
    std::string object;
    unsigned copies = 0;
    uint64_t stored = 0, answered = 0;  // lines of the trace, of this round; 0: not yet
  };
  std::vector<Seen> seen(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const File::Info info = files[i]->info();
    seen[i].object = Array::object_name(info.file_id, info.generation);
  }
  array_.sim().set_trace([&](const std::string& line) {
    ++lines;
    for (size_t i = 0; i < names.size(); ++i) {
      if (commits_now != nullptr && (*commits_now)[i].answered && seen[i].answered == 0) seen[i].answered = lines;
      if (line.starts_with("completed ") && line.find(seen[i].object) != std::string::npos) seen[i].stored = lines;
      seen[i].copies += line.starts_with("punch /m0/tree/" + names[i] + " ");
    }
  });
  unsigned rounds_together = 0;
  for (uint64_t round = 0; round < 1500; ++round) {
    for (const auto& file : files)
      ASSERT_TRUE(array_.write(*file, round % kChunks * kTestChunk, make_bytes(100, round)).is_ok());
    Commits commits(files.size());
    commits_now = &commits;
    const std::vector<Seen> before = seen;
    for (Seen& one : seen) one.stored = one.answered = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      commits[i].request.kind = ControlRequest::Kind::kCommit;
      files[i]->control(commits[i].request);
    }
    for (auto& commit : commits) ASSERT_TRUE(array_.wait(commit).is_ok());
    array_.world().drain();
    commits_now = nullptr;
    for (Seen& one : seen)
      if (one.answered == 0) one.answered = lines + 1;
    const bool both_copied = seen[0].copies > before[0].copies && seen[1].copies > before[1].copies;
    rounds_together += both_copied && seen[0].stored < seen[1].answered && seen[1].stored < seen[0].answered;
  }
  EXPECT_GT(seen[0].copies, 2u);
  EXPECT_GT(seen[1].copies, 2u);
  EXPECT_EQ(rounds_together, 0u);
}

}  // namespace
}  // namespace fpfs::test
