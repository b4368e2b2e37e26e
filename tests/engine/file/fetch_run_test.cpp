// Chunks that are away and come several at a time: what is asked for together, that each is believed by itself, and
// that one which does not come with its run comes alone. For readers, and by File::recall().
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/codec/hash.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kRunChunks = 14;
constexpr size_t kRunLength = (kRunChunks - 1) * size_t{kTestChunk} + 777;

// Has the content, and answers later.
class RunSource final : public ChunkSource {
 public:
  struct Asked {
    uint64_t chunk = 0, bytes = 0;
    bool is_run = false;
  };
  RunSource(SimArray& array, const Bytes& content) : array_(array), content_(content) {}

  void fetch(const Wanted& wanted, std::span<std::byte> into, Done done) override {
    answer(wanted.chunk.value() * into.size(), into.first(wanted.extent.raw_length), false, std::move(done));
  }
  void fetch_run(const Wanted& first, uint64_t offset, std::span<std::byte> into, Done done) override {
    EXPECT_EQ(offset, first.chunk.value() * kTestChunk);
    answer(offset, into, true, std::move(done));
  }

  std::vector<Asked> asked;
  uint64_t chunks_held = 0, chunks_held_max = 0;
  std::set<uint64_t> spoilt_in_run;  // chunks
  std::set<uint64_t> spoilt;
  bool answers_at_once = false;
  bool holds = false;  // what is asked for, until release()
  std::vector<Executor::Task> held;
  void release() {
    for (Executor::Task& end : std::exchange(held, {})) array_.world().executor().post(std::move(end));
  }
  Status run_failure;  // behind half of the bytes

 private:
  void answer(uint64_t offset, std::span<std::byte> into, bool is_run, Done done) {
    asked.push_back({offset / kTestChunk, into.size(), is_run});
    const uint64_t chunks = (into.size() + kTestChunk - 1) / kTestChunk;
    chunks_held += chunks;
    chunks_held_max = std::max(chunks_held_max, chunks_held);
    auto end = [this, offset, into, is_run, done = std::move(done), chunks] {
      const bool fails = is_run && !run_failure.is_ok();
      const auto from = content_.begin() + static_cast<ptrdiff_t>(offset);
      std::copy_n(from, fails ? into.size() / 2 : into.size(), into.begin());
      for (const uint64_t chunk : is_run ? spoilt_in_run : spoilt)
        if (chunk * kTestChunk >= offset && chunk * kTestChunk < offset + into.size())
          into[chunk * kTestChunk - offset + 3] ^= std::byte{1};
      chunks_held -= chunks;
      done(fails ? Result<Found>(run_failure) : Result<Found>(Found{}));
    };
    if (holds) return held.push_back(std::move(end));
    if (answers_at_once) return array_.world().executor().post(std::move(end));
    array_.world().executor().post_after(std::chrono::milliseconds(5), std::move(end));
  }

  SimArray& array_;
  const Bytes& content_;
};

class FetchRunTest : public ::testing::Test {
 protected:
  explicit FetchRunTest(unsigned at_once = 0) : array_(1, 3, options(at_once)) {}
  static StoreOptions options(unsigned at_once) {
    StoreOptions options;
    options.fetches_at_once = at_once;
    options.heal_timeout_ms = 0;  // the clock of the world makes leaps
    return options;
  }
  // A file of which everything is away, but for what `holes` has.
  void begin(const std::set<uint64_t>& holes = {}) {
    std::vector<uint64_t> checksums;
    for (uint64_t chunk = 0; chunk < kRunChunks; ++chunk) {
      const std::span<std::byte> bytes = std::span(content_).subspan(
          chunk * kTestChunk, std::min<size_t>(kTestChunk, kRunLength - chunk * kTestChunk));
      if (holes.contains(chunk)) std::fill(bytes.begin(), bytes.end(), std::byte{0});
      checksums.push_back(holes.contains(chunk) ? 0 : hash_bytes(bytes));
    }
    {
      const std::shared_ptr<File> file = array_.create("a");
      ASSERT_TRUE(file->begin_away(kRunLength, checksums).is_ok());
      ASSERT_TRUE(array_.commit(*file).is_ok());
    }
    array_.store().set_chunk_source(source_);
    file_ = array_.open("a");
  }
  void expect_content() {
    const Result<Bytes> read = array_.read_all(*file_);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == content_);
  }
  uint64_t runs() const {
    return static_cast<uint64_t>(
        std::count_if(source_->asked.begin(), source_->asked.end(), [](const auto& one) { return one.is_run; }));
  }
  uint64_t asked_alone(uint64_t chunk) const {
    return static_cast<uint64_t>(std::count_if(source_->asked.begin(), source_->asked.end(),
                                               [chunk](const auto& one) { return !one.is_run && one.chunk == chunk; }));
  }
  // Nothing: it did not answer.
  std::optional<Status> recall(std::function<bool()> is_wanted = nullptr) {
    std::optional<Status> outcome;
    file_->recall(std::move(is_wanted), [&outcome](const Status& status) { outcome = status; });
    array_.world().run_until([&outcome] { return outcome.has_value(); });
    return outcome;
  }
  bool recalls() {
    const std::optional<Status> outcome = recall();
    EXPECT_TRUE(outcome.has_value() && outcome->is_ok()) << (outcome.has_value() ? outcome->message() : "no answer");
    return outcome.has_value() && outcome->is_ok();
  }
  void settle() {
    for (unsigned i = 0; i < 4; ++i) {
      bool passed = false;
      array_.world().executor().post_after(std::chrono::milliseconds(1000), [&passed] { passed = true; });
      array_.world().run_until([&passed] { return passed; });
    }
  }
  uint64_t away() const { return file_->info().codec_chunks[static_cast<size_t>(Codec::kAway)]; }

  SimArray array_;
  Bytes content_ = make_bytes(kRunLength, 1);
  std::shared_ptr<RunSource> source_ = std::make_shared<RunSource>(array_, content_);
  std::shared_ptr<File> file_;
};

