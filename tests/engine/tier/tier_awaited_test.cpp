// Who waits for the copy of a commit (TierCopier::wait_for_commit()), over a simulated array and a simulated store:
// nobody is told that it is copied before it is, and everybody is told something.
#include <gtest/gtest.h>

#include "tests/engine/tier/sim_tier.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 5 * kTestChunk + 1000;  // three parts

class TierAwaitedTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  TierAwaitedTest() : tier_(GetParam()) {}
  void SetUp() override {
    tier_.copier().open();
    ASSERT_TRUE(tier_.wait_for_all().is_ok());
  }
  Store& store() { return tier_.array().store(); }
  Handle root() { return store().root(); }
  // What whoever waits for the last commit of a file is told; nothing yet.
  using Told = std::shared_ptr<std::optional<Status>>;
  Told ask(const File& file) {
    auto told = std::make_shared<std::optional<Status>>();
    tier_.copier().wait_for_commit(file.inode(), file.info().sequence, [told](const Status& status) {
      EXPECT_FALSE(told->has_value()) << "told twice";
      *told = status;
    });
    return told;
  }
  bool comes(const Told& told) {
    return tier_.world().run_until([&told] { return told->has_value(); });
  }
  void pass(unsigned ms) {
    bool is_over = false;
    tier_.world().executor().post_after(std::chrono::milliseconds(ms), [&is_over] { is_over = true; });
    ASSERT_TRUE(tier_.world().run_until([&is_over] { return is_over; }));
  }
  bool is_copied(const std::string& path, const Bytes& content) {
    const auto copy = tier_.copy(path);
    return copy.has_value() && *copy == content;
  }

  SimTier tier_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, TierAwaitedTest, ::testing::Range<uint64_t>(1, 21));

TEST_P(TierAwaitedTest, ItIsCopiedWhenThatIsSaid) {
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  for (uint64_t salt = 2; salt < 6; ++salt) {
    const Told told = ask(*file);
    ASSERT_TRUE(comes(told));
    ASSERT_TRUE((**told).is_ok()) << (**told).message();
    EXPECT_TRUE(is_copied("a", make_bytes(kLength, salt - 1)));
    ASSERT_TRUE(tier_.replace(*file, make_bytes(kLength, salt)).is_ok());
  }
}

TEST_P(TierAwaitedTest, AnOlderCommitIsCopiedWithALaterOne) {
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  tier_.objects().set_away(true);
  const Told first = ask(*file);
  ASSERT_TRUE(tier_.replace(*file, make_bytes(kLength, 2)).is_ok());
  const Told second = ask(*file);
  pass(5000);
  EXPECT_FALSE(first->has_value() || second->has_value());
  tier_.objects().set_away(false);
  ASSERT_TRUE(comes(first) && comes(second));
  EXPECT_TRUE((**first).is_ok() && (**second).is_ok());
  EXPECT_TRUE(is_copied("a", make_bytes(kLength, 2)));
}

