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

class KeptTimesOfTwoTest : public KeptTimesTest, public ::testing::WithParamInterface<bool> {
 protected:
  Status write_by(Writer& writer, uint32_t process) {
    const Bytes bytes = make_bytes(4096, process);
    SimArray::Answer<WriteRequest> write;
    write.request.length = static_cast<uint32_t>(bytes.size());
    write.request.data = bytes.data();
    write.request.origin = {&writer, {process, 0}, false};
    file_->write(write.request);
    return array_.wait(write);
  }
  Status close_by(Writer& writer, uint32_t process) {
    SimArray::Answer<ControlRequest> close;
    close.request.kind = ControlRequest::Kind::kClose;
    close.request.origin = {&writer, {process, process}, false};
    file_->control(close.request);
    return array_.wait(close);
  }
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

// Nor does anything behind the commit: compaction of the index, in the background.
TEST_F(KeptTimesTest, WhatIsCommittedStays) {
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(array_.write(*file_, 0, make_bytes(4096, i)).is_ok());
    ASSERT_TRUE(array_.commit(*file_).is_ok());
    const int64_t committed = now();
    array_.world().drain();
    ASSERT_LE(mtime(), committed) << i;
  }
}

// A lazy one, as another writer's save is not at its end.
TEST_P(KeptTimesOfTwoTest, ACloseOfOneOfTwoEndsIt) {
  const bool is_lazy = GetParam();
  Writer closing{{.opener = {0, 1}}}, writing{{.opener = {0, 2}}};
  for (Writer* const writer : {&closing, &writing}) file_->attach(*writer);
  for (const auto& [writer, process] : {std::pair(&closing, 1U), {&writing, 2U}})
    ASSERT_TRUE(write_by(*writer, process).is_ok());
  if (is_lazy)
    file_->closed_by_writer({&closing, {1, 1}, false});
  else
    ASSERT_TRUE(close_by(closing, 1).is_ok());
  EXPECT_EQ(file_->is_dirty(), is_lazy) << "else the close has committed it";
  const int64_t closed = now();
  ASSERT_TRUE(array_.commit(*file_).is_ok());
  EXPECT_LE(mtime(), closed);
  for (Writer* const writer : {&closing, &writing}) file_->detach(*writer);
}

INSTANTIATE_TEST_SUITE_P(Lazy, KeptTimesOfTwoTest, ::testing::Bool());

TEST_F(KeptTimesTest, ARecordBehindAClosingDoesNotMoveIt) {
  file_->closed_by_writer();
  const int64_t closed = now();
  array_.world().drain();
  EXPECT_LE(mtime(), closed);
  EXPECT_LE(mtime_of_next_mount(), closed);
}

}  // namespace
}  // namespace fpfs::test
