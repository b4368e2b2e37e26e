// The life of a mounted array's store, with real threads: set, changed and left while files are written, and a store that
// hangs at the end.
#include "engine/tier/array_tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "engine/io/posix_environment.h"
#include "tests/engine/store/small_store.h"
#include "tests/support/hanging_environment.h"
#include "tests/support/temporary_directory.h"

namespace fpfs::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::byte> content_of(uint64_t salt) {
  std::vector<std::byte> content(3 * kSmallChunk + salt * 77);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>((i * 31 + salt * 17) >> (i % 7));
  return content;
}

// The outcome of a call, which may come later and on any thread.
class Outcome {
 public:
  ArrayTier::Done done() {
    return [this](const Status& status) {
      const MutexLock lock(mutex_);
      status_ = status;
      arrived_.notify_all();
    };
  }
  Status wait() {
    MutexLock lock(mutex_);
    while (!status_.has_value()) arrived_.wait(mutex_);
    return *status_;
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::optional<Status> status_ FPFS_GUARDED_BY(mutex_);
};

class ArrayTierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    format_small_array(environment_, members());
    for (const char* const name : {"a", "b"}) std::filesystem::create_directories(directory_ / name);
    store_ = open_small_store(environment_, members(), false);
    ASSERT_NE(store_, nullptr);
    make();
  }
  void TearDown() override {
    hangs_.answer_again();
    EXPECT_TRUE(tier_->stop(seconds(60)));
    const Status closed = store_->close();
    EXPECT_TRUE(closed.is_ok()) << closed.message();
    store_ = nullptr;
    tier_ = nullptr;
  }
  std::vector<std::string> members() {
    std::vector<std::string> paths;
    for (const char* const name : {"m0", "m1"}) {
      std::filesystem::create_directories(directory_ / name);
      paths.push_back(directory_ / name);
    }
    return paths;
  }
  void make(const std::string& url = "") {
    TierOptions options;
    options.url = url;
    options.fence_interval = fence_interval_;
    options.lease = lease_;
    options.copy.memory = 16 * kSmallChunk;
    options.copy.part_size = 2 * kSmallChunk;
    options.copy.connections = 4;
    tier_ = std::make_unique<ArrayTier>(environment_, *store_, outside_, options);
  }
  Status set(const std::string& name, bool has_other_files = false) {
    Outcome outcome;
    TierSet set;
    set.url = "file://" + (directory_ / name);
    set.has_other_files = has_other_files;
    tier_->set(set, outcome.done());
    return outcome.wait();
  }
  Status leave() {
    Outcome outcome;
    tier_->leave(outcome.done());
    return outcome.wait();
  }
  Status wait_for_all() {
    Outcome outcome;
    tier_->wait_for_all(outcome.done());
    return outcome.wait();
  }
  Status save(const std::string& name, uint64_t salt) {
    FPFS_ASSIGN_OR_RETURN(Store::Created created, store_->create(store_->root(), name, 0644));
    FPFS_RETURN_IF_ERROR(store_->write_sync(*created.file, FileOffset(0), content_of(salt)));
    FPFS_RETURN_IF_ERROR(store_->commit_sync(*created.file));
    return Status::ok();
  }
  TierFileState state_of(const std::string& name) {
    const Store::Node node = store_->lookup(store_->root(), name).value();
    const auto file = store_->open_file(node.handle.get(), false).value();
    return tier_->state_of(node.handle.get(), *file, node.attributes);
  }
  bool is_copied_to(const std::string& store, const std::string& name, uint64_t salt) {
    std::ifstream file(directory_ / (store + "/" + name), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    return std::ranges::equal(bytes, content_of(salt));
  }

  // Ends, and is opened again; `between` with nothing open.
  void reopen(const std::function<void()>& between) {
    ASSERT_TRUE(tier_->stop(seconds(60)));
    ASSERT_TRUE(store_->close().is_ok());
    store_ = nullptr;
    tier_ = nullptr;
    between();
    store_ = open_small_store(environment_, members(), false);
    ASSERT_NE(store_, nullptr);
    make();
    ASSERT_TRUE(tier_->open().is_ok());
  }
  // All members, as a backup has them.
  void copy_members(const std::string& from, const std::string& to) {
    for (const char* const name : {"m0", "m1"}) {
      std::filesystem::remove_all(directory_ / (to + name));
      std::filesystem::copy(directory_ / (from + name), directory_ / (to + name),
                            std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    }
  }
  std::string tier_file() {
    std::ifstream file(directory_ / "m0/tier");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // Why it copies nothing, once that is known.
  std::string refusal() {
    for (unsigned look = 0; look < 3000; ++look) {
      const TierStatus now = tier_->status();
      if (!now.copies.last_error.empty()) return now.state == TierStatus::State::kAway ? now.copies.last_error : "";
      std::this_thread::sleep_for(milliseconds(10));
    }
    return "";
  }

  milliseconds fence_interval_{60'000}, lease_{10'000};
  TemporaryDirectory directory_{quick_place()};
  PosixEnvironment environment_;
  Hangs hangs_;
  HangingStorage outside_{hangs_};
  std::unique_ptr<Store> store_;
  std::unique_ptr<ArrayTier> tier_;
};

TEST_F(ArrayTierTest, IsSetChangedAndLeftWhileFilesAreWritten) {
  ASSERT_TRUE(tier_->open().is_ok());
  EXPECT_EQ(tier_->status().state, TierStatus::State::kNone);
  constexpr uint64_t kFiles = 20;
  std::atomic<bool> is_over{false};
  std::thread looking([&] {
    while (!is_over) static_cast<void>(tier_->status()), static_cast<void>(tier_->left_over());
  });
  std::vector<std::thread> writers;
  for (uint64_t writer = 0; writer < 2; ++writer)
    writers.emplace_back([this, writer] {
      for (uint64_t i = writer; i < kFiles; i += 2) EXPECT_TRUE(save("f" + std::to_string(i), i).is_ok());
    });
  EXPECT_TRUE(set("a").is_ok());
  EXPECT_TRUE(set("b").is_ok());
  EXPECT_TRUE(leave().is_ok());
  EXPECT_EQ(leave().code(), StatusCode::kNotFound);
  EXPECT_EQ(wait_for_all().code(), StatusCode::kNotFound);
  EXPECT_TRUE(set("b").is_ok());
  for (std::thread& writer : writers) writer.join();
  const Status all = wait_for_all();
  EXPECT_TRUE(all.is_ok()) << all.message();
  is_over = true;
  looking.join();
  for (uint64_t i = 0; i < kFiles; ++i) {
    const std::string name = "f" + std::to_string(i);
    EXPECT_TRUE(is_copied_to("b", name, i)) << name;
    EXPECT_EQ(state_of(name), TierFileState::kCopied) << name;
  }
  EXPECT_EQ(tier_->left_over(), "");
}

TEST_F(ArrayTierTest, AStoreThatIsRequiredMustBeTheRightOne) {
  make("file://" + (directory_ / "a"));
  const Status nobodys = tier_->open();
  EXPECT_EQ(nobodys.code(), StatusCode::kNotFound);
  EXPECT_NE(nobodys.message().find("fpfs tier set"), std::string::npos) << nobodys.message();
  EXPECT_TRUE(tier_->stop(seconds(60)));
  make("file://" + (directory_ / "nowhere"));
  EXPECT_EQ(tier_->open().code(), StatusCode::kWrongStore);
  EXPECT_TRUE(tier_->stop(seconds(60)));
  make();
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  EXPECT_TRUE(tier_->stop(seconds(60)));
  make("file://" + (directory_ / "a"));
  EXPECT_TRUE(tier_->open().is_ok());
}

TEST_F(ArrayTierTest, AnArrayThatWasPutBackFromBeforeCopiesNothing) {
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  ASSERT_TRUE(save("old", 1).is_ok());
  ASSERT_TRUE(wait_for_all().is_ok());
  reopen([this] { copy_members("", "backup-"); });
  ASSERT_TRUE(save("new", 2).is_ok());
  ASSERT_TRUE(wait_for_all().is_ok());
  reopen([] {});  // any number of times
  ASSERT_TRUE(wait_for_all().is_ok());
  reopen([this] { copy_members("backup-", ""); });
  const std::string why = refusal();
  EXPECT_NE(why.find("newer state of this array"), std::string::npos) << why;
  EXPECT_TRUE(is_copied_to("a", "new", 2)) << "what the array does not have is not removed";
  const Status refused = set("a");
  EXPECT_EQ(refused.code(), StatusCode::kWrongStore);
  EXPECT_NE(refused.message().find("--existing"), std::string::npos) << refused.message();
  EXPECT_TRUE(is_copied_to("a", "new", 2));
  // Somebody has looked.
  ASSERT_TRUE(set("a", true).is_ok());
  ASSERT_TRUE(wait_for_all().is_ok());
  EXPECT_TRUE(is_copied_to("a", "old", 1));
  EXPECT_FALSE(is_copied_to("a", "new", 2));
  reopen([] {});
  EXPECT_TRUE(wait_for_all().is_ok());
}

TEST_F(ArrayTierTest, SoDoesOneFromTheMiddleOfAMount) {
  fence_interval_ = milliseconds(1);
  make();
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  ASSERT_TRUE(save("f0", 0).is_ok());
  ASSERT_TRUE(wait_for_all().is_ok());
  copy_members("", "backup-");
  const std::string before = tier_file();
  for (uint64_t file = 1; tier_file() == before && file < 100; ++file) {
    ASSERT_TRUE(save("f" + std::to_string(file), file).is_ok());
    ASSERT_TRUE(wait_for_all().is_ok());
    std::this_thread::sleep_for(milliseconds(100));
  }
  ASSERT_NE(tier_file(), before);
  reopen([this] { copy_members("backup-", ""); });
  EXPECT_NE(refusal().find("newer state of this array"), std::string::npos);
  EXPECT_TRUE(is_copied_to("a", "f1", 1));
}

// Another machine has restored what this one copied, which still runs.
TEST_F(ArrayTierTest, WhoseCopiesWereTakenOverChangesNothingMore) {
  lease_ = milliseconds(50);
  make();
  ASSERT_TRUE(tier_->open().is_ok());
  const std::filesystem::path file = directory_ / ("a/.fastpersistfs-store/fences/" + to_string(store_->array().id()));
  const std::string other = "00000000-0000-4000-8000-000000000000";
  for (const bool is_restored : {false, true}) {  // else: being so
    const std::string kept = is_restored ? "f1" : "f0", made = is_restored ? "g1" : "g0";
    ASSERT_TRUE(set("a", true).is_ok());  // somebody says that they are its own, all the same
    ASSERT_TRUE(save(kept, 1).is_ok());
    ASSERT_TRUE(wait_for_all().is_ok());
    ASSERT_TRUE(std::filesystem::exists(file));
    if (is_restored) {
      std::filesystem::remove(directory_ / ("a/.fastpersistfs-store/arrays/" + to_string(store_->array().id())));
      std::filesystem::remove(file);
    } else {
      std::ofstream(file) << R"({"format":1,"token":"foreign","by":")" + other + R"("})";
    }
    std::this_thread::sleep_for(lease_);
    ASSERT_TRUE(store_->unlink(store_->root(), kept).is_ok());
    ASSERT_TRUE(save(made, 2).is_ok());
    const std::string why = is_restored ? "is used by no array any more" : "become array " + other + "'s";
    for (unsigned looks = 0; refusal().find(why) == std::string::npos && looks < 300; ++looks)
      std::this_thread::sleep_for(milliseconds(10));
    EXPECT_NE(refusal().find(why), std::string::npos) << refusal();
    EXPECT_TRUE(is_copied_to("a", kept, 1));
    EXPECT_FALSE(std::filesystem::exists(directory_ / ("a/" + made)));
  }
}

// Who waits is told why, and what waits is not said to be nothing.
TEST_F(ArrayTierTest, WhoWaitsForCopiesThatWereTakenOverIsTold) {
  lease_ = milliseconds(50);
  make();
  ASSERT_TRUE(tier_->open().is_ok());
  const std::filesystem::path file = directory_ / ("a/.fastpersistfs-store/fences/" + to_string(store_->array().id()));
  bool is_asked_in_time = false;
  for (unsigned i = 0; i < 10 && !is_asked_in_time; ++i) {
    ASSERT_TRUE(set("a", true).is_ok());
    ASSERT_TRUE(wait_for_all().is_ok());
    // A token of its own each time: what stood there when somebody said that the copies are its own is the array's, too.
    std::ofstream(file) << R"({"format":1,"token":"foreign)" << i
                        << R"(","by":"00000000-0000-4000-8000-000000000000"})";
    std::this_thread::sleep_for(lease_);
    ASSERT_TRUE(save("f" + std::to_string(i), 1).is_ok());
    is_asked_in_time = tier_->status().state != TierStatus::State::kAway;
    if (!is_asked_in_time) continue;
    const Status told = wait_for_all();
    EXPECT_EQ(told.code(), StatusCode::kWrongStore);
    EXPECT_NE(told.message().find("have this array copy to another directory"), std::string::npos) << told.message();
    EXPECT_FALSE(tier_->status().is_waiting_known);
  }
  EXPECT_TRUE(is_asked_in_time);
}

