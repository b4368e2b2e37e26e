// Content that is in the store only: sent away, fetched when it is needed, changed, moved, removed. Readers get right
// bytes or an error, never others, and nothing is stored again that the store has.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "engine/check/check.h"
#include "tests/engine/tier/healing_world.h"

namespace fpfs::test {
namespace {

constexpr size_t kChunks = 6;
constexpr size_t kLength = (kChunks - 1) * size_t{kTestChunk} + 777;

class TierAwayTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    world_.tier().copier().content_is_away();
    world_.save("a", content_, GetParam());
    world_.copy();
  }
  Bytes make(uint64_t salt) { return GetParam() ? make_compressible(kLength, salt) : make_bytes(kLength, salt); }
  SimArray& array() { return world_.array(); }
  Status send_away(const std::string& name = "a") { return world_.send_away(name); }
  void reopen() {
    world_.reopen();
    world_.tier().copier().content_is_away();
  }
  struct stat attributes(const std::string& name = "a") {
    Result<Store::Node> node = world_.store().lookup(world_.store().root(), name);
    EXPECT_TRUE(node.is_ok()) << name;
    node->handle.reset();
    return node->attributes;
  }
  uint64_t away_chunks(const std::string& name = "a") {
    return array().open(name)->info().codec_chunks[static_cast<size_t>(Codec::kAway)];
  }
  void expect_content(const std::string& name, const Bytes& content) {
    const Result<Bytes> read = world_.read(name);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == content) << name;
  }
  void expect_sound() {
    ASSERT_TRUE(world_.tier().stop());
    world_.tier().leave_store();
    ASSERT_TRUE(array().close().is_ok());
    const Result<CheckReport> report = check_array(world_.world(), array().paths(), {});
    ASSERT_TRUE(report.is_ok());
    for (const CheckError& error : report->errors) ADD_FAILURE() << error.kind << ": " << error.detail;
    array().open();
    world_.tier().connect();
    world_.tier().copier().content_is_away();
    world_.connect();
  }
  void expect_changes(bool is_copied) {
    ASSERT_TRUE(send_away().is_ok());
    Bytes now = content_;
    {
      std::shared_ptr<File> file = array().open("a");
      // Within chunks, a hole, a cut, and longer again.
      const Bytes piece = make_bytes(kTestChunk, 7);
      const size_t at = kTestChunk - 500;
      ASSERT_TRUE(array().write(*file, at, piece).is_ok());
      std::copy(piece.begin(), piece.end(), now.begin() + at);
      ASSERT_TRUE(array().control(*file, ControlRequest::Kind::kPunchHole, 3 * kTestChunk, kTestChunk).is_ok());
      std::fill_n(now.begin() + 3 * kTestChunk, kTestChunk, std::byte{0});
      const size_t cut = 4 * kTestChunk + 300;
      ASSERT_TRUE(array().control(*file, ControlRequest::Kind::kTruncate, cut).is_ok());
      ASSERT_TRUE(array().control(*file, ControlRequest::Kind::kTruncate, kLength).is_ok());
      std::fill(now.begin() + cut, now.end(), std::byte{0});
      ASSERT_TRUE(array().commit(*file).is_ok());
    }
    expect_sound();
    EXPECT_EQ(away_chunks(), 1u) << "what was read to be changed or cut is here";
    if (is_copied) world_.copy();
    EXPECT_EQ(world_.tier().copy("a") == std::optional(now), is_copied);
    reopen();
    EXPECT_EQ(away_chunks(), 1u);
    expect_content("a", now);
  }
  std::string stored_tags() {
    return world_.objects().objects().at("a").tag + " " + world_.objects().objects().at(manifest_key("a")).tag;
  }
  uint64_t bytes_on_members() {
    uint64_t bytes = 0;
    for (const std::string& member : array().paths())
      for (const std::string& object : world_.world().sim().files_below(member + "/objects"))
        for (const std::byte byte : world_.world().sim().content_of(object)) bytes += byte != std::byte{0} ? 1 : 0;
    return bytes;
  }

  HealingWorld world_{1};
  const Bytes content_ = make(1);
};

