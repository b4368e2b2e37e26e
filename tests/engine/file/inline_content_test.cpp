// Content that is kept in sidecars goes through the pool like any other: it is read again when it was evicted, a read
// that fails is an error of that call, and no commit loses content that is not in memory.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

using Kind = ControlRequest::Kind;

class InlineContentTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  InlineContentTest() : array_(GetParam()), random_(GetParam()) {
    filler_ = array_.create("filler");
    EXPECT_TRUE(array_.write(*filler_, 0, make_bytes(kRequestBytesMax, 1)).is_ok());
    EXPECT_TRUE(array_.write(*filler_, kRequestBytesMax, make_bytes(kRequestBytesMax, 2)).is_ok());
    EXPECT_TRUE(array_.write(*filler_, 2 * kRequestBytesMax, make_bytes(kRequestBytesMax, 3)).is_ok());
    EXPECT_TRUE(array_.commit(*filler_).is_ok());
  }

  // A file with committed content, open.
  std::shared_ptr<File> make(const std::string& name, const Bytes& content) {
    std::shared_ptr<File> file = array_.create(name);
    EXPECT_TRUE(array_.write(*file, 0, content).is_ok());
    EXPECT_TRUE(array_.commit(*file).is_ok());
    EXPECT_TRUE(file->info().is_inline);
    return file;
  }
  // The pool holds nothing but the filler afterwards.
  void evict() {
    for (int round = 0; round < 2; ++round) EXPECT_TRUE(array_.read_all(*filler_).is_ok());
  }
  void fail_reads() {
    SimFault plan{.call = SimFault::Call::kRead,
                  .effect = SimFault::Effect::kError,
                  .error = EIO,
                  .filesystem = {},
                  .role = SimRole::kTree};
    plan.count = SimFault::kForever;
    array_.sim().inject(plan);
  }
  void expect(File& file, const Bytes& content) {
    const Result<Bytes> read = array_.read_all(file);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == content);
  }
  void expect_after_crash(std::shared_ptr<File> file, const std::string& name, const Bytes& content) {
    file.reset();
    filler_.reset();
    array_.crash();
    array_.open();
    expect(*array_.open(name), content);
  }

  SimArray array_;
  SimRandom random_;
  std::shared_ptr<File> filler_;
};

TEST_P(InlineContentTest, IsReadAgainWhenItWasEvicted) {
  std::vector<std::shared_ptr<File>> files;
  for (uint64_t i = 0; i < 100; ++i) files.push_back(make(std::to_string(i), make_bytes(100 + 300 * i, i)));
  for (uint64_t i = 0; i < 100; ++i) expect(*files[i], make_bytes(100 + 300 * i, i));
  files.clear();
  array_.world().drain();
  for (uint64_t i = 0; i < 100; ++i) files.push_back(array_.open(std::to_string(i)));
  for (uint64_t i = 0; i < 100; ++i) expect(*files[i], make_bytes(100 + 300 * i, i));
}