class FetchRunLimitTest : public FetchRunTest {
 protected:
  FetchRunLimitTest() : FetchRunTest(8) {}
};

class FetchAloneTest : public FetchRunTest {
 protected:
  FetchAloneTest() : FetchRunTest(4) {}
};

TEST_F(FetchRunTest, ASequentialReaderHasFewRequestsToTheEndOfTheFile) {
  begin();
  expect_content();
  EXPECT_LE(source_->asked.size(), 6u);
  EXPECT_GE(runs(), 3u);
  std::set<uint64_t> chunks;
  for (const RunSource::Asked& one : source_->asked) {
    EXPECT_TRUE(one.bytes % kTestChunk == 0 || one.chunk * kTestChunk + one.bytes == kRunLength);
    for (uint64_t at = 0; at < one.bytes; at += kTestChunk)
      EXPECT_TRUE(chunks.insert(one.chunk + at / kTestChunk).second) << "nothing is asked for twice";
  }
  EXPECT_EQ(chunks.size(), kRunChunks);
  settle();
  EXPECT_EQ(away(), 0u);
  const size_t asked = source_->asked.size();
  file_ = nullptr;
  ASSERT_TRUE(array_.close().is_ok());
  array_.open();
  file_ = array_.open("a");
  expect_content();
  EXPECT_EQ(source_->asked.size(), asked) << "it is on the members";
}

TEST_F(FetchRunTest, AHoleEndsARun) {
  begin({2, 5, 6, 9});
  expect_content();
  EXPECT_GE(runs(), 1u);
  for (const RunSource::Asked& one : source_->asked)
    for (const uint64_t hole : {2, 5, 6, 9})
      EXPECT_FALSE(one.chunk <= hole && hole * kTestChunk < one.chunk * kTestChunk + one.bytes) << hole;
}

TEST_F(FetchRunTest, AWrongChunkComesAloneAndNoOtherDoes) {
  begin();
  source_->spoilt_in_run = {6};
  expect_content();
  EXPECT_EQ(asked_alone(6), 1u);
  EXPECT_EQ(asked_alone(5) + asked_alone(7), 0u);
  settle();
  EXPECT_EQ(away(), 0u);
}

TEST_F(FetchRunTest, AChunkThatIsWrongHoweverItComesFailsAlone) {
  begin();
  source_->spoilt_in_run = source_->spoilt = {6};
  EXPECT_EQ(array_.read_all(*file_).status().errno_value(), EIO);
  for (uint64_t chunk = 0; chunk < kRunChunks - 1; ++chunk) {
    const Result<Bytes> read = array_.read(*file_, chunk * kTestChunk, kTestChunk);
    EXPECT_EQ(read.is_ok(), chunk != 6) << chunk;
    if (!read.is_ok()) continue;
    EXPECT_TRUE(std::equal(read->begin(), read->end(), content_.begin() + static_cast<ptrdiff_t>(chunk * kTestChunk)));
  }
}

TEST_F(FetchRunTest, ARunThatFailsInTheMiddleComesChunkByChunk) {
  begin();
  source_->run_failure = Status::error(StatusCode::kCorruption, "half of it");
  expect_content();
  EXPECT_GE(runs(), 1u);
  EXPECT_EQ(asked_alone(6), 1u);
}

TEST_F(FetchRunTest, AStoreThatDoesNotAnswerIsNotAskedForEachChunk) {
  begin();
  source_->run_failure = Status::error(StatusCode::kUnreachable, "it is away");
  EXPECT_EQ(array_.read_all(*file_).status().errno_value(), EIO);
  EXPECT_LE(source_->asked.size(), 4u);
}

TEST_F(FetchRunLimitTest, NoMoreIsHeldThanIsAllowed) {
  begin();
  expect_content();
  EXPECT_GE(runs(), 1u);
  EXPECT_LE(source_->chunks_held_max, 8u);
}

TEST_F(FetchAloneTest, WithRoomForFewChunksEachComesAlone) {
  begin();
  expect_content();
  EXPECT_EQ(runs(), 0u);
  EXPECT_LE(source_->chunks_held_max, 4u);
}

