// Who hangs, who waits for it, and who is told.
#include "engine/io/stall_watch.h"
#include "engine/base/clock.h"

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/watched_storage.h"
#include "tests/support/hanging_environment.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;

template <typename Condition>
bool becomes_true(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

TEST(StallWatch, ACallThatTakesTooLongStallsItsDomainUntilItEnds) {
  StallWatch watch;
  watch.set_name(StallDomain(3), "member 3 (/x)");
  watch.start(milliseconds(50));
  std::atomic<int> told{0};
  const auto listener = watch.add_listener([&](StallDomain domain) {
    EXPECT_EQ(domain, StallDomain(3));
    ++told;
  });
  {
    const StallWatch::Call call(watch, StallDomain(3));
    EXPECT_TRUE(watch.check(StallDomain(3)).is_ok());
    ASSERT_TRUE(becomes_true([&] { return watch.is_stalled(StallDomain(3)); }));
    EXPECT_TRUE(watch.is_any_stalled());
    EXPECT_FALSE(watch.is_stalled(StallDomain(2)));
    EXPECT_EQ(watch.check(StallDomain(3)).code(), StatusCode::kIoError);
    EXPECT_NE(watch.check(StallDomain(3)).message().find("member 3 (/x) has not answered for 0.05 s"),
              std::string::npos)
        << watch.check(StallDomain(3)).message();
    ASSERT_TRUE(becomes_true([&] { return told >= 3; })) << "again and again";
  }
  ASSERT_TRUE(becomes_true([&] { return !watch.is_stalled(StallDomain(3)); }));
  EXPECT_TRUE(watch.check(StallDomain(3)).is_ok());
  EXPECT_TRUE(becomes_true([&] { return !watch.is_any_stalled(); })) << "known a moment later";
}

TEST(StallWatch, QuickCallsAreNobodysBusiness) {
  StallWatch watch;
  watch.start(milliseconds(600));
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  callers.reserve(4);
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      while (!stop) {
        { const StallWatch::Call call(watch, StallDomain(1)); }
        // Whoever only spins is put aside by the kernel in the middle of a call, on a busy machine for long.
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  for (int i = 0; i < 400; ++i) {
    EXPECT_FALSE(watch.is_any_stalled());
    std::this_thread::sleep_for(milliseconds(2));
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

// More on one thread than have a place in its line.
TEST(StallWatch, EachOfManyCallsIsSeen) {
  StallWatch watch;
  watch.start(milliseconds(50));
  std::vector<std::unique_ptr<StallWatch::Call>> calls;
  for (uint16_t member = 0; member < 12; ++member)
    calls.push_back(std::make_unique<StallWatch::Call>(watch, StallDomain(member)));
  for (uint16_t member = 0; member < 12; ++member)
    EXPECT_TRUE(becomes_true([&] { return watch.is_stalled(StallDomain(member)); })) << member;
  EXPECT_FALSE(watch.is_stalled(StallDomain(12)));
  for (uint16_t member = 0; member < 12; member += 2) calls[member].reset();
  for (uint16_t member = 0; member < 12; ++member)
    EXPECT_TRUE(becomes_true([&] { return watch.is_stalled(StallDomain(member)) == (member % 2 == 1); })) << member;
  calls.clear();
  EXPECT_TRUE(becomes_true([&] { return !watch.is_any_stalled(); }));
}

TEST(StallWatch, APausedCallWaitsForNobody) {
  StallWatch watch;
  watch.start(milliseconds(30));
  StallWatch::Call call(watch, StallDomain(1));
  call.pause();
  std::this_thread::sleep_for(milliseconds(90));
  EXPECT_FALSE(watch.is_stalled(StallDomain(1)));
  call.resume();
  EXPECT_TRUE(becomes_true([&] { return watch.is_stalled(StallDomain(1)); }));
}

TEST(StallWatch, WithoutALimitNothingIsOverdue) {
  StallWatch watch;
  watch.start(milliseconds(0));
  const StallWatch::Call call(watch, StallDomain(1));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(watch.is_stalled(StallDomain(1)));
}

TEST(StallWatch, SourcesCountAsCalls) {
  StallWatch watch;
  watch.start(milliseconds(50));
  std::atomic<uint64_t> oldest{0};
  auto source = watch.add_source(StallDomain(7), [&] { return oldest.load(); });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(watch.is_stalled(StallDomain(7)));
  oldest = monotonic_ns();
  EXPECT_TRUE(becomes_true([&] { return watch.is_stalled(StallDomain(7)); }));
  source.reset();
  EXPECT_TRUE(becomes_true([&] { return !watch.is_stalled(StallDomain(7)); }));
}

TEST(StallWatch, NothingIsToldAfterAReset) {
  StallWatch watch;
  watch.start(milliseconds(20));
  std::atomic<int> told{0};
  auto listener = watch.add_listener([&](StallDomain) { ++told; });
  const StallWatch::Call call(watch, StallDomain(1));
  ASSERT_TRUE(becomes_true([&] { return told > 0; }));
  listener.reset();
  const int before = told;
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(told, before);
}

class WatchedStorageTest : public testing::Test {
 protected:
  WatchedStorageTest() : storage_(inner_, watch_) { watch_.start(milliseconds(250)); }

  Handle open_member(const std::string& name, StallDomain domain) {
    std::filesystem::create_directory(place_ / name);
    const Result<Handle> directory = storage_.open_directory(place_ / name);
    EXPECT_TRUE(directory.is_ok());
    storage_.assign_domain(*directory, domain);
    return *directory;
  }

  const test::TemporaryDirectory place_{test::quick_place()};
  test::Hangs hangs_;
  test::HangingStorage inner_{hangs_};
  StallWatch watch_;
  WatchedStorage storage_;
};

TEST_F(WatchedStorageTest, HandlesBelongWhereTheyWereOpened) {
  const Handle one = open_member("one", StallDomain(1)), two = open_member("two", StallDomain(2));
  const Handle file = *storage_.open_at(one, "file", O_RDWR | O_CREAT, 0600);
  const Handle again = *storage_.reopen(file, O_RDWR);
  const Handle other = *storage_.open_at(two, "file", O_RDWR | O_CREAT, 0600);
  hangs_.hang(place_ / "one");
  std::thread caught([&] { EXPECT_TRUE(storage_.fdatasync(again).is_ok()) << "it comes back in the end"; });
  ASSERT_TRUE(becomes_true([&] { return watch_.is_stalled(StallDomain(1)); }));
  // Everything of that member is refused at once, everything else goes on.
  EXPECT_EQ(storage_.fdatasync(file).code(), StatusCode::kIoError);
  EXPECT_EQ(storage_.check_running(file).code(), StatusCode::kIoError);
  EXPECT_TRUE(storage_.fstat(file).is_ok()) << "answered from memory";
  EXPECT_EQ(storage_.open_at(one, "new", O_RDWR | O_CREAT, 0600).status().code(), StatusCode::kIoError);
  EXPECT_TRUE(storage_.fdatasync(other).is_ok());
  EXPECT_TRUE(storage_.fstat(two).is_ok());
  hangs_.answer_again();
  caught.join();
  ASSERT_TRUE(becomes_true([&] { return !watch_.is_stalled(StallDomain(1)); }));
  EXPECT_TRUE(storage_.fdatasync(file).is_ok());
  for (const Handle handle : {file, again, other, one, two}) storage_.close(handle);
}

// In memory a filesystem is none of those of which anything is known.
TEST_F(WatchedStorageTest, WhatIsKnownOfAFilesystemIsPassedOn) {
  const Handle one = open_member("one", StallDomain(1));
  EXPECT_EQ(storage_.overwrites_in_place(one), inner_.overwrites_in_place(one));
  EXPECT_FALSE(storage_.overwrites_in_place(one));
  EXPECT_EQ(storage_.syncs_own_names(one), inner_.syncs_own_names(one));
  EXPECT_FALSE(storage_.syncs_own_names(one));
  storage_.close(one);
}

TEST_F(WatchedStorageTest, HandlesOfAStalledMemberAreClosedWhenItAnswers) {
  const Handle directory = open_member("one", StallDomain(1)), other = open_member("two", StallDomain(2));
  const Handle file = *storage_.open_at(directory, "file", O_RDWR | O_CREAT, 0600);
  const Handle caught_file = *storage_.reopen(file, O_RDWR);
  hangs_.hang(place_ / "one");
  std::thread caught([&] { EXPECT_TRUE(storage_.fdatasync(caught_file).is_ok()); });
  ASSERT_TRUE(becomes_true([&] { return watch_.is_stalled(StallDomain(1)); }));
  storage_.close(file);
  EXPECT_GE(::fcntl(file, F_GETFD), 0) << "its last close might wait for the drive";
  hangs_.answer_again();
  caught.join();
  ASSERT_TRUE(becomes_true([&] { return !watch_.is_stalled(StallDomain(1)); }));
  storage_.close(other);  // whichever is closed next
  EXPECT_LT(::fcntl(file, F_GETFD), 0);
  for (const Handle handle : {caught_file, directory}) storage_.close(handle);
}

TEST_F(WatchedStorageTest, WhatAVisitorTakesIsItsOwnTime) {
  const Handle directory = open_member("one", StallDomain(1));
  storage_.close(*storage_.open_at(directory, "file", O_RDWR | O_CREAT, 0600));
  bool was_stalled = false;
  EXPECT_TRUE(storage_
                  .list(directory,
                        [&](const DirectoryEntry&) {
                          std::this_thread::sleep_for(milliseconds(600));
                          was_stalled |= watch_.is_stalled(StallDomain(1));
                          return true;
                        })
                  .is_ok());
  EXPECT_FALSE(was_stalled);
  storage_.close(directory);
}

TEST_F(WatchedStorageTest, CountsWhatTheDriveIsToBlameFor) {
  const Handle directory = open_member("one", StallDomain(1));
  EXPECT_EQ(storage_.stat_at(directory, "nothing").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(storage_.open_at(directory, "nothing", O_RDONLY, 0).is_ok());
  EXPECT_EQ(watch_.errors(StallDomain(1)), 0u);
  watch_.note_error(StallDomain(1), Status::from_errno(EIO, "stat"));
  EXPECT_EQ(watch_.errors(StallDomain(1)), 1u);
  storage_.close(directory);
}

// Callers of names get the errors, and nobody else says which drive it is.
TEST_F(WatchedStorageTest, TheFirstFailureOfTheNamesIsLogged) {
  watch_.set_name(kTreeDomain, "the drive that holds the names (/n0)");
  const auto logged = [this](const char* call) {
    testing::internal::CaptureStderr();
    watch_.note_error(kTreeDomain, Status::from_errno(EROFS, call));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(logged("make x").find("the drive that holds the names (/n0) fails: make x: Read-only"), std::string::npos);
  EXPECT_EQ(logged("make y"), "");
  EXPECT_EQ(watch_.errors(kTreeDomain), 2u);
  watch_.clear_errors(kTreeDomain);
  EXPECT_NE(logged("make z"), "") << "after fpfs clear it is news";
}

}  // namespace
}  // namespace fpfs
