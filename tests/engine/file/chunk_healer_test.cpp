// Where chunks come from that their members do not give: what is believed, who waits for how long, and how much is
// asked for at a time.
#include "engine/file/chunk_healer.h"

#include <gtest/gtest.h>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 12 * size_t{kTestChunk};

// Answers when it is told to.
class ToldSource final : public ChunkSource {
 public:
  struct Asked {
    Wanted wanted;
    std::span<std::byte> into;
    Done done;
  };
  void fetch(const Wanted& wanted, std::span<std::byte> into, Done done) override {
    ++asked_;
    if (answers_ != nullptr) return answers_(Asked{wanted, into, std::move(done)});
    waiting_.push_back({wanted, into, std::move(done)});
    most_ = std::max(most_, waiting_.size());
  }
  void answer_with(std::function<void(const Asked&)> answers) { answers_ = std::move(answers); }
  std::vector<Asked>& waiting() { return waiting_; }
  size_t most() const { return most_; }
  unsigned asked() const { return asked_; }

 private:
  std::function<void(const Asked&)> answers_;
  std::vector<Asked> waiting_;
  size_t most_ = 0;
  unsigned asked_ = 0;
};

class ChunkHealerTest : public ::testing::Test {
 protected:
  explicit ChunkHealerTest(unsigned timeout_ms = 0) : array_(1, 3, options(timeout_ms)) {}
  static StoreOptions options(unsigned timeout_ms) {
    StoreOptions options;
    options.fetches_at_once = 4;
    options.heal_timeout_ms = timeout_ms;
    return options;
  }
  // A file that cannot be read from any member any more.
  void begin(bool compressed = false) {
    std::shared_ptr<File> file = array_.create("a");
    if (compressed) {
      file->set_compression(Compression{Compression::Mode::kZstd, 1});
      for (size_t i = 0; i < content_.size(); ++i)
        if ((i & 3) != 0) content_[i] = std::byte{0};
    }
    for (size_t at = 0; at < kLength; at += 4 * kTestChunk)
      ASSERT_TRUE(array_.write(*file, at, std::span(content_).subspan(at, 4 * kTestChunk)).is_ok());
    ASSERT_TRUE(array_.commit(*file).is_ok());
    file = nullptr;
    ASSERT_TRUE(array_.close().is_ok());
    array_.open();
    for (const std::string& member : array_.paths())
      for (const std::string& object : array_.sim().files_below(member + "/objects")) {
        const size_t length = array_.sim().content_of(object).size();  // a copy
        for (size_t at = 100; at < length; at += 4096) ASSERT_TRUE(array_.sim().flip_bit(object, at, 0));
      }
    array_.store().set_chunk_source(source_);
    file_ = array_.open("a");
  }
  void give(const ToldSource::Asked& asked, uint64_t stored_checksum) {
    const auto begin = content_.begin() + static_cast<ptrdiff_t>(asked.wanted.chunk.value() * kTestChunk);
    std::copy_n(begin, kTestChunk, asked.into.begin());
    asked.done(ChunkSource::Found{stored_checksum});
  }
  Result<Bytes> read(uint64_t chunk) { return array_.read(*file_, chunk * kTestChunk, kTestChunk); }
  bool is_right(const Result<Bytes>& read, uint64_t chunk) {
    return read.is_ok() &&
           std::equal(read->begin(), read->end(), content_.begin() + static_cast<ptrdiff_t>(chunk * kTestChunk));
  }
  uint64_t now_ms() {
    const struct timespec now = array_.world().now();
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
  }

  SimArray array_;
  Bytes content_ = make_bytes(kLength, 1);
  std::shared_ptr<ToldSource> source_ = std::make_shared<ToldSource>();
  std::shared_ptr<File> file_;
};

class ChunkHealerTimeOutTest : public ChunkHealerTest {
 protected:
  ChunkHealerTimeOutTest() : ChunkHealerTest(1000) {}
};

TEST_F(ChunkHealerTest, IsAskedForWhatTheRecordSays) {
  begin();
  source_->answer_with([this](const ToldSource::Asked& asked) {
    EXPECT_EQ(asked.wanted.path, "a");
    EXPECT_EQ(asked.wanted.file_id, file_->info().file_id);
    EXPECT_EQ(asked.wanted.sequence, 1u);
    EXPECT_EQ(asked.wanted.chunk, ChunkIndex(5));
    EXPECT_EQ(asked.wanted.extent.visible_length, kTestChunk);
    EXPECT_EQ(asked.into.size(), kTestChunk);
    give(asked, 0);
  });
  EXPECT_TRUE(is_right(read(5), 5));
  EXPECT_EQ(source_->asked(), 1u);
}

