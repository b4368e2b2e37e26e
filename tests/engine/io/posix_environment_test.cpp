#include "engine/io/posix_environment.h"

#include <atomic>
#include <set>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(PosixEnvironment, RandomNumbersDoNotRepeat) {
  PosixEnvironment environment(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(environment.random_u64()).second);
}

TEST(PosixEnvironment, TellsTheTimeOfDay) {
  PosixEnvironment environment(1);
  const time_t before = ::time(nullptr);
  const struct timespec now = environment.now();
  EXPECT_GE(now.tv_sec, before - 1);
  EXPECT_LE(now.tv_sec, before + 60);
}

TEST(PosixEnvironment, GivesQueuesAndThreads) {
  PosixEnvironment environment(2);
  Result<std::unique_ptr<IoQueue>> queue = environment.make_queue(MemberIndex(0), {.depth = 4});
  ASSERT_TRUE(queue.is_ok()) << queue.status().message();
  EXPECT_EQ(environment.make_queue(MemberIndex(0), {.depth = 0}).status().code(), StatusCode::kInvalidArgument);
  std::atomic<bool> ran{false};
  environment.executor().post([&] { ran = true; });
  environment.executor().stop();
  EXPECT_TRUE(ran.load());
  Result<Handle> root = environment.storage().open_directory("/");
  ASSERT_TRUE(root.is_ok());
  environment.storage().close(*root);
}

}  // namespace
}  // namespace fpfs
