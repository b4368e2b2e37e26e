// Who has a space, who waits for one, and what a member that hangs keeps.
#include "engine/file/member_spaces.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/support/held_tasks.h"

namespace fpfs {
namespace {

constexpr uint32_t kSize = 8 * kKiB;
constexpr MemberIndex kFirst(0), kSecond(1);

class MemberSpacesTest : public ::testing::Test {
 protected:
  struct Request : SpaceRequest {
    explicit Request(MemberIndex of) {
      member = of;
      run = [](SpaceRequest& request, const Status& status) { static_cast<Request&>(request).answer = status; };
    }
    bool runs() const { return answer && answer->is_ok(); }
    bool failed() const { return answer && !answer->is_ok(); }
    std::optional<Status> answer;
  };
  ~MemberSpacesTest() override { tasks_.run(); }

  static constexpr unsigned kSpaces = 2;
  test::HeldTasks tasks_, calls_;
  TaskCounter counter_{calls_, tasks_};
  std::unique_ptr<MemberSpaces> spaces_ =
      MemberSpaces::create(2, kSpaces, kSize, counter_, MemberSpaces::Tasks::kWork).value();
};

TEST_F(MemberSpacesTest, ASpaceIsTheRequestsUntilItIsReleased) {
  Request first(kFirst), second(kFirst);
  for (Request* request : {&first, &second}) spaces_->start(*request);
  EXPECT_FALSE(first.answer.has_value()) << "never inside start()";
  tasks_.run();
  ASSERT_TRUE(first.runs() && second.runs());
  ASSERT_TRUE(first.space != nullptr && second.space != nullptr);
  EXPECT_NE(first.space, second.space);
  EXPECT_EQ(spaces_->space_size(), kSize);
  for (Request* request : {&first, &second}) {
    spaces_->release(*request);
    EXPECT_EQ(request->space, nullptr);
    spaces_->release(*request);  // nothing to release
  }
}

TEST_F(MemberSpacesTest, WhoFindsNoSpaceWaitsInOrderAndOnlyForItsMember) {
  Request first(kFirst), second(kFirst), third(kFirst), fourth(kFirst), other(kSecond);
  for (Request* request : {&first, &second, &third, &fourth, &other}) spaces_->start(*request);
  tasks_.run();
  EXPECT_TRUE(first.runs() && second.runs() && other.runs());
  EXPECT_FALSE(third.answer || fourth.answer);
  spaces_->release(first);
  EXPECT_FALSE(third.answer.has_value()) << "never inside release()";
  tasks_.run();
  EXPECT_TRUE(third.runs());
  EXPECT_FALSE(fourth.answer.has_value());
  for (Request* request : {&second, &third, &other}) spaces_->release(*request);
  tasks_.run();
  EXPECT_TRUE(fourth.runs());
  spaces_->release(fourth);
}

TEST_F(MemberSpacesTest, WhoNeedsNoSpaceWaitsForNobody) {
  Request first(kFirst), second(kFirst), without(kFirst);
  for (Request* request : {&first, &second}) spaces_->start(*request);
  spaces_->start_without_space(without);
  EXPECT_FALSE(without.answer.has_value()) << "never inside start_without_space()";
  tasks_.run();
  EXPECT_TRUE(without.runs());
  EXPECT_EQ(without.space, nullptr);
  for (Request* request : {&first, &second, &without}) spaces_->release(*request);
}

TEST_F(MemberSpacesTest, AMemberThatHangsFailsWhoWaitsAndKeepsItsSpacesOnly) {
  Request first(kFirst), second(kFirst), third(kFirst), other(kSecond);
  for (Request* request : {&first, &second, &third}) spaces_->start(*request);
  tasks_.run();
  spaces_->fail_waiting(kFirst, Status::error(StatusCode::kNoSpace, "hangs"));
  ASSERT_TRUE(third.failed());
  EXPECT_EQ(third.answer->code(), StatusCode::kNoSpace);
  EXPECT_EQ(third.space, nullptr);
  spaces_->start(other);
  tasks_.run();
  EXPECT_TRUE(other.runs());
  for (Request* request : {&first, &second, &other}) spaces_->release(*request);
}

TEST_F(MemberSpacesTest, WhatDoesNotRunWhenItStopsFails) {
  Request done(kFirst), posted(kFirst), without(kFirst), waiting(kFirst), late(kFirst);
  spaces_->start(done);
  tasks_.run();
  spaces_->start(posted);
  spaces_->start_without_space(without);
  spaces_->start(waiting);
  spaces_->stop();
  EXPECT_TRUE(waiting.failed());
  spaces_->start(late);
  EXPECT_FALSE(posted.answer || without.answer || late.answer);
  tasks_.run();
  for (const Request* request : {&posted, &without, &late}) {
    EXPECT_TRUE(request->failed());
    EXPECT_EQ(request->space, nullptr);
  }
  EXPECT_TRUE(done.runs());
  spaces_->release(done);
}

TEST_F(MemberSpacesTest, CallsThatMayWaitKeepNoWorker) {
  const auto calling = MemberSpaces::create(1, 1, kSize, counter_, MemberSpaces::Tasks::kCalls).value();
  Request request(kFirst);
  calling->start(request);
  tasks_.run();
  EXPECT_FALSE(request.answer.has_value());
  calls_.run();
  EXPECT_TRUE(request.runs());
  calling->release(request);
}

}  // namespace
}  // namespace fpfs
