// Versions that are held: what a commit made durable can be read as long as somebody wants it, and is freed afterwards.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 5 * kTestChunk + 1000;

StoreOptions options() {
  StoreOptions options;
  options.inline_max = 4096;
  options.spare_least = UINT64_MAX;  // what is freed goes
  return options;
}

class CommittedVersionTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  std::shared_ptr<File> save(const std::string& name, const Bytes& content) {
    std::shared_ptr<File> file = array_.create(name);
    EXPECT_TRUE(array_.write(*file, 0, content).is_ok());
    EXPECT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
    array_.world().drain();
    return file;
  }
  // The content of a version, chunk after chunk from the members.
  Bytes content_of(const CommittedVersion& version) {
    Result<FileImage> image = version.image();
    EXPECT_TRUE(image.is_ok()) << image.status().message();
    if (!image.is_ok()) return {};
    if (image->is_inline) return image->inline_data;
    Bytes content(image->size);
    const std::shared_ptr<ObjectSet> objects = version.objects(*image);
    image->extents.for_each(ChunkIndex(0), [&](ChunkIndex chunk, const Extent& extent) {
      struct Read {
        ChunkTransfer transfer;
        std::optional<Status> status;
      } read;
      const std::unique_ptr<std::byte, void (*)(void*)> buffer(
          static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, kTestChunk)), std::free);
      read.transfer.owner = &read;
      read.transfer.done = [](ChunkTransfer& transfer, const ObjectSet&, const Status& status) {
        static_cast<Read*>(transfer.owner)->status = status;
      };
      read.transfer.chunk = chunk;
      read.transfer.extent = extent;
      read.transfer.objects = objects;
      read.transfer.data = buffer.get();
      version.read(read.transfer, nullptr);
      EXPECT_TRUE(array_.world().run_until([&read] { return read.status.has_value(); }));
      EXPECT_TRUE(read.status->is_ok()) << "chunk " << chunk.value() << ": " << read.status->message();
      std::copy_n(buffer.get(), extent.visible_length, content.data() + offset_of(chunk, kTestChunk).value());
      return true;
    });
    return content;
  }
  size_t objects() {
    size_t count = 0;
    for (const std::string& member : array_.paths()) count += array_.sim().files_below(member + "/objects").size();
    return count;
  }
  // Ranges that were punched in objects so far.
  unsigned punches() const { return punches_; }
  void count_punches() {
    array_.sim().set_trace([this](const std::string& line) {
      punches_ += line.starts_with("punch ") && line.find("/objects/") != std::string::npos;
    });
  }

  unsigned punches_ = 0;
  SimArray array_{GetParam(), 3, options()};
};

TEST_P(CommittedVersionTest, IsReadWholeAfterTheFileWasReplaced) {
  const Bytes first = make_bytes(kLength, 1), second = make_bytes(kLength / 2, 2);
  const std::shared_ptr<File> file = save("a", first);
  const size_t objects_of_one = objects();
  {
    const auto version = file->hold_version().value();
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
      ASSERT_TRUE(array_.write(*file, 0, second).is_ok());
      ASSERT_TRUE(array_.commit(*file).is_ok());
      array_.world().drain();
      EXPECT_TRUE(content_of(*version) == first) << round;
    }
    EXPECT_GT(objects(), objects_of_one);
  }
  array_.world().drain();
  EXPECT_LE(objects(), objects_of_one) << "what waited is freed";
  EXPECT_TRUE(array_.read_all(*file).value() == second);
}