TEST_P(TierAwayTest, LeavesTheMembersAndComesBackWhenItIsRead) {
  const struct stat before = attributes();
  EXPECT_GT(bytes_on_members(), 0u);
  ASSERT_TRUE(send_away().is_ok());
  world_.settle();
  EXPECT_EQ(away_chunks(), kChunks);
  EXPECT_EQ(bytes_on_members(), 0u);
  const struct stat away = attributes();
  EXPECT_EQ(away.st_size, before.st_size);
  EXPECT_EQ(away.st_blocks, 0);
  EXPECT_EQ(away.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(away.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
  expect_sound();
  EXPECT_EQ(away_chunks(), kChunks);
  const struct stat mounted = attributes();
  expect_content("a", content_);
  EXPECT_EQ(world_.status().chunks_fetched, kChunks);
  EXPECT_EQ(world_.status().chunks_from_copy, 0u);
  world_.settle();
  EXPECT_EQ(away_chunks(), 0u);
  const struct stat back = attributes();
  EXPECT_EQ(back.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(back.st_ctim.tv_nsec, mounted.st_ctim.tv_nsec);
  expect_sound();
  world_.disconnect();
  expect_content("a", content_);
}

// What a sync that failed has lost may be any of them, also one that arrived behind it.
TEST_P(TierAwayTest, AFailedSyncIsTheEndOfAllThatCameBackByThen) {
  ASSERT_TRUE(send_away().is_ok());
  unsigned failed = 0;
  for (unsigned steps = 1; steps <= 80; ++steps) {
    std::shared_ptr<File> file = array().open("a");
    SimFault fault;
    fault.call = SimFault::Call::kSyncFile;
    fault.role = SimRole::kObjects;
    world_.world().sim().inject(fault);
    SimArray::Read first(0, 1000), second(kTestChunk, 1000);
    file->read(first.request);
    for (unsigned i = 0; i < steps; ++i) world_.world().step();
    file->read(second.request);
    EXPECT_TRUE(array().wait(first).is_ok());
    EXPECT_TRUE(array().wait(second).is_ok());
    world_.settle();
    failed += world_.world().sim().fault_hits() > 0 ? 1 : 0;
    world_.world().sim().clear_faults();
    ASSERT_EQ(away_chunks(), kChunks) << steps;
  }
  EXPECT_GT(failed, 0u);
  expect_content("a", content_);
  world_.settle();
  EXPECT_EQ(away_chunks(), 0u);
  expect_sound();
}

// Neither going nor coming changes what the store has.
TEST_P(TierAwayTest, NothingIsCopiedAgain) {
  const std::string stored = stored_tags();
  ASSERT_TRUE(send_away().is_ok());
  world_.settle();
  expect_content("a", content_);
  world_.settle();
  ASSERT_TRUE(world_.tier().wait_for_all().is_ok());
  EXPECT_EQ(stored_tags(), stored);
  ASSERT_TRUE(send_away().is_ok());
  world_.settle();
  // The next life neither.
  reopen();
  world_.copy();
  EXPECT_EQ(stored_tags(), stored);
  EXPECT_EQ(away_chunks(), kChunks);
}

// Content comes back chunk by chunk, each of which is a commit that the file closes behind, while the tree is looked
// through.
class TierComingBackTest : public ::testing::Test {
 protected:
  void begin(uint64_t seed) {
    world_ = std::make_unique<HealingWorld>(seed);
    random_ = SimRandom(seed ^ 0x6261636b);
    world_->tier().copier().content_is_away();
    content_ = make_bytes(kLength, seed);
    world_->save("a", content_);
    world_->copy();
    ASSERT_TRUE(world_->send_away("a").is_ok());
    world_->settle();
    is_looked_through_ = true;
  }
  void bring_back(size_t chunk, bool writes) {
    if (is_looked_through_) {
      is_looked_through_ = false;
      world_->tier().copier().wait_for_all([this](const Status&) { is_looked_through_ = true; });
    }
    const size_t at = chunk * kTestChunk;
    {
      const std::shared_ptr<File> file = world_->array().open("a");
      const Result<Bytes> read =
          world_->array().read(*file, at, static_cast<uint32_t>(std::min<size_t>(kTestChunk, kLength - at)));
      ASSERT_TRUE(read.is_ok()) << read.status().message();
      EXPECT_TRUE(std::equal(read->begin(), read->end(), content_.begin() + static_cast<ptrdiff_t>(at)));
      if (writes) {
        const Bytes piece = make_bytes(500, random_.next());
        ASSERT_TRUE(world_->array().write(*file, at, piece).is_ok());
        std::copy(piece.begin(), piece.end(), content_.begin() + static_cast<ptrdiff_t>(at));
        ASSERT_TRUE(world_->array().control(*file, ControlRequest::Kind::kClose).is_ok());
      }
    }
    for (uint64_t steps = random_.between(0, 59); steps > 0; --steps) world_->world().step();
  }
  void end() {
    world_->world().run_until([this] { return is_looked_through_; });
    world_->settle();
    ASSERT_TRUE(world_->tier().wait_for_all().is_ok());
  }

  std::unique_ptr<HealingWorld> world_;
  SimRandom random_{0};
  Bytes content_;
  bool is_looked_through_ = true;
};

TEST_F(TierComingBackTest, NothingIsCopiedAgain) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(seed));
    const uint64_t sent = world_->tier().copier().status().bytes_copied;
    for (size_t chunk = 0; chunk < kChunks; ++chunk) ASSERT_NO_FATAL_FAILURE(bring_back(chunk, false));
    ASSERT_NO_FATAL_FAILURE(end());
    ASSERT_EQ(world_->tier().copier().status().bytes_copied, sent);
  }
}