TEST_F(ChunkHealerTest, WhatIsStoredAsItIsIsBelievedByItsChecksumOnly) {
  begin();
  source_->answer_with([this](const ToldSource::Asked& asked) {
    asked.into[17] ^= std::byte{1};  // whatever the source says
    const uint64_t checksum = asked.wanted.extent.checksum;
    const auto begin = content_.begin() + static_cast<ptrdiff_t>(asked.wanted.chunk.value() * kTestChunk);
    std::copy_n(begin, kTestChunk, asked.into.begin());
    asked.into[17] ^= std::byte{1};
    asked.done(ChunkSource::Found{checksum});
  });
  EXPECT_EQ(read(5).status().errno_value(), EIO);
}

TEST_F(ChunkHealerTest, WhatIsStoredEncodedIsBelievedByWhatWasStoredThen) {
  begin(true);
  uint64_t change = 1;
  source_->answer_with([&](const ToldSource::Asked& asked) { give(asked, asked.wanted.extent.checksum + change); });
  EXPECT_EQ(read(5).status().errno_value(), EIO);
  source_->answer_with([&](const ToldSource::Asked& asked) { give(asked, 0); });
  EXPECT_EQ(read(5).status().errno_value(), EIO);
  source_->answer_with([&](const ToldSource::Asked& asked) { give(asked, asked.wanted.extent.checksum); });
  EXPECT_TRUE(is_right(read(5), 5));
}

TEST_F(ChunkHealerTimeOutTest, AReaderWaitsNoLongerThanItIsTold) {
  begin();
  const uint64_t begin_ms = now_ms();
  EXPECT_EQ(read(5).status().errno_value(), EIO);
  EXPECT_GE(now_ms() - begin_ms, 1000u);
  EXPECT_LE(now_ms() - begin_ms, 1500u);
  ASSERT_EQ(source_->waiting().size(), 1u);
  // Nobody asks again for a while.
  EXPECT_EQ(read(6).status().errno_value(), EIO);
  EXPECT_EQ(source_->asked(), 1u);
  // What comes too late is for nobody.
  give(source_->waiting()[0], 0);
  source_->waiting().clear();
  array_.world().drain();
  EXPECT_EQ(array_.store().status().chunks_from_copy, 0u);
  array_.world().executor().post_after(std::chrono::milliseconds(11'000), [] {});
  const uint64_t later = now_ms() + 10'500;
  array_.world().run_until([&] { return now_ms() >= later; });
  // The clock may jump while it is checked.
  source_->answer_with([this](const ToldSource::Asked& asked) { give(asked, 0); });
  const unsigned asked = source_->asked();
  const Result<Bytes> again = read(5);
  EXPECT_EQ(source_->asked(), asked + 1);
  if (again.is_ok()) {
    EXPECT_TRUE(is_right(again, 5));
  }
}

TEST_F(ChunkHealerTest, SoManyAtATime) {
  begin();
  std::vector<std::unique_ptr<SimArray::Read>> reads;
  for (uint64_t chunk = 0; chunk < 12; ++chunk) {
    reads.push_back(std::make_unique<SimArray::Read>(chunk * kTestChunk, kTestChunk));
    file_->read(reads.back()->request);
  }
  uint64_t steps = 0;
  while (!std::all_of(reads.begin(), reads.end(), [](const auto& read) { return read->answered; }) && ++steps < 5000) {
    array_.world().step();
    if (array_.world().random().chance(10) && !source_->waiting().empty()) {
      const ToldSource::Asked asked = source_->waiting().back();
      source_->waiting().pop_back();
      give(asked, 0);
    }
  }
  for (uint64_t chunk = 0; chunk < 12; ++chunk) {
    ASSERT_TRUE(reads[chunk]->answered);
    if (reads[chunk]->status.is_ok()) {
      EXPECT_TRUE(is_right(std::move(reads[chunk]->data), chunk)) << chunk;
    }
  }
  EXPECT_LE(source_->most(), 4u);
  EXPECT_GE(source_->most(), 2u);
}

TEST_F(ChunkHealerTest, TheEndOfTheArrayWaitsForNobody) {
  begin();
  SimArray::Read read(5 * kTestChunk, 100);
  file_->read(read.request);
  array_.world().run_until([this] { return !source_->waiting().empty(); });
  file_ = nullptr;
  EXPECT_TRUE(array_.close().is_ok());
  EXPECT_TRUE(read.answered);
  EXPECT_EQ(read.status.errno_value(), EIO);
  give(source_->waiting()[0], 0);  // to nobody
}

TEST_F(ChunkHealerTest, ACrashLeavesNothingBehind) {
  begin();
  SimArray::Read read(5 * kTestChunk, 100);
  file_->read(read.request);
  array_.world().run_until([this] { return !source_->waiting().empty(); });
  file_ = nullptr;
  array_.crash();
  EXPECT_FALSE(read.answered);
  give(source_->waiting()[0], 0);
  source_->waiting().clear();
  array_.open();
}

}  // namespace
}  // namespace fpfs::test