TEST_F(ArrayTierTest, WhatWaitsForAStoreThatIsNotThereIsNotSaidToBeNothing) {
  ASSERT_TRUE(tier_->open().is_ok());
  EXPECT_TRUE(tier_->status().is_waiting_known) << "there is no store";
  ASSERT_TRUE(set("a").is_ok());
  reopen([this] { std::filesystem::rename(directory_ / "a", directory_ / "elsewhere"); });
  ASSERT_NE(refusal(), "");
  ASSERT_TRUE(save("f", 1).is_ok());
  EXPECT_FALSE(tier_->status().is_waiting_known);
  for (unsigned looks = 0; tier_->status().lag_seconds == 0 && looks < 300; ++looks)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_GT(tier_->status().lag_seconds, 0u);
  std::filesystem::rename(directory_ / "elsewhere", directory_ / "a");
  ASSERT_TRUE(wait_for_all().is_ok());
  EXPECT_TRUE(tier_->status().is_waiting_known);
  EXPECT_EQ(tier_->status().lag_seconds, 0u);
}

TEST_F(ArrayTierTest, AnEndIsToldToWhoRestores) {
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  const std::filesystem::path file = directory_ / ("a/.fastpersistfs-store/fences/" + to_string(store_->array().id()));
  const auto text = [&file] {
    std::ifstream stream(file);
    return std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  };
  EXPECT_EQ(text().find("ended"), std::string::npos) << text();
  reopen([&] { EXPECT_NE(text().find("\"ended\":true"), std::string::npos) << text(); });
  ASSERT_TRUE(wait_for_all().is_ok());
  EXPECT_EQ(text().find("ended"), std::string::npos) << text();
}