// Nothing that is written meanwhile is taken for what was only moved; the store takes no copies now and then.
TEST_F(TierComingBackTest, WhatIsWrittenIsCopied) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(seed));
    for (size_t chunk = 0; chunk < kChunks; ++chunk) {
      const bool is_away = random_.chance(33);
      world_->objects().refuse(is_away ? Status::error(StatusCode::kUnreachable, "away") : Status::ok());
      ASSERT_NO_FATAL_FAILURE(bring_back(chunk, random_.chance(33)));
    }
    world_->objects().refuse(Status::ok());
    ASSERT_NO_FATAL_FAILURE(end());
    ASSERT_TRUE(world_->tier().copy("a") == std::optional(content_));
    ASSERT_EQ(world_->tier().note("a")->sequence, world_->array().open("a")->info().sequence);
  }
}

// A crash behind the commit and before the note: it is found to be the same by what it says of its chunks.
TEST_P(TierAwayTest, WithoutItsNoteOfTheMoveNothingIsSent) {
  world_.tier().set_deaf(true);
  ASSERT_TRUE(send_away().is_ok());
  world_.settle();
  reopen();
  const uint64_t sent = world_.tier().copier().status().bytes_copied;
  world_.tier().set_deaf(false);
  world_.copy();
  EXPECT_EQ(world_.tier().copier().status().bytes_copied, sent);
  EXPECT_EQ(away_chunks(), kChunks);
  expect_content("a", content_);
}

