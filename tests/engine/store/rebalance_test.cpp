// A rebalance of an open array: files of before spread over members that were added, and nothing else changes.
#include "engine/store/rebalance.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "engine/io/posix_environment.h"
#include "tests/engine/store/small_store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using Phase = PassState::Phase;
constexpr uint64_t kSize = 12 * uint64_t{test::kSmallChunk};

class RebalanceTest : public testing::Test {
 protected:
  RebalanceTest() {
    for (const char* name : {"a", "b"}) directories_.push_back(place_ / name);
    test::format_small_array(environment_, directories_);
    store_ = test::open_small_store(environment_, directories_, false);
    rebalance_ = std::make_unique<Rebalance>(*store_);
  }
  ~RebalanceTest() override {
    rebalance_.reset();
    EXPECT_TRUE(store_->close().is_ok());
  }
  void write_file(const std::string& name, uint64_t seed) {
    auto created = store_->create(store_->root(), name, 0644);
    ASSERT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    std::vector<std::byte> data(kSize);
    test::fill(data, seed, 0);
    ASSERT_TRUE(store_->write_sync(*created->file, FileOffset(0), data).is_ok());
    ASSERT_TRUE(store_->commit_sync(*created->file).is_ok());
  }
  std::shared_ptr<File> open(const std::string& name) {
    Result<Store::Node> node = store_->lookup(store_->root(), name);
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    return *store_->open_file(node->handle.get(), false);
  }
  std::vector<unsigned> chunks_by_member(const std::string& name) {
    std::vector<unsigned> counts(store_->array().member_count());
    for (const File::MappedExtent& mapped : open(name)->map(ChunkIndex(0), 1000))
      ++counts[mapped.extent.member.value()];
    return counts;
  }
  void add(const std::string& name) {
    const Status added = store_->add_members({place_ / name});
    ASSERT_TRUE(added.is_ok()) << added.message();
  }
  Rebalance::Report run(uint64_t limit = 0) {
    EXPECT_TRUE(rebalance_->start(limit).is_ok());
    return wait();
  }
  Rebalance::Report wait() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (rebalance_->report().state.phase == Phase::kRunning && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return rebalance_->report();
  }

  test::TemporaryDirectory place_{test::quick_place()};
  PosixEnvironment environment_;
  std::vector<std::string> directories_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Rebalance> rebalance_;
};

TEST_F(RebalanceTest, FilesSpreadOverAllMembers) {
  for (int i = 0; i < 4; ++i) write_file("file" + std::to_string(i), static_cast<uint64_t>(i));
  EXPECT_EQ(chunks_by_member("file0"), (std::vector<unsigned>{6, 6}));
  add("c");
  const Rebalance::Report report = run();
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  EXPECT_EQ(report.state.files, 4u);
  EXPECT_EQ(report.chunks_left, 0u);
  EXPECT_GE(report.chunks_moved, 16u) << "a third of them at least";
  EXPECT_EQ(report.bytes_moved, report.chunks_moved * test::kSmallChunk);
  if (report.state.active_ms > 0) {
    EXPECT_DOUBLE_EQ(report.bytes_per_second * static_cast<double>(report.state.active_ms),
                     static_cast<double>(report.bytes_moved) * 1000);
  }
  for (int i = 0; i < 4; ++i) {
    const std::string name = "file" + std::to_string(i);
    EXPECT_EQ(chunks_by_member(name), (std::vector<unsigned>{4, 4, 4}));
    std::vector<std::byte> data(kSize), expected(kSize);
    test::fill(expected, static_cast<uint64_t>(i), 0);
    ASSERT_TRUE(store_->read_sync(*open(name), FileOffset(0), data).is_ok());
    EXPECT_EQ(data, expected) << name;
  }
  // Begun again, there is nothing to do; and no limit holds up what is in its place.
  const Rebalance::Report again = run(1);
  EXPECT_EQ(again.state.phase, Phase::kFinished);
  EXPECT_EQ(again.chunks_moved, 0u);
}

TEST_F(RebalanceTest, OneThatWasCancelledGoesOnWhereItWas) {
  for (int i = 0; i < 4; ++i) write_file("file" + std::to_string(i), static_cast<uint64_t>(i));
  add("c");
  ASSERT_TRUE(rebalance_->start(1).is_ok());
  EXPECT_EQ(rebalance_->start(0).code(), StatusCode::kBusy);
  ASSERT_TRUE(rebalance_->cancel().is_ok());
  EXPECT_EQ(rebalance_->report().state.phase, Phase::kCancelled);
  EXPECT_EQ(run().chunks_left, 0u);
  EXPECT_EQ(chunks_by_member("file3"), (std::vector<unsigned>{4, 4, 4}));
}

// What lay behind it belongs elsewhere now, and the file in the middle of which it is has begun with fewer members.
TEST_F(RebalanceTest, MembersThatAreAddedMeanwhileAreTakenIn) {
  for (int i = 0; i < 4; ++i) write_file("file" + std::to_string(i), static_cast<uint64_t>(i));
  add("c");
  ASSERT_TRUE(rebalance_->start(32 * test::kSmallChunk).is_ok());
  while (rebalance_->report().state.files == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  add("d");
  ASSERT_EQ(rebalance_->report().state.phase, Phase::kRunning);
  const Rebalance::Report report = wait();
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  EXPECT_EQ(report.chunks_left, 0u);
  EXPECT_TRUE(report.left.empty());
  EXPECT_EQ(report.state.files, 4u) << "each counts once";
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(chunks_by_member("file" + std::to_string(i)), (std::vector<unsigned>{3, 3, 3, 3})) << i;
}

TEST_F(RebalanceTest, FilesThatAreOpenSinceBeforeAreCounted) {
  write_file("open", 1);
  std::shared_ptr<File> file = open("open");
  add("c");
  const Rebalance::Report report = run();
  EXPECT_GT(report.chunks_left, 0u);
  ASSERT_EQ(report.left.size(), 1u);
  EXPECT_EQ(report.left[0].path, "/open");
  EXPECT_EQ(report.left[0].chunks, report.chunks_left);
  EXPECT_EQ(report.left[0].first.size(), report.chunks_left);
  EXPECT_NE(report.left[0].why.find("open since before"), std::string::npos) << report.left[0].why;
  file.reset();
  EXPECT_EQ(run().chunks_left, 0u);
  EXPECT_EQ(chunks_by_member("open"), (std::vector<unsigned>{4, 4, 4}));
}

}  // namespace
}  // namespace fpfs