// No timer runs in between.
TEST_F(FetchRunTest, IsCommittedWhenAllHasCome) {
  begin();
  source_->answers_at_once = true;
  SimArray::Read read(0, kRunLength);
  file_->read(read.request);
  array_.world().drain();
  ASSERT_TRUE(read.answered);
  EXPECT_TRUE(read.data == content_);
  EXPECT_EQ(away(), 0u);
}

TEST_F(FetchRunTest, ARecallLeavesNothingAwayAndAsksForNothingTwice) {
  begin({2});
  ASSERT_TRUE(recalls());
  EXPECT_EQ(away(), 0u);
  EXPECT_LE(source_->asked.size(), 6u);
  std::set<uint64_t> chunks;
  for (const RunSource::Asked& one : source_->asked)
    for (uint64_t at = 0; at < one.bytes; at += kTestChunk)
      EXPECT_TRUE(chunks.insert(one.chunk + at / kTestChunk).second);
  EXPECT_EQ(chunks.size(), kRunChunks - 1);
  const size_t asked = source_->asked.size();
  ASSERT_TRUE(recalls()) << "there is nothing to be done";
  file_ = nullptr;
  array_.crash();  // what it said is durable
  array_.open();
  array_.store().set_chunk_source(source_);
  file_ = array_.open("a");
  EXPECT_EQ(away(), 0u);
  expect_content();
  EXPECT_EQ(source_->asked.size(), asked);
}

TEST_F(FetchRunLimitTest, ARecallHoldsNoMoreThanIsAllowed) {
  begin();
  ASSERT_TRUE(recalls());
  EXPECT_GE(runs(), 1u);
  EXPECT_LE(source_->chunks_held_max, 8u);
}

TEST_F(FetchRunTest, ARecallLeavesToReadersWhatTheyAreFetching) {
  begin();
  SimArray::Read read(5 * kTestChunk, 4 * kTestChunk);
  file_->read(read.request);
  array_.world().run_until([this] { return !source_->asked.empty(); });
  ASSERT_TRUE(recalls());
  EXPECT_TRUE(read.answered);
  EXPECT_EQ(away(), 0u);
  uint64_t chunks = 0;
  for (const RunSource::Asked& one : source_->asked) chunks += (one.bytes + kTestChunk - 1) / kTestChunk;
  EXPECT_EQ(chunks, kRunChunks);
}

TEST_F(FetchRunTest, ARecallWaitsForReadersOfASlowStore) {
  begin();
  source_->holds = true;
  SimArray::Read read(5 * kTestChunk, 4 * kTestChunk);
  file_->read(read.request);
  array_.world().run_until([this] { return !source_->held.empty(); });
  source_->holds = false;
  // It is asked once in each look through the file, at least.
  unsigned looks = 0;
  const std::optional<Status> outcome = recall([&] {
    if (++looks == 100) source_->release();
    return true;
  });
  EXPECT_TRUE(outcome.has_value() && outcome->is_ok());
  EXPECT_GE(looks, 100u);
  EXPECT_TRUE(read.answered);
}

TEST_F(FetchRunTest, ARecallFailsWithTheStoreAndKeepsWhatCame) {
  begin();
  source_->spoilt_in_run = source_->spoilt = {9};
  const std::optional<Status> outcome = recall();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->errno_value(), EIO);
  EXPECT_NE(outcome->message().find("chunk 9"), std::string::npos) << outcome->message();
  EXPECT_EQ(away(), 1u);
}

TEST_F(FetchRunTest, ARecallOfWhatIsBeingWrittenSaysSo) {
  begin();
  file_ = array_.open("a");
  ASSERT_TRUE(array_.write(*file_, 3 * kTestChunk, Bytes(10, std::byte{1})).is_ok());
  const std::optional<Status> outcome = recall();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), StatusCode::kBusy) << outcome->message();
}

TEST_F(FetchRunLimitTest, ARecallThatNobodyWaitsForEnds) {
  begin();
  const std::optional<Status> outcome = recall([this] { return source_->asked.size() < 2; });
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), StatusCode::kCancelled);
  EXPECT_GT(away(), 0u);
}

TEST_F(FetchRunTest, TheEndOfTheArrayEndsARecall) {
  begin();
  std::optional<Status> outcome;
  file_->recall(nullptr, [&outcome](const Status& status) { outcome = status; });
  array_.world().run_until([this] { return !source_->asked.empty(); });
  file_ = nullptr;
  EXPECT_TRUE(array_.close().is_ok());
  ASSERT_TRUE(outcome.has_value());
  EXPECT_FALSE(outcome->is_ok());
}

TEST_F(FetchRunTest, TheEndOfTheArrayWaitsForNoRun) {
  begin();
  SimArray::Read read(5 * kTestChunk, 4 * kTestChunk);
  file_->read(read.request);
  array_.world().run_until([this] { return !source_->asked.empty(); });
  file_ = nullptr;
  EXPECT_TRUE(array_.close().is_ok());
  EXPECT_TRUE(read.answered);
}

}  // namespace
}  // namespace fpfs::test
