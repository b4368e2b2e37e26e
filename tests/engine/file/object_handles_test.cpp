// More objects in use than handles are kept of: nothing shows, and nothing that a drive has to report gets lost with a
// handle that is closed to make room (promise P4).
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kKept = 3;

StoreOptions options() {
  StoreOptions options;
  options.inline_max = 0;
  options.spare_least = UINT64_MAX;
  options.array.handles_kept = kKept;
  return options;
}

class ObjectHandlesTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  SimArray array_{GetParam(), 1, options()};

  std::ptrdiff_t open_objects() {
    const std::vector<std::string> handles = array_.sim().open_handles();
    return std::count_if(handles.begin(), handles.end(),
                         [](const std::string& handle) { return handle.find("objects/") != std::string::npos; });
  }
  void fail_syncs_of_objects(SimFault::Call call, uint64_t count = 1) {
    array_.sim().inject({.call = call,
                         .effect = SimFault::Effect::kError,
                         .error = EIO,
                         .filesystem = {},
                         .role = SimRole::kObjects,
                         .count = count});
  }
  std::shared_ptr<File> write_new(const std::string& name, uint64_t salt) {
    std::shared_ptr<File> file = array_.create(name);
    EXPECT_TRUE(array_.write(*file, 0, make_bytes(2 * kTestChunk, salt)).is_ok());
    array_.world().drain();
    return file;
  }
};

TEST_P(ObjectHandlesTest, ManyFilesAreWrittenAndReadWithFew) {
  constexpr unsigned kFiles = 30;
  std::vector<std::shared_ptr<File>> files;
  for (unsigned i = 0; i < kFiles; ++i) files.push_back(write_new("file" + std::to_string(i), i));
  EXPECT_LE(open_objects(), static_cast<std::ptrdiff_t>(kKept));
  for (unsigned i = 0; i < kFiles; i += 2) ASSERT_TRUE(array_.commit(*files[i]).is_ok());
  for (unsigned i = 0; i < kFiles; ++i)
    ASSERT_TRUE(array_.write(*files[i], kTestChunk, make_bytes(100, 1000 + i)).is_ok());
  array_.world().drain();
  for (const auto& file : files) ASSERT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
  array_.world().drain();
  EXPECT_LE(open_objects(), static_cast<std::ptrdiff_t>(kKept));
  files.clear();
  array_.crash();
  array_.open();
  for (unsigned i = 0; i < kFiles; ++i) {
    Bytes expected = make_bytes(2 * kTestChunk, i);
    const Bytes change = make_bytes(100, 1000 + i);
    std::copy(change.begin(), change.end(), expected.begin() + kTestChunk);
    const Result<Bytes> read = array_.read_all(*array_.open("file" + std::to_string(i)));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == expected) << i;
  }
}

TEST_P(ObjectHandlesTest, AFailedSyncOfAHandleThatMadeRoomFailsTheCommit) {
  const std::shared_ptr<File> first = write_new("first", 1);
  fail_syncs_of_objects(SimFault::Call::kSyncFile);
  std::vector<std::shared_ptr<File>> others;
  for (unsigned i = 0; i < 2 * kKept; ++i) others.push_back(write_new("other" + std::to_string(i), i));
  EXPECT_EQ(array_.sim().fault_hits(), 1u) << "what was not synced is, before its handle is closed";
  array_.sim().clear_faults();
  EXPECT_FALSE(array_.commit(*first).is_ok());
  EXPECT_FALSE(array_.commit(*first).is_ok()) << "not the second time either";
  for (const auto& file : others) EXPECT_TRUE(array_.commit(*file).is_ok());
}

TEST_P(ObjectHandlesTest, WhatWasSyncedToMakeRoomIsNotSyncedAgain) {
  std::shared_ptr<File> first = write_new("first", 1);
  std::vector<std::shared_ptr<File>> others;
  for (unsigned i = 0; i < 2 * kKept; ++i) others.push_back(write_new("other" + std::to_string(i), i));
  fail_syncs_of_objects(SimFault::Call::kSyncFile, SimFault::kForever);
  EXPECT_TRUE(array_.commit(*first).is_ok());
  array_.sim().clear_faults();
  first.reset();
  others.clear();
  array_.crash();
  array_.open();
  const Result<Bytes> read = array_.read_all(*array_.open("first"));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == make_bytes(2 * kTestChunk, 1));
}

