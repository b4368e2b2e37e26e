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
#include <vector>

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
  bool syncs_own_names(Handle) override { return false; }  // as POSIX has it: a commit syncs the names, too

 private:
  Plan& plan_;
};

class SyncRaceTest : public testing::Test {
 protected:
  SyncRaceTest() {
    const std::vector<std::string> directories{place_ / "a", place_ / "b"};
    EXPECT_TRUE(Array::format(environment_, directories, {}).is_ok());
    StoreOptions options;
    options.array.buffered_members = true;
    auto store = Store::open(environment_, directories, options);
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
    EXPECT_TRUE(store_->sync_names().is_ok());
  }
  // `sync` begins while another one, which is told that a writeback failed, has not returned yet.
  template <typename Sync>
  void expect_told(Sync sync) {
    plan_.synced = 0;
    plan_.fails = true;
    std::future<Status> told = std::async(std::launch::async, [&] { return store_->sync_names(); });
    while (plan_.fails) std::this_thread::yield();
    EXPECT_FALSE(sync().is_ok()) << "what it relies on was lost";
    EXPECT_FALSE(told.get().is_ok());
    EXPECT_FALSE(sync().is_ok());
  }

  Plan plan_;
  const test::TemporaryDirectory place_;
  PosixEnvironment environment_{4, std::make_unique<ToldOnceStorage>(plan_)};
  std::unique_ptr<Store> store_;
};

TEST_F(SyncRaceTest, AnErrorThatOneIsToldOfIsEverybodys) {
  expect_told([&] { return store_->sync_names(); });
  EXPECT_FALSE(store_->close().is_ok());
}

TEST_F(SyncRaceTest, ACommitIsToldOfItToo) {
  Result<Store::Created> created = store_->create(store_->root(), "file", 0644);
  ASSERT_TRUE(created.is_ok()) << created.status().message();
  const std::shared_ptr<File> file = std::move(created->file);
  ASSERT_TRUE(store_->write_sync(*file, FileOffset(0), std::vector<std::byte>(100)).is_ok());
  expect_told([&] { return store_->commit_sync(*file); });
}

}  // namespace
}  // namespace fpfs
