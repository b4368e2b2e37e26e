#include "engine/tier/tier_marker.h"

#include <fstream>

#include <gtest/gtest.h>

#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"
#include "engine/tier/file_store.h"
#include "engine/tier/tier_fence.h"
#include "tests/engine/tier/blocking_store.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

const std::string kArrayA = "aaaaaaaa-0000-4000-8000-000000000001";
const std::string kArrayB = "bbbbbbbb-0000-4000-8000-000000000002";
const std::string kStoreX = "10000000-0000-4000-8000-00000000000a";
const std::string kStoreY = "20000000-0000-4000-8000-00000000000b";

// A filesystem that can go away: whatever was opened on it before fails then.
class GoingStorage final : public PosixStorage {
 public:
  Result<Handle> open_directory(const std::string& path) override {
    Result<Handle> handle = PosixStorage::open_directory(path);
    const std::lock_guard lock(mutex_);
    if (handle.is_ok()) alive_.insert(*handle);
    return handle;
  }
  Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode) override {
    {
      const std::lock_guard lock(mutex_);
      if (gone_.count(directory) != 0) return Status::from_errno(ENOTCONN, "open " + name);
    }
    return PosixStorage::open_at(directory, name, flags, mode);
  }
  void close(Handle handle) override {
    {
      const std::lock_guard lock(mutex_);
      alive_.erase(handle);
      gone_.erase(handle);
    }
    PosixStorage::close(handle);
  }
  void go() {
    const std::lock_guard lock(mutex_);
    gone_.merge(alive_);
  }

 private:
  std::mutex mutex_;
  std::set<Handle> alive_, gone_;
};

class TierMarkerTest : public ::testing::Test {
 protected:
  TierMarkerTest() : store_(open()), calls_(*store_) {}
  std::unique_ptr<FileStore> open() {
    return FileStore::open(storage_, executor_, directory_.path(), [this] { return ++random_; }).value();
  }
  Result<TierIdentity> init(const std::string& array, const std::string& new_store_id, bool share = false,
                            bool has_other_files = false) {
    return test::wait_for<Result<TierIdentity>>([&](auto done) {
      init_tier(*store_, {array, new_store_id, "node\xff", "/mnt/ckpt", 1795563373, share, has_other_files}, done);
    });
  }
  Result<TierIdentity> check(const std::string& array, const std::string& store_id) {
    return test::wait_for<Result<TierIdentity>>([&](auto done) { check_tier(*store_, array, store_id, done); });
  }
  Status leave(const std::string& array) {
    return test::wait_for<Status>([&](auto done) { leave_tier(*store_, array, done); });
  }
  static void expect_line(const Status& status, StatusCode code, const std::string& words) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("tier: "), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }

  test::TemporaryDirectory directory_{test::quick_place()};
  GoingStorage storage_;
  ThreadExecutor executor_{2};
  std::atomic<uint64_t> random_ = 0;
  std::unique_ptr<FileStore> store_;
  test::BlockingStore calls_;
};

TEST_F(TierMarkerTest, ArraysOfOneStoreAreToldApart) {
  const auto described = [this](const std::string& array) {
    return test::wait_for<Result<std::string>>([&](auto done) { describe_tier_array(*store_, array, done); }).value();
  };
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  EXPECT_EQ(described(kArrayA), kArrayA + " (on node\xef\xbf\xbd at /mnt/ckpt, since 2026-11-24 23:36 UTC)");
  ASSERT_TRUE(test::wait_for<Status>([&](auto done) {
                write_fence(*store_, kArrayA, TierFence{"0123456789abcdef"}, done);
              }).is_ok());
  EXPECT_NE(described(kArrayA).find(", since 2026-11-24 23:36, last there 20"), std::string::npos)
      << described(kArrayA);
  // Of a store that says less: what there is.
  EXPECT_EQ(described(kArrayB), kArrayB);
  for (const char* record : {"damaged", "[]", R"({"host":7,"since_s":"x"})"}) {
    write(".fastpersistfs-store/arrays/" + kArrayB, record);
    EXPECT_EQ(described(kArrayB), kArrayB) << record;
  }
  write(".fastpersistfs-store/arrays/" + kArrayB, R"({"format":1,"host":"a\nb","since_s":99999999999999999})");
  EXPECT_EQ(described(kArrayB), kArrayB + " (on a?b)");
}