TEST_P(InlineContentTest, AReadThatFailsIsAnErrorOfThatCall) {
  Bytes content = make_bytes(20'000, 7);
  std::shared_ptr<File> file = make("a", content);
  evict();
  fail_reads();
  EXPECT_EQ(array_.read(*file, 0, 100).status().code(), StatusCode::kIoError);
  EXPECT_EQ(array_.write(*file, 5'000, make_bytes(10, 8)).code(), StatusCode::kIoError);
  EXPECT_EQ(array_.write(*file, 3 * kTestChunk, make_bytes(10, 8)).code(), StatusCode::kIoError);
  EXPECT_FALSE(file->is_dirty());
  array_.sim().clear_faults();
  EXPECT_TRUE(file->error().is_ok());
  expect(*file, content);
  evict();
  EXPECT_TRUE(array_.write(*file, 5'000, make_bytes(10, 8)).is_ok());
  const Bytes piece = make_bytes(10, 8);
  std::copy(piece.begin(), piece.end(), content.begin() + 5'000);
  EXPECT_TRUE(array_.commit(*file).is_ok());
  expect(*file, content);
  expect_after_crash(std::move(file), "a", content);
}

TEST_P(InlineContentTest, ACommitThatCannotReadItLosesNothing) {
  const Bytes content = make_bytes(20'000, 7);
  std::shared_ptr<File> file = make("a", content);
  evict();
  fail_reads();
  EXPECT_TRUE(array_.control(*file, Kind::kTruncate, random_.chance(50) ? 25'000 : 10'000).is_ok());
  EXPECT_EQ(array_.commit(*file).code(), StatusCode::kIoError);
  EXPECT_EQ(array_.commit(*file).code(), StatusCode::kIoError);
  array_.sim().clear_faults();
  EXPECT_FALSE(array_.store().read_only());
  file.reset();
  array_.world().drain();
  expect(*array_.open("a"), content);
  expect_after_crash(nullptr, "a", content);
}

TEST_P(InlineContentTest, DamageIsFound) {
  const Bytes content = make_bytes(20'000, 7);
  std::shared_ptr<File> file = make("a", content);
  evict();
  ASSERT_TRUE(array_.sim().flip_bit("/m0/tree/a", 300 + random_.below(19'000), 3));
  EXPECT_EQ(array_.read(*file, 0, 100).status().code(), StatusCode::kCorruption);
  EXPECT_TRUE(array_.control(*file, Kind::kTruncate, 100).is_ok());
  EXPECT_EQ(array_.commit(*file).code(), StatusCode::kCorruption);
  EXPECT_EQ(array_.commit(*file).errno_value(), EIO);
}

// What is overwritten whole is not read first.
TEST_P(InlineContentTest, AWholeNewContentNeedsNothingOfTheOld) {
  std::shared_ptr<File> file = make("a", make_bytes(20'000, 7));
  evict();
  fail_reads();
  const Bytes content = make_bytes(21'000, 8);
  EXPECT_TRUE(array_.write(*file, 0, content).is_ok());
  EXPECT_TRUE(array_.commit(*file).is_ok());
  array_.sim().clear_faults();
  evict();
  expect(*file, content);
  expect_after_crash(std::move(file), "a", content);
}

TEST_P(InlineContentTest, TruncationsWhileItIsRead) {
  Bytes content = make_bytes(20'000, 7);
  std::shared_ptr<File> file = make("a", content);
  for (const uint64_t size : {15'000U, 30'000U, 0U, 100U, 40'000U}) {
    evict();
    SimArray::Read read(0, 40'000);
    file->read(read.request);
    SimArray::Answer<ControlRequest> truncate;
    truncate.request.kind = Kind::kTruncate;
    truncate.request.offset = FileOffset(size);
    file->control(truncate.request);
    SimArray::Answer<ControlRequest> commit;
    file->control(commit.request);
    EXPECT_TRUE(array_.wait(truncate).is_ok());
    EXPECT_TRUE(array_.wait(commit).is_ok());
    EXPECT_TRUE(array_.wait(read).is_ok());
    EXPECT_TRUE(std::equal(read.data.begin(), read.data.begin() + std::min<ptrdiff_t>(std::ssize(read.data), 100),
                           content.begin()));
    content.resize(size);
    expect(*file, content);
    evict();
    expect(*file, content);
    if (size == 0) {
      content = make_bytes(20'000, 9);
      EXPECT_TRUE(array_.write(*file, 0, content).is_ok());
      EXPECT_TRUE(array_.commit(*file).is_ok());
    }
  }
  expect_after_crash(std::move(file), "a", content);
}

// Commits move it, and compaction of the log takes away where it was.
TEST_P(InlineContentTest, CommitsWhileItIsRead) {
  Bytes content = make_bytes(30'000, 7);
  std::shared_ptr<File> file = make("a", content);
  for (unsigned i = 0; i < 40; ++i) {
    if (random_.chance(80)) evict();
    SimArray::Read read(0, 40'000);
    const bool reads = random_.chance(70);
    if (reads) file->read(read.request);
    const Bytes before = content;
    if (random_.chance(50)) {
      content.resize(29'000 + random_.below(2'000));
      EXPECT_TRUE(array_.control(*file, Kind::kTruncate, content.size()).is_ok());
    } else {
      const Bytes piece = make_bytes(50, random_.next());
      const uint64_t at = random_.below(content.size());
      content.resize(std::max<size_t>(content.size(), at + piece.size()));
      std::copy(piece.begin(), piece.end(), content.begin() + static_cast<ptrdiff_t>(at));
      EXPECT_TRUE(array_.write(*file, at, piece).is_ok());
    }
    EXPECT_TRUE(array_.commit(*file).is_ok());
    if (reads) {
      EXPECT_TRUE(array_.wait(read).is_ok());
      // What was cut off meanwhile may read as zeros.
      Bytes cut = before;
      if (content.size() < cut.size()) std::fill(cut.begin() + std::ssize(content), cut.end(), std::byte{0});
      EXPECT_TRUE(read.data == before || read.data == content || read.data == cut);
    }
    expect(*file, content);
  }
  EXPECT_GT(array_.sim().index_punches(), 0u);
  expect_after_crash(std::move(file), "a", content);
}

// A writer's handle takes the place of the one that is read from.
TEST_P(InlineContentTest, AWriterOpensItWhileItIsRead) {
  const Bytes content = make_bytes(20'000, 7);
  make("a", content).reset();
  array_.world().drain();
  Result<Store::Node> node = array_.store().lookup(array_.store().root(), "a");
  ASSERT_TRUE(node.is_ok());
  const Result<std::shared_ptr<File>> file = array_.store().open_file(node->handle.get(), false);
  ASSERT_TRUE(file.is_ok());
  evict();
  SimArray::Read read(0, 40'000);
  (*file)->read(read.request);
  const std::shared_ptr<File> writable = array_.open("a");
  EXPECT_EQ(writable, *file);
  EXPECT_TRUE(array_.wait(read).is_ok());
  EXPECT_TRUE(read.data == content);
  EXPECT_TRUE(array_.write(*writable, 20'000, make_bytes(10, 8)).is_ok());
  EXPECT_TRUE(array_.commit(*writable).is_ok());
  node->handle.reset();
}

// What fits is in the sidecar; what is there already stays there, whatever fits now.
TEST_P(InlineContentTest, ALowerLimitLosesNothing) {
  Bytes content = make_bytes(20'000, 7);
  make("a", content).reset();
  filler_.reset();
  ASSERT_TRUE(array_.close().is_ok());
  StoreOptions options;
  options.inline_max = 0;
  SimArray other(GetParam() + 1, 3, options, array_.sim().save());
  other.open();
  std::shared_ptr<File> file = other.open("a");
  content.resize(25'000);
  ASSERT_TRUE(other.control(*file, Kind::kTruncate, content.size()).is_ok());
  ASSERT_TRUE(other.commit(*file).is_ok());
  file.reset();
  ASSERT_TRUE(other.close().is_ok());
  other.open();
  const Result<Bytes> read = other.read_all(*other.open("a"));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == content);
}

// More files than buffers, changed and committed at once, and the power goes: each has one of its commits.
TEST_P(InlineContentTest, PowerCut) {
  constexpr size_t kFiles = 60;
  struct Small {
    std::shared_ptr<File> file;
    Bytes committed, content;
    SimArray::Answer<ControlRequest> commit;
  };
  std::vector<Small> files(kFiles);
  for (size_t i = 0; i < kFiles; ++i) {
    files[i].content = files[i].committed = make_bytes(1 + random_.below(kInlineSizeMax), random_.next());
    files[i].file = make(std::to_string(i), files[i].content);
  }
  for (Small& small : files) {
    if (random_.chance(50)) {
      small.content.resize(random_.below(40'000));
      ASSERT_TRUE(array_.control(*small.file, Kind::kTruncate, small.content.size()).is_ok());
    } else {
      const Bytes piece = make_bytes(1 + random_.below(2'000), random_.next());
      const uint64_t at = random_.below(small.content.size() + 2'000);
      small.content.resize(std::max<size_t>(small.content.size(), at + piece.size()));
      std::copy(piece.begin(), piece.end(), small.content.begin() + static_cast<ptrdiff_t>(at));
      const Status written = array_.write(*small.file, at, piece);
      ASSERT_TRUE(written.is_ok()) << written.message();
    }
  }
  array_.world().cut_at(array_.world().boundaries() + 1 + random_.below(6 * kFiles));
  for (Small& small : files) small.file->control(small.commit.request);
  for (Small& small : files) static_cast<void>(array_.wait(small.commit));
  for (Small& small : files) small.file.reset();
  filler_.reset();
  array_.crash();
  array_.open();
  for (size_t i = 0; i < kFiles; ++i) {
    const Result<Bytes> read = array_.read_all(*array_.open(std::to_string(i)));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == files[i].content || (*read == files[i].committed && !files[i].commit.status.is_ok())) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, InlineContentTest, ::testing::Range<uint64_t>(0, 10));

}  // namespace
}  // namespace fpfs::test
