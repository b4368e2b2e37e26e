// Syncs of the names' filesystem that meet. The kernel tells of a failed writeback once per open file
// (errseq_check_and_advance in syncfs(2)): to one of two that sync at the same time, and not to the other.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "engine/io/posix_environment.h"
#include "engine/store/store.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

struct Plan {
  std::atomic<bool> fails{false};
  std::atomic<int> synced{0};  // syncs that have ended well since
};

class ToldOnceStorage final : public PosixStorage {
 public:
  explicit ToldOnceStorage(Plan& plan) : plan_(plan) {}
  // The first one is told, and takes its time to return; whoever comes meanwhile is not.
  Status sync_filesystem(Handle handle) override {
    if (plan_.fails.exchange(false)) {
      for (int looks = 0; plan_.synced == 0 && looks < 50; ++looks)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return Status::from_errno(EIO, "syncfs");
    }
    const Status synced = PosixStorage::sync_filesystem(handle);
    ++plan_.synced;
    return synced;
  }

 private:
  Plan& plan_;
};

TEST(SyncRaceTest, AnErrorThatOneIsToldOfIsEverybodys) {
  Plan plan;
  const test::TemporaryDirectory place;
  PosixEnvironment environment(4, std::make_unique<ToldOnceStorage>(plan));
  const std::vector<std::string> directories{place / "a", place / "b"};
  ASSERT_TRUE(Array::format(environment, directories, {}).is_ok());
  StoreOptions options;
  options.array.buffered_members = true;
  auto store = Store::open(environment, directories, options);
  ASSERT_TRUE(store.is_ok()) << store.status().message();
  ASSERT_TRUE((*store)->sync_names().is_ok());
  plan.synced = 0;
  plan.fails = true;
  std::future<Status> told = std::async(std::launch::async, [&] { return (*store)->sync_names(); });
  while (plan.fails) std::this_thread::yield();
  EXPECT_FALSE((*store)->sync_names().is_ok()) << "what it relies on was lost";
  EXPECT_FALSE(told.get().is_ok());
  EXPECT_FALSE((*store)->sync_names().is_ok());
  EXPECT_FALSE((*store)->close().is_ok());
}

}  // namespace
}  // namespace fpfs
