// The commit log (engine/file/commit_log.h): which commits it takes, and that a power cut changes nothing of what they
// promise (P1). power_cut_test has lives that make many small files.
#include "engine/file/commit_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs {
namespace {

using test::Bytes;
using test::make_bytes;
using test::SimArray;

// What is drawn: what a power cut leaves of what is not durable.
class CommitLogTest : public testing::TestWithParam<uint64_t> {
 protected:
  CommitLogTest() : array_(GetParam(), 2) {
    EXPECT_TRUE(array_.close().is_ok());
    array_.sim().set_syncs_own_names(true);
    array_.sim().set_journal_order(SimFilesystem::JournalOrder::kWhole);
    array_.use_commit_log();
    array_.open();
    array_.sim().set_trace([this](const std::string& line) { calls_.push_back(line); });
  }
  ~CommitLogTest() override { array_.sim().set_trace(nullptr); }

  Store& store() { return array_.store(); }
  Handle root() { return array_.store().root(); }

  std::shared_ptr<File> begin(const std::string& name) {
    std::shared_ptr<File> file = array_.create(name);
    EXPECT_TRUE(array_.write(*file, 0, content_of(name)).is_ok());
    calls_.clear();
    return file;
  }
  // True: by an entry in the log; false: by a sync of its sidecar. (Those of others may be synced at any time.)
  bool end(File& file, const std::string& name, ControlRequest::Kind kind = ControlRequest::Kind::kClose) {
    EXPECT_TRUE(array_.control(file, kind).is_ok());
    const auto is_entry = [](const std::string& call) {
      return call.starts_with("write /m0/commits ") && !call.ends_with(" at 0");
    };
    const auto is_its_sync = [&](const std::string& call) { return call.starts_with("sync /m0/tree/" + name); };
    const bool is_logged = std::ranges::any_of(calls_, is_entry);
    EXPECT_TRUE(is_logged || std::ranges::any_of(calls_, is_its_sync));
    return is_logged;
  }
  bool save(const std::string& name) { return end(*begin(name), name); }
  static Bytes content_of(const std::string& name) { return make_bytes(100 + 997 * name.size(), name.size()); }

  void expect_there(const std::string& name, const std::string& as = "") {
    Result<std::shared_ptr<File>> file = array_.try_open(name);
    ASSERT_TRUE(file.is_ok()) << name << ": " << file.status().message();
    const Result<Bytes> content = array_.read_all(**file);
    ASSERT_TRUE(content.is_ok()) << content.status().message();
    EXPECT_EQ(*content, content_of(as.empty() ? name : as)) << name;
  }
  void expect_gone(const std::string& name) {
    EXPECT_EQ(array_.try_open(name).status().code(), StatusCode::kNotFound) << name;
  }
  void after_a_crash() {
    array_.crash();
    array_.open();
  }
  // fsck of the array, which nobody has open.
  std::vector<std::string> kinds_found(Repair repair) {
    CheckOptions options;
    options.verify_data = true;
    options.repair = repair;
    const Result<CheckReport> report = check_array(array_.world(), array_.paths(), options);
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    std::vector<std::string> kinds;
    for (const CheckError& error : report->errors)
      if (error.kind == "commit-log" || error.kind == "pending-commit")
        kinds.push_back(error.kind + (error.repaired ? ", repaired" : ""));
    return kinds;
  }