TEST_P(TierAwayTest, OnlyWhatIsCopiedAndAtRestLeaves) {
  std::shared_ptr<File> file = array().open("a");
  const uint64_t sequence = file->info().sequence;
  const std::vector<uint64_t> checksums = world_.tier().manifest("a")->checksums;
  const auto send = [&](uint64_t of, std::span<const uint64_t> sums) {
    return world_.send_away(*file, of, sums).code();
  };
  EXPECT_EQ(send(sequence - 1, checksums), StatusCode::kBusy);
  EXPECT_EQ(send(sequence, std::span(checksums).first(2)), StatusCode::kInvalidArgument);
  const Bytes piece = make_bytes(100, 2);
  ASSERT_TRUE(array().write(*file, 5, piece).is_ok());
  EXPECT_EQ(send(sequence, checksums), StatusCode::kBusy);
  ASSERT_TRUE(array().commit(*file).is_ok());
  EXPECT_EQ(send(sequence, checksums), StatusCode::kBusy);
  ASSERT_TRUE(array().control(*file, ControlRequest::Kind::kTruncate, kLength - 100).is_ok());
  ASSERT_TRUE(array().control(*file, ControlRequest::Kind::kTruncate, kLength).is_ok());
  ASSERT_TRUE(array().commit(*file).is_ok());
  EXPECT_EQ(file->info().codec_chunks[static_cast<size_t>(Codec::kAway)], 0u);
  EXPECT_FALSE(file->is_dirty());
  EXPECT_EQ(send(file->info().sequence, checksums), StatusCode::kOk);
  EXPECT_EQ(file->info().codec_chunks[static_cast<size_t>(Codec::kAway)], kChunks - 1) << "one shows a part only";
}

// Before it is copied again, and behind that.
TEST_P(TierAwayTest, ChangesOfWhatIsAway) {
  expect_changes(false);
}

TEST_P(TierAwayTest, ChangesOfWhatIsAwayAreCopied) {
  expect_changes(true);
}

TEST_P(TierAwayTest, WithoutItsCopyOnlyThisFails) {
  ASSERT_TRUE(send_away().is_ok());
  world_.save("b", content_, GetParam());
  world_.objects().objects().erase("a");
  reopen();
  const Result<Bytes> read = world_.read("a");
  EXPECT_EQ(read.status().errno_value(), EIO);
  EXPECT_NE(read.status().message().find("only"), std::string::npos) << read.status().message();
  EXPECT_GE(world_.status().chunks_without_copy, 1u);
  expect_content("b", content_);
  // Names and attributes stay, and it can be replaced.
  EXPECT_EQ(attributes().st_size, static_cast<off_t>(kLength));
  std::shared_ptr<File> file = array().open("a");
  ASSERT_TRUE(world_.tier().replace(*file, content_).is_ok());
  file = nullptr;
  expect_content("a", content_);
}