TEST_F(TierMarkerTest, AStoreThatWasMadeIsKnownAgain) {
  expect_line(check(kArrayA, "").status(), StatusCode::kNotFound, "has to be made one first");
  const TierIdentity made = init(kArrayA, kStoreX).value();
  EXPECT_EQ(made.store_id, kStoreX);
  EXPECT_EQ(made.arrays, std::vector<std::string>{kArrayA});
  EXPECT_EQ(init(kArrayA, kStoreY).value().store_id, kStoreX) << "once is enough";
  EXPECT_EQ(check(kArrayA, kStoreX).value().store_id, kStoreX);
  EXPECT_EQ(check(kArrayA, "").value().store_id, kStoreX);
  EXPECT_EQ(parse_tier_identity(calls_.get(tier_identity_key()).value()).value(), kStoreX);
}

TEST_F(TierMarkerTest, AnEmptyMountPointIsNotTheStore) {
  expect_line(check(kArrayA, kStoreX).status(), StatusCode::kWrongStore, "is the filesystem mounted");
  EXPECT_TRUE(calls_.names().value().empty()) << "a check writes nothing";
}

TEST_F(TierMarkerTest, AnotherStoreIsNotTheStore) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  expect_line(check(kArrayA, kStoreY).status(), StatusCode::kWrongStore, "is store " + kStoreX);
}

TEST_F(TierMarkerTest, AStoreInUseIsRefusedAndMayBeShared) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  expect_line(init(kArrayB, kStoreY).status(), StatusCode::kExists, "in use by array " + kArrayA);
  expect_line(check(kArrayB, "").status(), StatusCode::kWrongStore, "in use by array " + kArrayA);
  const TierIdentity shared = init(kArrayB, kStoreY, true).value();
  EXPECT_EQ(shared.store_id, kStoreX);
  EXPECT_EQ(shared.arrays, (std::vector<std::string>{kArrayA, kArrayB}));
  EXPECT_TRUE(check(kArrayB, kStoreX).is_ok());
  EXPECT_TRUE(leave(kArrayA).is_ok());
  EXPECT_TRUE(leave(kArrayA).is_ok());
  expect_line(check(kArrayA, kStoreX).status(), StatusCode::kWrongStore, "in use by array " + kArrayB);
  EXPECT_TRUE(leave(kArrayB).is_ok());
  expect_line(check(kArrayA, kStoreX).status(), StatusCode::kWrongStore, "by no array any more");
  EXPECT_EQ(init(kArrayA, kStoreY).value().store_id, kStoreX) << "what others have left can be taken over";
}

TEST_F(TierMarkerTest, APlaceWithOtherFilesIsRefused) {
  ASSERT_TRUE(calls_.put("thesis/chapter1", "text").is_ok());
  expect_line(init(kArrayA, kStoreX).status(), StatusCode::kExists, "'thesis/chapter1' for one");
  EXPECT_EQ(calls_.names().value(), std::vector<std::string>{"thesis/chapter1"});
  EXPECT_TRUE(init(kArrayA, kStoreX, false, true).is_ok());
}

TEST_F(TierMarkerTest, ADamagedIdentityIsSaid) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  for (const std::string& text : {std::string(""), std::string("{"), std::string("[]"), std::string("{\"format\":1}"),
                                  std::string("{\"format\":\"1\",\"store\":\"x\"}"), std::string(100, '\0')}) {
    write(tier_identity_key(), text);
    for (const Status& status : {check(kArrayA, kStoreX).status(), init(kArrayB, kStoreY, true).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.message();
      EXPECT_NE(status.message().find("identity"), std::string::npos) << status.message();
    }
  }
  write(tier_identity_key(), "{\"format\":2,\"store\":\"" + kStoreX + "\"}");
  EXPECT_EQ(check(kArrayA, kStoreX).status().code(), StatusCode::kUnsupported);
}

