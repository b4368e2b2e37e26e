#include "engine/file/commit_job.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr FileId kFile(77);
constexpr MemberIndex kFirst(0), kSecond(1);

class CommitJobTest : public ::testing::Test {
 protected:
  CommitJobTest() : environment_(2, {.mount_paths = {"/m0", "/m1"}}) {
    FormatOptions format;
    format.chunk_size = kTestChunk;
    EXPECT_TRUE(Array::format(environment_, {"/m0", "/m1"}, format).is_ok());
    array_ = Array::open(environment_, {"/m0", "/m1"}, {}).value();
    job_.objects = std::make_shared<ObjectSet>(environment_.storage(), *array_, nullptr, array_->member_count(), kFile,
                                               Generation(0), false);
  }
  // The object of the member is there, with as many chunks allocated and nothing to sync.
  void make_object(MemberIndex member, uint64_t chunks) {
    const Result<HandleCache::Pin> object = job_.objects->open_for_transfer(member, ObjectSet::Use::kWrite);
    ASSERT_TRUE(object.is_ok());
    const ObjectOffset end(chunks * kTestChunk);
    ASSERT_TRUE(job_.objects->preallocate(member, object->get(), ObjectOffset(0), end, 0).is_ok());
    ASSERT_TRUE(job_.objects->sync(member).is_ok());
    job_.objects->clear_touched(member);
  }
  void set_trim(uint64_t first_chunks, uint64_t second_chunks) {
    job_.trim.ends.push_back(ObjectOffset(first_chunks * kTestChunk));
    job_.trim.ends.push_back(ObjectOffset(second_chunks * kTestChunk));
  }

  SimEnvironment environment_;
  std::unique_ptr<Array> array_;
  CommitJob job_;
};

TEST_F(CommitJobTest, AMemberIsSyncedWhenSomethingChangedThere) {
  EXPECT_TRUE(job_.members_to_sync().empty());
  make_object(kFirst, 1);
  make_object(kSecond, 1);
  EXPECT_TRUE(job_.members_to_sync().empty());
  job_.objects->touch(kSecond);
  EXPECT_EQ(job_.members_to_sync(), std::vector<MemberIndex>{kSecond});
  EXPECT_TRUE(job_.sync_objects(kSecond).is_ok());
  EXPECT_TRUE(job_.members_to_sync().empty()) << "it is durable";
  job_.objects = nullptr;
  EXPECT_TRUE(job_.members_to_sync().empty()) << "content in the sidecar";
}

TEST_F(CommitJobTest, AMemberIsSyncedWhenSpaceIsGivenBackThere) {
  make_object(kFirst, 4);
  make_object(kSecond, 1);
  set_trim(2, 1);
  EXPECT_EQ(job_.members_to_sync(), std::vector<MemberIndex>{kFirst});
  EXPECT_TRUE(job_.sync_objects(kFirst).is_ok());
  EXPECT_EQ(job_.objects->allocated_end(kFirst), ObjectOffset(2 * kTestChunk));
  EXPECT_FALSE(job_.objects->is_touched(kFirst)) << "the shorter object is durable too";
  EXPECT_TRUE(job_.members_to_sync().empty());
}

TEST_F(CommitJobTest, AFailedSyncIsTheMembersOutcome) {
  make_object(kFirst, 1);
  job_.objects->touch(kFirst);
  environment_.sim().inject({.call = SimFault::Call::kSyncFile,
                             .effect = SimFault::Effect::kError,
                             .error = EIO,
                             .filesystem = {},
                             .role = SimRole::kObjects});
  EXPECT_EQ(job_.sync_objects(kFirst).code(), StatusCode::kIoError);
}

TEST_F(CommitJobTest, TheLastSyncToEndHasTheFirstFailure) {
  job_.pending.store(4);
  EXPECT_FALSE(job_.object_sync_ended(Status::ok()).has_value());
  EXPECT_FALSE(job_.object_sync_ended(Status::error(StatusCode::kIoError, "the first")).has_value());
  EXPECT_FALSE(job_.object_sync_ended(Status::error(StatusCode::kNoSpace, "the second")).has_value());
  const std::optional<Status> all = job_.object_sync_ended(Status::ok());
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->message(), "the first");
}

TEST_F(CommitJobTest, AllIsWellWhenAllAre) {
  job_.pending.store(2);
  EXPECT_FALSE(job_.object_sync_ended(Status::ok()).has_value());
  const std::optional<Status> all = job_.object_sync_ended(Status::ok());
  EXPECT_TRUE(all.has_value() && all->is_ok());
}

}  // namespace
}  // namespace fpfs::test