TEST_P(TierAwayTest, ADamagedCopyIsNotBelieved) {
  ASSERT_TRUE(send_away().is_ok());
  world_.objects().objects().at("a").content[5] ^= std::byte{1};
  reopen();
  EXPECT_EQ(world_.read("a").status().errno_value(), EIO);
  world_.objects().objects().at("a").content[5] ^= std::byte{1};
  world_.pass(20'000);
  expect_content("a", content_);
}

TEST_P(TierAwayTest, MovesWithItsCopy) {
  ASSERT_TRUE(send_away().is_ok());
  ASSERT_TRUE(world_.store().rename(world_.store().root(), "a", world_.store().root(), "b", 0).is_ok());
  expect_content("b", content_);
  ASSERT_TRUE(world_.tier().wait_for_all().is_ok());
  EXPECT_FALSE(world_.tier().copy("a").has_value());
  EXPECT_EQ(world_.tier().copy("b"), std::optional(content_));
  world_.settle();
  ASSERT_TRUE(send_away("b").is_ok());
  reopen();
  expect_content("b", content_);
}

// The saver's way: another file takes the name, while somebody reads the one before.
TEST_P(TierAwayTest, WhoHasItOpenReadsOnWhenItIsReplacedOrRemoved) {
  Bytes before = content_, after = make(3);
  for (const auto& [is_removed, is_told_late] :
       {std::pair(false, false), std::pair(false, true), std::pair(true, false)}) {
    SCOPED_TRACE(is_told_late ? "told late" : is_removed ? "removed" : "replaced");
    ASSERT_TRUE(send_away().is_ok());
    std::shared_ptr<File> reader = array().open("a");
    if (is_told_late) world_.tier().before_told([this] { world_.pass(3000); });
    if (is_removed) {
      ASSERT_TRUE(world_.store().unlink(world_.store().root(), "a").is_ok());
    } else {
      world_.save("new", after, GetParam());
      ASSERT_TRUE(world_.store().rename(world_.store().root(), "new", world_.store().root(), "a", 0).is_ok());
    }
    world_.tier().before_told(nullptr);
    world_.pass(30'000);
    const Result<Bytes> read = array().read_all(*reader);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == before);
    reader = nullptr;
    ASSERT_TRUE(world_.tier().wait_for_all().is_ok());
    world_.pass(5000);
    ASSERT_TRUE(world_.tier().wait_for_all().is_ok());
    EXPECT_EQ(world_.tier().copy("a"), is_removed ? std::nullopt : std::optional(after));
    world_.settle();
    before = std::exchange(after, make(4));
  }
}

// Under its other name it has a copy of its own before the one that it had is removed.
TEST_P(TierAwayTest, AnotherNameKeepsTheContent) {
  {
    Result<Store::Node> node = world_.store().lookup(world_.store().root(), "a");
    ASSERT_TRUE(node.is_ok());
    ASSERT_TRUE(world_.store().link(node->handle.get(), world_.store().root(), "b").is_ok());
  }
  ASSERT_TRUE(send_away().is_ok());
  ASSERT_TRUE(world_.store().unlink(world_.store().root(), "a").is_ok());
  ASSERT_TRUE(world_.tier().wait_for_all().is_ok());
  reopen();
  expect_content("b", content_);
}

// Attributes change the manifest, and nothing is sent or fetched.
TEST_P(TierAwayTest, AttributesOfWhatIsAway) {
  ASSERT_TRUE(send_away().is_ok());
  world_.settle();
  const uint64_t copied = world_.tier().copier().status().bytes_copied;
  Result<Store::Node> node = world_.store().lookup(world_.store().root(), "a");
  ASSERT_TRUE(node.is_ok());
  ASSERT_TRUE(world_.store().chmod(node->handle.get(), 0600).is_ok());
  node->handle.reset();
  ASSERT_TRUE(world_.tier().wait_for_all().is_ok());
  EXPECT_EQ(world_.tier().manifest("a")->mode & 07777, 0600u);
  EXPECT_EQ(world_.tier().copier().status().bytes_copied, copied);
  EXPECT_EQ(world_.status().chunks_fetched, 0u);
  expect_content("a", content_);
}

// As whoever restores an array makes its files.
TEST_P(TierAwayTest, ANewFileBeginsWithContentThatIsAway) {
  const std::optional<TierManifest> manifest = world_.tier().manifest("a");
  ASSERT_TRUE(manifest.has_value());
  {
    std::shared_ptr<File> file = array().create("b");
    const std::string at = "a";
    ASSERT_TRUE(file->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(at))).is_ok());
    std::vector<uint64_t> checksums = manifest->checksums;
    EXPECT_EQ(file->begin_away(kLength, std::span(checksums).first(2)).code(), StatusCode::kInvalidArgument);
    checksums[2] = 0;
    ASSERT_TRUE(file->begin_away(kLength, checksums).is_ok());
    ASSERT_TRUE(array().commit(*file).is_ok());
    EXPECT_EQ(file->begin_away(kLength, checksums).code(), StatusCode::kInvalidArgument);
  }
  expect_sound();
  EXPECT_EQ(attributes("b").st_size, static_cast<off_t>(kLength));
  Bytes expected = content_;
  std::fill_n(expected.begin() + 2 * kTestChunk, kTestChunk, std::byte{0});
  expect_content("b", expected);
  world_.settle();
  expect_sound();
  world_.disconnect();
  expect_content("b", expected);
}

TEST_P(TierAwayTest, AFullArrayReadsWhatIsAway) {
  ASSERT_TRUE(send_away().is_ok());
  reopen();
  SimFault full;
  full.call = SimFault::Call::kWrite;
  full.role = SimRole::kObjects;
  full.error = ENOSPC;
  full.count = SimFault::kForever;
  world_.world().sim().inject(full);
  expect_content("a", content_);
  world_.settle();
  expect_content("a", content_);
  EXPECT_GT(away_chunks(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Codecs, TierAwayTest, ::testing::Bool());

}  // namespace
}  // namespace fpfs::test