TEST_F(TierMarkerTest, IdsAreUuids) {
  for (const std::string id : {"", "x", "../../../etc/passwd", "AAAAAAAA-0000-4000-8000-000000000001"}) {
    EXPECT_EQ(init(id, kStoreX).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(init(kArrayA, id).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(check(id, kStoreX).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(leave(id).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(calls_.names().value().empty());
}

TEST_F(TierMarkerTest, AtMostOneOfTwoAtTheSameMomentSucceeds) {
  for (int round = 0; round < 50; ++round) {
    std::promise<Result<TierIdentity>> answers[2];
    init_tier(*store_, {kArrayA, kStoreX, "a", ""},
              [&](Result<TierIdentity> made) { answers[0].set_value(std::move(made)); });
    init_tier(*store_, {kArrayB, kStoreY, "b", ""},
              [&](Result<TierIdentity> made) { answers[1].set_value(std::move(made)); });
    const Result<TierIdentity> a = answers[0].get_future().get(), b = answers[1].get_future().get();
    ASSERT_FALSE(a.is_ok() && b.is_ok());
    for (const Result<TierIdentity>* one : {&a, &b})
      EXPECT_TRUE(one->is_ok() || one->status().code() == StatusCode::kExists) << one->status().message();
    ASSERT_TRUE(leave(kArrayA).is_ok() && leave(kArrayB).is_ok() && calls_.remove(tier_identity_key()).is_ok());
  }
}

// --- a FileStore whose filesystem goes away -------------------------------------------------------------------------

TEST_F(TierMarkerTest, AFilesystemThatIsMountedAgainIsUsedAgain) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  ASSERT_TRUE(check(kArrayA, kStoreX).is_ok());
  ASSERT_TRUE(calls_.put("a", "content").is_ok());
  for (int round = 0; round < 2; ++round) {
    storage_.go();
    EXPECT_EQ(calls_.get("a").value(), "content");
    EXPECT_TRUE(calls_.put("b", "content").is_ok());
  }
}

TEST_F(TierMarkerTest, AnEmptyMountPointIsUnreachableAndStaysEmpty) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  ASSERT_TRUE(check(kArrayA, kStoreX).is_ok());
  const std::string marker = directory_ / ObjectStore::kMarkerPrefix, aside = directory_.path() + "-aside";
  std::filesystem::remove_all(directory_ / ".fastpersistfs-unfinished-objects");
  std::filesystem::rename(marker, aside);
  storage_.go();
  const Status put = calls_.put("a", "content").status();
  EXPECT_EQ(put.code(), StatusCode::kUnreachable) << put.message();
  EXPECT_NE(put.message().find("is it mounted?"), std::string::npos) << put.message();
  EXPECT_EQ(calls_.begin("a").status().code(), StatusCode::kUnreachable);
  expect_line(check(kArrayA, kStoreX).status(), StatusCode::kWrongStore, "is it mounted?");
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  std::filesystem::rename(aside, marker);
  EXPECT_TRUE(calls_.put("a", "content").is_ok()) << "it is mounted";
}

TEST_F(TierMarkerTest, AFilesystemThatIsMountedLaterIsFound) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  const std::string mounted = directory_.path() + "-mounted";
  std::filesystem::rename(directory_.path(), mounted);
  std::filesystem::create_directory(directory_.path());
  store_ = open();
  expect_line(check(kArrayA, kStoreX).status(), StatusCode::kWrongStore, "is the filesystem mounted");
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  std::filesystem::remove(directory_.path());
  expect_line(check(kArrayA, kStoreX).status(), StatusCode::kWrongStore, "is it mounted?");
  std::filesystem::rename(mounted, directory_.path());
  EXPECT_TRUE(check(kArrayA, kStoreX).is_ok());
  EXPECT_TRUE(test::BlockingStore(*store_).put("a", "content").is_ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "a"));
}

TEST_F(TierMarkerTest, WithoutAnIdentityNothingIsOpenedAgain) {
  ASSERT_TRUE(calls_.put("a", "content").is_ok());
  ASSERT_TRUE(calls_.check().is_ok());
  storage_.go();
  EXPECT_EQ(calls_.get("a").status().code(), StatusCode::kUnreachable);
}

TEST_F(TierMarkerTest, AnIdentityThatChangesIsSaid) {
  ASSERT_TRUE(init(kArrayA, kStoreX).is_ok());
  ASSERT_TRUE(calls_.check().is_ok());
  write(tier_identity_key(), "{\"format\":1,\"store\":\"" + kStoreY + "\"}");
  expect_line(calls_.check(), StatusCode::kWrongStore, "was store " + kStoreX + ", and is " + kStoreY);
  std::filesystem::remove(directory_ / tier_identity_key());
  expect_line(calls_.check(), StatusCode::kWrongStore, "is none now");
}

}  // namespace
}  // namespace fpfs