TEST_P(TierAwaitedTest, WhileTheStoreIsAwayItIsWaitedFor) {
  tier_.objects().set_away(true);
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  const Told told = ask(*file);
  pass(60'000);
  EXPECT_FALSE(told->has_value());
  const uint64_t before = tier_.copier().progress();
  tier_.objects().set_away(false);
  ASSERT_TRUE(comes(told));
  EXPECT_TRUE((**told).is_ok());
  EXPECT_TRUE(is_copied("a", make_bytes(kLength, 1)));
  EXPECT_GT(tier_.copier().progress(), before);
}

// A save that waits for its copy does not wait for a backlog.
TEST_P(TierAwaitedTest, WhatIsWaitedForGoesFirst) {
  tier_.objects().set_away(true);
  constexpr unsigned kFiles = 40;
  std::shared_ptr<File> last;
  for (unsigned file = 0; file <= kFiles; ++file) {
    last = tier_.save("file" + std::to_string(file), make_bytes(kLength, file));
    pass(10);
  }
  const uint64_t oldest = static_cast<uint64_t>(tier_.copier().status().oldest_waiting_s);
  const Told told = ask(*last);
  pass(2000);
  EXPECT_EQ(static_cast<uint64_t>(tier_.copier().status().oldest_waiting_s), oldest);
  EXPECT_EQ(tier_.copier().status().files_waiting, kFiles + 1);
  tier_.objects().set_away(false);
  ASSERT_TRUE(comes(told));
  EXPECT_TRUE((**told).is_ok());
  EXPECT_LT(tier_.copier().status().files_copied, 10u);
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  for (unsigned file = 0; file <= kFiles; ++file)
    EXPECT_TRUE(is_copied("file" + std::to_string(file), make_bytes(kLength, file)));
}

TEST_P(TierAwaitedTest, AFileThatIsMovedMeanwhile) {
  for (const unsigned ms : {0U, 20U, 100U, 400U}) {
    const std::shared_ptr<File> file = tier_.save("new", make_bytes(kLength, ms + 1));
    const Told told = ask(*file);
    if (ms > 0) pass(ms);
    ASSERT_TRUE(store().rename(root(), "new", root(), "model", 0).is_ok());
    ASSERT_TRUE(comes(told)) << ms;
    EXPECT_TRUE((**told).is_ok()) << (**told).message();
    EXPECT_TRUE(is_copied("new", make_bytes(kLength, ms + 1)) || is_copied("model", make_bytes(kLength, ms + 1))) << ms;
  }
}

// Also when nothing told the copier of it.
TEST_P(TierAwaitedTest, AFileThatIsMovedUnnoticed) {
  const std::shared_ptr<File> file = tier_.save("new", make_bytes(kLength, 1));
  const Told told = ask(*file);
  tier_.set_deaf(true);
  ASSERT_TRUE(store().rename(root(), "new", root(), "model", 0).is_ok());
  ASSERT_TRUE(comes(told));
  EXPECT_TRUE((**told).is_ok()) << (**told).message();
  EXPECT_TRUE(is_copied("new", make_bytes(kLength, 1)) || is_copied("model", make_bytes(kLength, 1)));
}

TEST_P(TierAwaitedTest, OfAFileWithoutANameNoCopyIsWanted) {
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  tier_.objects().set_away(true);
  const Told meanwhile = ask(*file);
  pass(10);
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  const Told later = ask(*file);
  ASSERT_TRUE(comes(later));
  EXPECT_TRUE((**later).is_ok());
  tier_.objects().set_away(false);
  ASSERT_TRUE(comes(meanwhile));
  EXPECT_TRUE((**meanwhile).is_ok()) << (**meanwhile).message();
}

TEST_P(TierAwaitedTest, WhatTheStoreDoesNotTakeIsTold) {
  tier_.objects().refuse(Status::error(StatusCode::kRefused, "no such thing here"), "a");
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  const Told told = ask(*file);
  ASSERT_TRUE(comes(told));
  EXPECT_EQ((**told).code(), StatusCode::kRefused);
}

TEST_P(TierAwaitedTest, ANameThatIsNotCopiedIsTold) {
  ASSERT_TRUE(store().make_directory(root(), ".fastpersistfs", 0755).is_ok());
  Result<Store::Node> directory = store().lookup(root(), ".fastpersistfs");
  ASSERT_TRUE(directory.is_ok());
  Result<Store::Created> created = store().create(directory->handle.get(), "a", 0644);
  ASSERT_TRUE(created.is_ok());
  created->node.handle.reset();
  directory->handle.reset();
  ASSERT_TRUE(tier_.write(*created->file, make_bytes(100, 1)).is_ok());
  ASSERT_TRUE(tier_.array().commit(*created->file).is_ok());
  const Told told = ask(*created->file);
  ASSERT_TRUE(comes(told));
  EXPECT_EQ((**told).code(), StatusCode::kInvalidArgument);
}

TEST_P(TierAwaitedTest, TheEndIsTold) {
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  tier_.objects().set_away(true);
  const Told told = ask(*file);
  pass(100);
  ASSERT_TRUE(tier_.stop());
  ASSERT_TRUE(told->has_value());
  EXPECT_EQ((**told).code(), StatusCode::kCancelled);
  const Told later = ask(*file);
  ASSERT_TRUE(comes(later));
  EXPECT_EQ((**later).code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace fpfs::test