TEST_P(CommittedVersionTest, IsReadWholeAfterChunksWereOverwrittenPunchedAndCutOff) {
  const Bytes first = make_bytes(kLength, 1);
  const std::shared_ptr<File> file = save("a", first);
  count_punches();
  auto version = file->hold_version().value();
  Bytes expected = first;
  for (uint64_t round = 2; round < 6; ++round) {
    const Bytes piece = make_bytes(kTestChunk + 500, round);
    const size_t at = (round % 4) * kTestChunk;
    ASSERT_TRUE(array_.write(*file, at, piece).is_ok());
    std::copy(piece.begin(), piece.end(), expected.begin() + static_cast<ptrdiff_t>(at));
    ASSERT_TRUE(array_.commit(*file).is_ok());
    array_.world().drain();
    ASSERT_TRUE(content_of(*version) == first) << round;
  }
  EXPECT_TRUE(array_.read_all(*file).value() == expected);
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kPunchHole, 0, 2 * kTestChunk).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 3 * kTestChunk).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  array_.world().drain();
  EXPECT_TRUE(content_of(*version) == first);
  const unsigned before = punches();
  version.reset();
  array_.world().drain();
  EXPECT_GT(punches(), before) << "what waited is freed";
}

TEST_P(CommittedVersionTest, IsReadWholeAfterTheIndexWasCompacted) {
  const std::shared_ptr<File> file = save("a", make_bytes(3000, 1));
  const auto commit_rounds = [&](uint64_t first, uint64_t stop) {
    for (uint64_t round = first; round < stop; ++round) {
      ASSERT_TRUE(array_.write(*file, 0, make_bytes(3000, round)).is_ok());
      ASSERT_TRUE(array_.commit(*file).is_ok());
    }
    array_.world().drain();
  };
  commit_rounds(0, 5);  // the log goes on behind its first block, which stays
  const auto version = file->hold_version().value();
  commit_rounds(5, 60);
  EXPECT_TRUE(content_of(*version) == make_bytes(3000, 4));
}

TEST_P(CommittedVersionTest, IsReadWholeAfterTheNameWent) {
  const Bytes first = make_bytes(kLength, 1);
  std::shared_ptr<File> file = save("a", first);
  auto version = file->hold_version().value();
  file.reset();
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "a").is_ok());
  array_.world().drain();
  EXPECT_TRUE(content_of(*version) == first);
  version.reset();
  array_.world().drain();
  EXPECT_EQ(objects(), 0u);
}

TEST_P(CommittedVersionTest, TwoVersionsOfOneFileAreHeldApart) {
  const Bytes first = make_bytes(kLength, 1), second = make_bytes(kLength, 2), third = make_bytes(kLength, 3);
  const std::shared_ptr<File> file = save("a", first);
  const auto replace = [&](const Bytes& content) {
    ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
    ASSERT_TRUE(array_.write(*file, 0, content).is_ok());
    ASSERT_TRUE(array_.commit(*file).is_ok());
    array_.world().drain();
  };
  auto older = file->hold_version().value();
  replace(second);
  auto newer = file->hold_version().value();
  EXPECT_GT(newer->sequence(), older->sequence());
  replace(third);
  EXPECT_TRUE(content_of(*older) == first);
  const size_t objects_of_three = objects();
  older.reset();
  array_.world().drain();
  EXPECT_LT(objects(), objects_of_three) << "what only the older one had is freed";
  EXPECT_TRUE(content_of(*newer) == second);
  newer.reset();
  array_.world().drain();
  EXPECT_TRUE(array_.read_all(*file).value() == third);
}

TEST_P(CommittedVersionTest, NothingCommittedIsNoVersion) {
  const std::shared_ptr<File> file = array_.create("new");
  EXPECT_EQ(file->hold_version().status().code(), StatusCode::kNotFound);
}