  SimArray array_;
  std::vector<std::string> calls_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, CommitLogTest, testing::Range<uint64_t>(1, 31));

TEST_P(CommitLogTest, TheFirstOfManyIsSynced) {
  EXPECT_FALSE(save("first"));
  for (const std::string name : {"a", "bb", "ccc", "dddd"}) EXPECT_TRUE(save(name));
  after_a_crash();
  for (const std::string name : {"first", "a", "bb", "ccc", "dddd"}) expect_there(name);
}

TEST_P(CommitLogTest, TheNextAfterAChangeOfNamesIsSynced) {
  EXPECT_FALSE(save("first"));
  EXPECT_TRUE(save("a"));
  ASSERT_TRUE(store().make_directory(root(), "made", 0755).is_ok());
  EXPECT_FALSE(save("bb"));
  EXPECT_TRUE(save("ccc"));
  ASSERT_TRUE(store().rename(root(), "a", root(), "moved", 0).is_ok());
  EXPECT_FALSE(save("dddd"));
  {
    const Store::Node node = store().lookup(root(), "bb").value();
    ASSERT_TRUE(store().link(node.handle.get(), root(), "linked").is_ok());
  }
  EXPECT_FALSE(save("eeeee"));
  ASSERT_TRUE(store().unlink(root(), "linked").is_ok());
  EXPECT_FALSE(save("ffffff"));
  EXPECT_TRUE(save("ggggggg"));
  after_a_crash();
  for (const std::string name : {"first", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"}) expect_there(name);
  expect_there("moved", "a");
  expect_gone("a");
}

// A file that was begun before a directory was made says nothing of that one.
TEST_P(CommitLogTest, WhatWasMadeBeforeForcesNothingThatCameLater) {
  EXPECT_FALSE(save("first"));
  std::shared_ptr<File> early = begin("early");
  ASSERT_TRUE(store().make_directory(root(), "made", 0755).is_ok());
  EXPECT_FALSE(end(*early, "early"));
  early.reset();
  EXPECT_FALSE(save("late"));
  EXPECT_TRUE(save("later"));
  after_a_crash();
  for (const std::string name : {"first", "early", "late", "later"}) expect_there(name);
}

TEST_P(CommitLogTest, OnlyTheFirstCommitOfAFileThatWasClosed) {
  EXPECT_FALSE(save("first"));
  EXPECT_FALSE(end(*begin("synced"), "synced", ControlRequest::Kind::kCommit));  // fsync(2): the access time, too
  std::shared_ptr<File> file = begin("again");
  EXPECT_TRUE(end(*file, "again"));
  ASSERT_TRUE(array_.write(*file, 0, content_of("again")).is_ok());
  calls_.clear();
  EXPECT_FALSE(end(*file, "again"));
  file.reset();
  std::shared_ptr<File> tagged = begin("tagged");
  {
    const Store::Node node = store().lookup(root(), "tagged").value();
    ASSERT_TRUE(store().storage().set_xattr(node.handle.get(), "user.tag", Bytes(3), 0).is_ok());
  }
  calls_.clear();
  EXPECT_FALSE(end(*tagged, "tagged"));
  tagged.reset();
  std::shared_ptr<File> moved = begin("moved");
  ASSERT_TRUE(store().rename(root(), "moved", root(), "elsewhere", 0).is_ok());
  calls_.clear();
  EXPECT_FALSE(end(*moved, "elsewhere"));
  moved.reset();
  after_a_crash();
  for (const std::string name : {"first", "synced", "again", "tagged"}) expect_there(name);
  expect_there("elsewhere", "moved");
}

TEST_P(CommitLogTest, WhatWasRemovedDoesNotComeBack) {
  EXPECT_FALSE(save("first"));
  EXPECT_TRUE(save("gone"));
  EXPECT_TRUE(save("kept"));
  ASSERT_TRUE(store().unlink(root(), "gone").is_ok());
  EXPECT_FALSE(save("next"));
  EXPECT_TRUE(save("old"));
  EXPECT_TRUE(save("new"));
  ASSERT_TRUE(store().rename(root(), "new", root(), "old", 0).is_ok());
  ASSERT_TRUE(store().sync_directory(root()).is_ok());
  after_a_crash();
  expect_gone("gone");
  expect_gone("new");
  for (const std::string name : {"first", "kept", "next"}) expect_there(name);
  expect_there("old", "new");
}

TEST_P(CommitLogTest, AttributesArePutBack) {
  EXPECT_FALSE(save("first"));
  std::shared_ptr<File> file = begin("other");
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1'000'000, 5}};
  {
    const Store::Node node = store().lookup(root(), "other").value();
    ASSERT_TRUE(store().chmod(node.handle.get(), 0601).is_ok());
    ASSERT_TRUE(store().chown(node.handle.get(), 77, 88).is_ok());
    ASSERT_TRUE(store().set_times(node.handle.get(), times).is_ok());
  }
  calls_.clear();
  EXPECT_TRUE(end(*file, "other"));
  file.reset();
  after_a_crash();
  const Store::Node node = store().lookup(root(), "other").value();
  EXPECT_EQ(node.attributes.st_mode & 07777, 0601U);
  EXPECT_EQ(node.attributes.st_uid, 77U);
  EXPECT_EQ(node.attributes.st_gid, 88U);
  EXPECT_EQ(node.attributes.st_mtim.tv_sec, 1'000'000);
  EXPECT_EQ(node.attributes.st_mtim.tv_nsec, 5);
}

// Many of them, and time that passes: what is retired is on the drive.
TEST_P(CommitLogTest, ManyFiles) {
  unsigned logged = 0;
  for (unsigned i = 0; i < 400; ++i) logged += save("f" + std::to_string(1000 + i)) ? 1 : 0;
  EXPECT_GE(logged, 390U);
  after_a_crash();
  for (unsigned i = 0; i < 400; ++i) expect_there("f" + std::to_string(1000 + i));
  EXPECT_TRUE(array_.close().is_ok());
  EXPECT_TRUE(kinds_found(Repair::kNone).empty());
}

TEST_P(CommitLogTest, FsckFindsWhatIsMissingAndPutsItBack) {
  EXPECT_FALSE(save("first"));
  for (const std::string name : {"a", "bb", "ccc"}) EXPECT_TRUE(save(name));
  array_.crash();
  const size_t missing = kinds_found(Repair::kNone).size();
  EXPECT_EQ(kinds_found(Repair::kPreen), std::vector<std::string>(missing, "pending-commit, repaired"));
  EXPECT_TRUE(kinds_found(Repair::kNone).empty());
  array_.open();
  EXPECT_FALSE(store().recovery().was_dirty);
  for (const std::string name : {"first", "a", "bb", "ccc"}) expect_there(name);
}

TEST_P(CommitLogTest, ALogThatIsDamagedIsReportedAndMadeAgain) {
  EXPECT_FALSE(save("first"));
  EXPECT_TRUE(save("a"));
  array_.crash();
  ASSERT_TRUE(array_.sim().flip_bit("/m0/commits", 20, 3));
  EXPECT_EQ(kinds_found(Repair::kNone), std::vector<std::string>{"commit-log"});
  array_.open();
  expect_there("first");
  EXPECT_FALSE(save("bb"));
  EXPECT_TRUE(save("ccc"));
  after_a_crash();
  for (const std::string name : {"first", "bb", "ccc"}) expect_there(name);
}

// Where the drive's filesystem does not log names in order nothing is known of what came before.
TEST_P(CommitLogTest, NoneWhereNamesAreNotLoggedInOrder) {
  EXPECT_TRUE(array_.close().is_ok());
  array_.sim().set_journal_order(SimFilesystem::JournalOrder::kPerDirectory);
  array_.open();
  for (const std::string name : {"a", "bb", "ccc"}) EXPECT_FALSE(save(name));
}

}  // namespace
}  // namespace fpfs