// Content is cut off, or its saver killed, while its first writes are on their way to the drives: what they would have
// made would stay for ever.
TEST_P(ObjectHandlesTest, WhatIsGivenUpMakesNoObjects) {
  constexpr FileId kFile(77);
  auto& array = const_cast<Array&>(array_.store().array());
  ObjectSet objects(array_.sim(), array, nullptr, array.member_count(), kFile, Generation(1), false);
  ASSERT_TRUE(objects.open_for_transfer(MemberIndex(0), ObjectSet::Use::kWrite).is_ok());
  objects.supersede();
  EXPECT_TRUE(objects.open_for_transfer(MemberIndex(0), ObjectSet::Use::kWrite).is_ok())
      << "what there is can be written and freed";
  ObjectSet given_up(array_.sim(), array, nullptr, array.member_count(), kFile, Generation(2), false);
  given_up.supersede();
  for (const ObjectSet::Use use : {ObjectSet::Use::kWrite, ObjectSet::Use::kStream, ObjectSet::Use::kRead})
    EXPECT_EQ(given_up.open_for_transfer(MemberIndex(0), use).status().code(), StatusCode::kNotFound);
  const Result<HandleCache::Pin> directory = array.object_directory(MemberIndex(0), kFile);
  ASSERT_TRUE(directory.is_ok());
  EXPECT_EQ(array_.sim().open_at(directory->get(), Array::object_name(kFile, Generation(2)), O_RDONLY).status().code(),
            StatusCode::kNotFound);
}

// A commit and who heals: of two calls at once the kernel tells one.
TEST_P(ObjectHandlesTest, AFailedSyncIsToldToEverybodyWhoSyncs) {
  auto& array = const_cast<Array&>(array_.store().array());
  constexpr MemberIndex kMember(0);
  for (unsigned i = 0; i < 50; ++i) {
    ObjectSet objects(array_.sim(), array, nullptr, array.member_count(), FileId(2000 + i), Generation(1), false);
    ASSERT_TRUE(objects.open_for_transfer(kMember, ObjectSet::Use::kWrite).is_ok());
    fail_syncs_of_objects(SimFault::Call::kSyncFile);
    std::atomic<unsigned> ready{0};
    const auto sync = [&] {
      ++ready;
      while (ready.load() < 2) std::this_thread::yield();
      return objects.sync(kMember);
    };
    Status of_other;
    std::thread other([&] { of_other = sync(); });
    const Status own = sync();
    other.join();
    EXPECT_EQ(own.errno_value(), EIO);
    EXPECT_EQ(of_other.errno_value(), EIO);
    EXPECT_EQ(objects.sync(kMember).errno_value(), EIO) << "nor is it tried again";
    array_.sim().clear_faults();
  }
}

TEST_P(ObjectHandlesTest, OneSyncOfADirectoryIsForAllNamesThatWereThere) {
  auto& array = const_cast<Array&>(array_.store().array());
  constexpr MemberIndex kMember(0);
  const auto make = [&](uint64_t file) {
    auto objects = std::make_unique<ObjectSet>(array_.sim(), array, nullptr, array.member_count(), FileId(file),
                                               Generation(1), false);
    EXPECT_TRUE(objects->open_for_transfer(kMember, ObjectSet::Use::kWrite).is_ok());
    return objects;
  };
  const auto first = make(0x177), second = make(0x277), elsewhere = make(0x278);
  EXPECT_TRUE(first->sync(kMember).is_ok());
  const auto later = make(0x377);
  fail_syncs_of_objects(SimFault::Call::kSyncDirectory, SimFault::kForever);
  EXPECT_TRUE(second->sync(kMember).is_ok());
  EXPECT_EQ(elsewhere->sync(kMember).errno_value(), EIO);
  EXPECT_EQ(later->sync(kMember).errno_value(), EIO);
  EXPECT_EQ(later->sync(kMember).errno_value(), EIO) << "it is still new";
  array_.sim().clear_faults();
  EXPECT_TRUE(later->sync(kMember).is_ok());
}

// An object that holds nothing may be dropped at any moment, also while a commit syncs what was written to it and given up.
TEST_P(ObjectHandlesTest, AnObjectThatIsDroppedWhileItIsSyncedIsNoFailure) {
  auto& array = const_cast<Array&>(array_.store().array());
  constexpr MemberIndex kMember(0);
  for (unsigned i = 0; i < 50; ++i) {
    ObjectSet objects(array_.sim(), array, nullptr, array.member_count(), FileId(1000 + i), Generation(1), false);
    ASSERT_TRUE(objects.open_for_transfer(kMember, ObjectSet::Use::kWrite).is_ok());
    std::atomic<unsigned> ready{0};
    const auto meet = [&ready] {
      ++ready;
      while (ready.load() < 2) std::this_thread::yield();
    };
    std::thread dropper([&] {
      meet();
      static_cast<void>(objects.drop(kMember));
    });
    meet();
    const Status synced = objects.sync(kMember);
    dropper.join();
    ASSERT_TRUE(synced.is_ok()) << synced.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ObjectHandlesTest, ::testing::Range(uint64_t{0}, uint64_t{8}));

}  // namespace
}  // namespace fpfs::test