// Who takes the copies over has written his fence, and this array has not looked since.
TEST_F(ArrayTierTest, AnEndLeavesTheFenceOfWhoTookTheCopies) {
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  ASSERT_TRUE(save("f", 1).is_ok());
  ASSERT_TRUE(wait_for_all().is_ok());
  const std::filesystem::path file = directory_ / ("a/.fastpersistfs-store/fences/" + to_string(store_->array().id()));
  const std::string text = R"({"format":1,"token":"foreign","by":"00000000-0000-4000-8000-000000000000"})";
  std::ofstream(file) << text;
  reopen([&] {
    std::ifstream stream(file);
    EXPECT_EQ(text, (std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()}));
  });
}

// Whatever of the two writes came last before the crash, the array knows what the store has.
TEST_F(ArrayTierTest, ACrashWhileTheFenceIsRaisedLocksNobodyOut) {
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  std::string fence;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "a/.fastpersistfs-store/fences"))
    fence = entry.path();
  ASSERT_NE(fence, "");
  for (unsigned turn = 0; turn < 20; ++turn) {
    // The array has the next token, and the store has not.
    reopen([&] {
      std::filesystem::copy_file(fence, directory_ / "kept", std::filesystem::copy_options::overwrite_existing);
    });
    ASSERT_TRUE(wait_for_all().is_ok()) << turn;
    reopen([&] {
      std::filesystem::copy_file(directory_ / "kept", fence, std::filesystem::copy_options::overwrite_existing);
    });
    ASSERT_TRUE(wait_for_all().is_ok()) << turn;
  }
  // Nor does one that was removed or damaged, once somebody says so.
  reopen([&] { std::filesystem::remove(fence); });
  ASSERT_TRUE(wait_for_all().is_ok());
  reopen([&] { std::ofstream(fence) << "{"; });
  EXPECT_NE(refusal().find("damaged"), std::string::npos);
  ASSERT_TRUE(set("a").is_ok());
  ASSERT_TRUE(wait_for_all().is_ok());
}

TEST_F(ArrayTierTest, AFilesystemThatHangsHoldsNobodyUpForLong) {
  ASSERT_TRUE(tier_->open().is_ok());
  ASSERT_TRUE(set("a").is_ok());
  hangs_.hang(directory_ / "a");
  ASSERT_TRUE(save("f", 1).is_ok());
  while (hangs_.caught() == 0) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(save("g", 2).is_ok());  // nothing local waits
  EXPECT_EQ(tier_->status().state, TierStatus::State::kCopying);
  EXPECT_EQ(state_of("f"), TierFileState::kCopying);
  EXPECT_NE(tier_->left_over().find("2 files"), std::string::npos) << tier_->left_over();
  Outcome waits;
  tier_->wait_for_all(waits.done());
  EXPECT_FALSE(tier_->stop(milliseconds(300)));
  EXPECT_EQ(waits.wait().code(), StatusCode::kCancelled);
  Outcome late;
  tier_->set({}, late.done());
  EXPECT_EQ(late.wait().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace fpfs::test
