// Which file a new one is compared with (dedup=previous).
#include "engine/file/previous_files.h"

#include <gtest/gtest.h>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

uint64_t likeness(const std::string& a, const std::string& b) {
  return PathPattern::of(a).likeness(PathPattern::of(b));
}

TEST(PathPattern, IsThePathWithoutItsNumbers) {
  const PathPattern path = PathPattern::of("/run7/checkpoint-0100/model-00002-of-00004.safetensors");
  EXPECT_EQ(path.pattern, "/run#/checkpoint-#/model-#-of-#.safetensors");
  EXPECT_EQ(path.numbers, (std::vector<std::string>{"7", "0100", "00002", "00004"}));
  EXPECT_EQ(PathPattern::of("").pattern, "");
  EXPECT_EQ(PathPattern::of("latest.pt").pattern, "latest.pt");
  EXPECT_EQ(PathPattern::of("123").pattern, "#");
}

TEST(PathPattern, ShardsOfTheCheckpointBeforeComeFirst) {
  const std::string wanted = "/c-200/model-00002-of-00004";
  EXPECT_GT(likeness(wanted, "/c-100/model-00002-of-00004"), likeness(wanted, "/c-200/model-00001-of-00004"));
  EXPECT_GT(likeness(wanted, "/c-200/model-00001-of-00004"), likeness(wanted, "/c-100/model-00001-of-00004"));
  EXPECT_GT(likeness("/c-200/__1_0.distcp", "/c-100/__1_0.distcp"),
            likeness("/c-200/__1_0.distcp", "/c-200/__0_0.distcp"));
  EXPECT_EQ(likeness("/a1", "/a2"), likeness("/a1", "/a3"));
}

class PreviousFilesTest : public ::testing::Test {
 protected:
  static StoreOptions options() {
    StoreOptions options;
    options.dedup = StoreOptions::Dedup::kPrevious;
    options.inline_max = 4096;
    return options;
  }
  std::shared_ptr<File> save(Handle directory, const std::string& name, const Bytes& content) {
    Result<Store::Created> created = array_.store().create(directory, name, 0644);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    EXPECT_TRUE(array_.write(*created->file, 0, content).is_ok());
    EXPECT_TRUE(array_.control(*created->file, ControlRequest::Kind::kClose).is_ok());
    array_.world().drain();
    return created->file;
  }
  void save(const std::string& name, const Bytes& content) { save(array_.store().root(), name, content); }
  NodeHandle make_directory(Handle parent, const std::string& name) {
    EXPECT_TRUE(array_.store().make_directory(parent, name, 0755).is_ok());
    Result<Store::Node> node = array_.store().lookup(parent, name);
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    return std::move(node->handle);
  }
  uint64_t shared() { return array_.store().status().chunks_shared; }
  // What the last call of this did not see.
  uint64_t newly_shared() { return shared() - std::exchange(seen_, shared()); }
  void remount() {
    array_.world().drain();
    ASSERT_TRUE(array_.close().is_ok());
    array_.open();
    seen_ = 0;
  }

  const Bytes content_ = make_bytes(6 * kTestChunk, 1);
  const Bytes other_ = make_bytes(6 * kTestChunk, 2);
  SimArray array_{11, 3, options()};
  uint64_t seen_ = 0;
};

TEST_F(PreviousFilesTest, FilesOfOthersAreNotComparedWith) {
  constexpr uid_t kOther = 1234;
  save("step100.pt", content_);
  const Result<Store::Node> node = array_.store().lookup(array_.store().root(), "step100.pt");
  ASSERT_TRUE(node.is_ok());
  ASSERT_TRUE(array_.world().storage().chown(node->handle.get(), kOther, kOther).is_ok());
  save("step200.pt", content_);
  EXPECT_EQ(newly_shared(), 0U);
  save("step300.pt", content_);
  EXPECT_EQ(newly_shared(), 6U);
}

TEST_F(PreviousFilesTest, NumbersInTheNameOrInTheDirectoryMayDiffer) {
  save("step100.pt", content_);
  EXPECT_EQ(newly_shared(), 0U);
  save("step200.pt", content_);
  EXPECT_EQ(newly_shared(), 6U);
  save("stop300.pt", content_);
  EXPECT_EQ(newly_shared(), 0U);
  const NodeHandle first = make_directory(array_.store().root(), "checkpoint-1");
  save(first.get(), "model.safetensors", content_);
  const NodeHandle second = make_directory(array_.store().root(), "checkpoint-2");
  save(second.get(), "model.safetensors", content_);
  EXPECT_EQ(newly_shared(), 6U);
}

