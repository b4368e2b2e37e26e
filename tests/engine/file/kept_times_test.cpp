// Which modification time the sidecar keeps: that of a change that nobody was told of may become the record's own, but is
// never later than the close behind which it was written.
#include <gtest/gtest.h>

#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

int64_t ns_of(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

class KeptTimesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = array_.create("a");
    ASSERT_TRUE(array_.write(*file_, 0, make_bytes(4096, 1)).is_ok());
    written_ = now();
  }
  int64_t now() { return ns_of(array_.world().now()); }
  // As it is told: of an open file, or from the sidecar.
  int64_t mtime() {
    Result<Store::Node> node = array_.store().lookup(array_.store().root(), "a");
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    node->handle.reset();
    return ns_of(node->attributes.st_mtim);
  }
  int64_t mtime_of_next_mount() {
    file_.reset();
    EXPECT_TRUE(array_.close().is_ok());
    array_.open();
    return mtime();
  }

  SimArray array_{1};
  std::shared_ptr<File> file_;
  int64_t written_ = 0;
};

TEST_F(KeptTimesTest, WhatNobodySawIsTheRecords) {
  ASSERT_TRUE(array_.commit(*file_).is_ok());
  const int64_t committed = now(), told = mtime();
  EXPECT_GT(told, written_) << "nothing was set";
  EXPECT_LE(told, committed);
  EXPECT_EQ(mtime_of_next_mount(), told);
}

TEST_F(KeptTimesTest, WhatSomebodySawStays) {
  const int64_t told = mtime();
  EXPECT_LE(told, written_);
  ASSERT_TRUE(array_.commit(*file_).is_ok());
  EXPECT_EQ(mtime(), told);
  EXPECT_EQ(mtime_of_next_mount(), told);
}

TEST_F(KeptTimesTest, ARecordBehindAClosingDoesNotMoveIt) {
  file_->closed_by_writer();
  const int64_t closed = now();
  array_.world().drain();
  EXPECT_LE(mtime(), closed);
  EXPECT_LE(mtime_of_next_mount(), closed);
}

}  // namespace
}  // namespace fpfs::test