TEST_P(CommittedVersionTest, ACrashFreesWhatWasHeld) {
  std::shared_ptr<File> file = save("a", make_bytes(kLength, 1));
  const size_t objects_of_one = objects();
  auto version = file->hold_version().value();
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  ASSERT_TRUE(array_.write(*file, 0, make_bytes(kLength, 2)).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  EXPECT_GT(objects(), objects_of_one);
  version.reset();  // which starts to free it
  file.reset();
  array_.crash();
  array_.open();
  EXPECT_LE(objects(), objects_of_one);
  EXPECT_TRUE(array_.read_all(*array_.open("a")).value() == make_bytes(kLength, 2));
}

TEST_P(CommittedVersionTest, AnArrayThatIsClosedMeanwhileIsNotClean) {
  std::shared_ptr<File> file = save("a", make_bytes(kLength, 1));
  auto version = file->hold_version().value();
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  ASSERT_TRUE(array_.write(*file, 0, make_bytes(kLength, 2)).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  std::optional<Status> closed;
  array_.store().close_async([&closed](const Status& status) { closed = status; });
  ASSERT_TRUE(array_.world().run_until([&closed] { return closed.has_value(); }));
  EXPECT_EQ(closed->code(), StatusCode::kBusy) << closed->message();
  EXPECT_FALSE(array_.store().left_clean());
  version.reset();
  file.reset();
  array_.kill();
  array_.open();
  EXPECT_TRUE(array_.read_all(*array_.open("a")).value() == make_bytes(kLength, 2));
  EXPECT_EQ(objects(), 3u) << "one for each member";
}

TEST_P(CommittedVersionTest, EveryDurableCommitIsToldInOrder) {
  std::vector<std::pair<uint64_t, uint64_t>> told;
  array_.store().on_commit([&told](uint64_t inode, uint64_t sequence, bool) { told.emplace_back(inode, sequence); });
  const std::shared_ptr<File> file = save("a", make_bytes(kLength, 1));
  ASSERT_TRUE(array_.write(*file, 0, make_bytes(100, 2)).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok()) << "nothing is new: nothing is told";
  array_.world().drain();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].first, file->inode());
  EXPECT_LT(told[0].second, told[1].second);
  EXPECT_EQ(told[1].second, file->hold_version().value()->sequence());
}

TEST_P(CommittedVersionTest, IsHeldByWhoIsToldOfIt) {
  std::unique_ptr<CommittedVersion> version;
  std::shared_ptr<File> file;
  array_.store().on_commit([&](uint64_t, uint64_t sequence, bool) {
    if (file == nullptr || version != nullptr) return;
    auto held = file->hold_version();
    ASSERT_TRUE(held.is_ok()) << held.status().message();
    version = std::move(*held);
    EXPECT_EQ(version->sequence(), sequence);
  });
  file = array_.create("a");
  ASSERT_TRUE(array_.write(*file, 0, make_bytes(kLength, 1)).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  ASSERT_NE(version, nullptr);
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate, 0).is_ok());
  ASSERT_TRUE(array_.commit(*file).is_ok());
  array_.world().drain();
  EXPECT_TRUE(content_of(*version) == make_bytes(kLength, 1));
}

TEST(HeldFrees, WhatIsFreedWaitsForThoseBeforeItOnly) {
  HeldFrees held;
  std::vector<int> freed;
  const auto keep = [&](int number) {
    HeldFrees::Free free = [&freed, number] { freed.push_back(number); };
    return held.keep(free);
  };
  const auto let_go = [&](HeldFrees::Ticket ticket) {
    for (const HeldFrees::Free& free : held.let_go(ticket)) free();
  };
  EXPECT_FALSE(keep(0)) << "nobody holds anything";
  const HeldFrees::Ticket first = held.hold(), second = held.hold();
  EXPECT_TRUE(keep(1));
  const HeldFrees::Ticket third = held.hold();
  EXPECT_TRUE(keep(2));
  let_go(first);
  EXPECT_EQ(freed, std::vector<int>());
  let_go(second);
  EXPECT_EQ(freed, std::vector<int>({1}));
  let_go(third);
  EXPECT_EQ(freed, std::vector<int>({1, 2}));
  EXPECT_FALSE(keep(3));
}

INSTANTIATE_TEST_SUITE_P(Seeds, CommittedVersionTest, ::testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace fpfs::test