TEST_F(PreviousFilesTest, EachShardIsComparedWithItsOwn) {
  for (const int step : {1, 2}) {
    const NodeHandle directory = make_directory(array_.store().root(), "checkpoint-" + std::to_string(step));
    for (const uint64_t shard : {1, 2, 3, 4})
      save(directory.get(), "model-" + std::to_string(shard) + "-of-4", make_bytes(5 * kTestChunk, shard));
  }
  EXPECT_EQ(newly_shared(), 4U * 5);
}

TEST_F(PreviousFilesTest, AnotherCandidateIsTriedWhenTheFirstIsNotAlike) {
  const Bytes long_one = make_bytes(12 * kTestChunk, 3);
  save("1-a5", long_one);
  save("2-a5", make_bytes(12 * kTestChunk, 4));  // the latest, and as alike by its name
  const std::shared_ptr<File> file = array_.create("3-a5");
  for (size_t at = 0; at < long_one.size(); at += kTestChunk) {
    ASSERT_TRUE(array_.write(*file, at, std::span(long_one).subspan(at, kTestChunk)).is_ok());
    array_.world().drain();
  }
  EXPECT_EQ(newly_shared(), 8U);
}

TEST_F(PreviousFilesTest, ATemporaryNameThatComesAgain) {
  save("ckpt.pt.tmp", content_);
  const Handle root = array_.store().root();
  ASSERT_TRUE(array_.store().rename(root, "ckpt.pt.tmp", root, "ckpt.pt", 0).is_ok());
  save("ckpt.pt.tmp", content_);
  EXPECT_EQ(newly_shared(), 6U);
}

TEST_F(PreviousFilesTest, AfterAMountItIsLookedFor) {
  save("step100.pt", other_);
  save("step200.pt", content_);
  const NodeHandle first = make_directory(array_.store().root(), "c-1");
  save(first.get(), "m", content_);
  const_cast<NodeHandle&>(first).reset();
  remount();
  Result<Store::Created> created = array_.store().create(array_.store().root(), "step300.pt", 0644);
  ASSERT_TRUE(created.is_ok());
  created->node.handle.reset();
  ASSERT_TRUE(array_.write(*created->file, 0, content_).is_ok());
  ASSERT_TRUE(array_.control(*created->file, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(newly_shared(), 6U);
  created->file = nullptr;
  NodeHandle second = make_directory(array_.store().root(), "c-2");
  created = array_.store().create(second.get(), "m", 0644);
  ASSERT_TRUE(created.is_ok());
  created->node.handle.reset();
  array_.world().drain();
  ASSERT_TRUE(array_.write(*created->file, 0, content_).is_ok());
  ASSERT_TRUE(array_.control(*created->file, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(newly_shared(), 6U);
}

TEST_F(PreviousFilesTest, RemovedFilesAreNotKept) {
  save("step100.pt", content_);
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "step100.pt").is_ok());
  array_.world().drain();
  EXPECT_EQ(array_.sim().files_below("/m0/objects").size(), 0U);
  save("step200.pt", content_);
  EXPECT_EQ(newly_shared(), 0U);
  // While it is being written to.
  std::shared_ptr<File> file = array_.create("step300.pt");
  ASSERT_TRUE(array_.write(*file, 0, std::span(content_).first(2 * kTestChunk)).is_ok());
  array_.world().drain();
  EXPECT_EQ(newly_shared(), 2U);
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "step200.pt").is_ok());
  array_.world().drain();
  EXPECT_EQ(array_.sim().files_below("/m0/objects").size(), 1U);  // freed at once
  ASSERT_TRUE(array_.write(*file, 2 * kTestChunk, std::span(content_).subspan(2 * kTestChunk)).is_ok());
  ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  EXPECT_EQ(newly_shared(), 0U);
  EXPECT_EQ(*array_.read_all(*file), content_);
}

// Small files of one pattern are no rotation: they begin on all members, and hold nothing open.
TEST_F(PreviousFilesTest, SmallFilesSpread) {
  PerMember<unsigned> starts(3);
  for (int i = 0; i < 60; ++i) {
    const std::string name = "image" + std::to_string(i);
    save(name, make_bytes(8000, static_cast<uint64_t>(i)));
    ++starts[*array_.open(name)->stripe_start()];
  }
  for (const unsigned count : starts) EXPECT_GT(count, 5U);
}

TEST_F(PreviousFilesTest, ManyAreForgotten) {
  for (size_t i = 0; i < PreviousFiles::kFilesMax + 20; ++i)
    save("a" + std::string(i % 7, 'x') + std::to_string(i), make_bytes(3 * kTestChunk, i));
  const std::vector<std::string> handles = array_.sim().open_handles();
  const auto of_files = std::count_if(handles.begin(), handles.end(),
                                      [](const std::string& one) { return one.find("/tree/a") != std::string::npos; });
  EXPECT_LE(static_cast<size_t>(of_files), PreviousFiles::kFilesMax);
}

}  // namespace
}  // namespace fpfs::test
