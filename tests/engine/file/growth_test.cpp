// What a commit does and writes follows what was changed, not how long the file is: counted in calls and bytes.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr unsigned kFew = 20, kMany = 400;

class GrowthTest : public ::testing::Test {
 protected:
  static StoreOptions options() {
    StoreOptions options;
    options.inline_max = 0;
    options.spare_least = UINT64_MAX;
    return options;
  }
  // A file with so many chunks, none of them full, committed and closed; open again.
  std::shared_ptr<File> make(const std::string& name, unsigned chunks) {
    std::shared_ptr<File> file = array_.create(name);
    for (unsigned c = 0; c < chunks; ++c) {
      EXPECT_TRUE(array_.write(*file, uint64_t{c} * kTestChunk, make_bytes(100, c)).is_ok());
      if (c % 16 == 15) {
        EXPECT_TRUE(array_.commit(*file).is_ok());
      }
    }
    EXPECT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, uint64_t{chunks} * kTestChunk).is_ok());
    EXPECT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
    file.reset();
    array_.world().drain();
    return array_.open(name);
  }
  // Calls that change something, by their names, while full chunks are appended and the request is answered.
  std::map<std::string, unsigned> calls_of_append(File& file, ControlRequest::Kind kind) {
    std::map<std::string, unsigned> calls;
    array_.sim().set_trace([&calls](const std::string& line) { ++calls[line.substr(0, line.find(' '))]; });
    EXPECT_TRUE(array_.write(file, file.size(), make_bytes(6 * kTestChunk, 77)).is_ok());
    EXPECT_TRUE(array_.control(file, kind).is_ok());
    array_.world().drain();
    array_.sim().set_trace(nullptr);
    return calls;
  }

  SimArray array_{1, 3, options()};
};

TEST_F(GrowthTest, TheCommitOfAnAppendMakesTheSameCallsHoweverLongTheFile) {
  const std::shared_ptr<File> few = make("few", kFew), many = make("many", kMany);
  for (const auto kind : {ControlRequest::Kind::kCommit, ControlRequest::Kind::kClose}) {
    const auto calls = calls_of_append(*few, kind);
    EXPECT_FALSE(calls.empty());
    EXPECT_EQ(calls_of_append(*many, kind), calls);
  }
}

// Streams that jump leave space behind that was allocated ahead of them, commits by fsync leave it there, and chunks that
// are not full leave ends of slots: none of it is left after the close, wherever it lies.
TEST_F(GrowthTest, NoSpaceIsLeftOverWhateverWasWrittenSinceTheLastClose) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimRandom random(seed);
    const std::shared_ptr<File> file = array_.create("file" + std::to_string(seed));
    for (unsigned step = 0; step < 40; ++step) {
      const uint64_t chunk = random.chance(50) ? random.below(20) : random.below(400);
      const uint64_t length = random.chance(50) ? kTestChunk * (1 + random.below(6)) : 100 + random.below(kTestChunk);
      ASSERT_TRUE(array_.write(*file, chunk * kTestChunk, make_bytes(length, step)).is_ok());
      if (random.chance(10)) {
        ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, random.below(300) * kTestChunk / 2).is_ok());
      }
      if (random.chance(40)) {
        const auto kind = random.chance(60) ? ControlRequest::Kind::kCommit : ControlRequest::Kind::kClose;
        ASSERT_TRUE(array_.control(*file, kind).is_ok());
      }
    }
    ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  }
  ASSERT_TRUE(array_.close().is_ok());
  const Result<CheckReport> report = check_array(array_.world(), array_.paths(), {});
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  for (const CheckError& error : report->errors)
    ADD_FAILURE() << error.kind << " " << error.path << " " << error.detail;
}

TEST_F(GrowthTest, TheCommitOfAnAppendWritesTheSameBytesHoweverLongTheFile) {
  const std::shared_ptr<File> few = make("few", kFew), many = make("many", kMany);
  const auto appended = [this](File& file, const std::string& name) {
    const auto length = [&] {
      Result<Store::Node> node = array_.store().lookup(array_.store().root(), name);
      const Result<struct stat> sidecar = array_.store().storage().fstat(node->handle.get());
      node->handle.reset();
      return sidecar->st_size;
    };
    const auto before = length();
    EXPECT_TRUE(array_.write(file, file.size(), make_bytes(kTestChunk, 5)).is_ok());
    EXPECT_TRUE(array_.commit(file).is_ok());
    return length() - before;
  };
  EXPECT_EQ(appended(*many, "many"), appended(*few, "few"));
}

TEST_F(GrowthTest, OnlyFilesWithChunksToBeWrittenAreLookedAtWhenThePoolIsFull) {
  DirtyFiles dirty;
  const std::shared_ptr<File> first = array_.create("first");
  std::shared_ptr<File> second = array_.create("second");
  dirty.add(second->inode(), second);
  dirty.add(first->inode(), first);
  std::vector<std::shared_ptr<File>> ascending = {first, second};
  if (second->inode() < first->inode()) std::swap(ascending[0], ascending[1]);
  EXPECT_EQ(dirty.all(), ascending);
  dirty.remove(first->inode());
  EXPECT_EQ(dirty.all(), (std::vector<std::shared_ptr<File>>{second}));
  ascending.clear();
  second.reset();
  EXPECT_TRUE(dirty.all().empty()) << "it is gone, and leaves no trace";
}

// As many commits as make a snapshot worth it several times: each appends a constant, and a snapshot comes so seldom
// that all of them together do not cost more than half as much again.
TEST_F(GrowthTest, SnapshotsCostAPartOfWhatTheCommitsBetweenThemDo) {
  const std::shared_ptr<File> file = make("file", kMany);
  uint64_t written = 0, largest = 0, commits = 0;
  array_.sim().set_trace([&](const std::string& line) {
    if (!line.starts_with("write ") || line.find("/tree/") == std::string::npos) return;
    const size_t words = line.rfind(' ', line.rfind(" bytes at ") - 1);
    const uint64_t bytes = std::stoull(line.substr(words + 1));
    written += bytes;
    largest = std::max(largest, bytes);
    ++commits;
  });
  uint64_t usual = 0;
  for (unsigned i = 0; i < 1500; ++i) {
    ASSERT_TRUE(array_.write(*file, uint64_t{i % kMany} * kTestChunk, make_bytes(200, i)).is_ok());
    ASSERT_TRUE(array_.commit(*file).is_ok());
    if (i == 0) usual = written;
  }
  array_.sim().set_trace(nullptr);
  EXPECT_GE(commits, 1500u);
  EXPECT_GT(largest, 10 * usual) << "there was a snapshot";
  EXPECT_LT(written, commits * usual * 3 / 2);
}

}  // namespace
}  // namespace fpfs::test
