// Opening real directories: every refusal names the directory and changes nothing; order does not matter; locks; state;
// names of objects; space.
#include "engine/array/array.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "engine/array/member_directory.h"
#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "tests/engine/array/array_testing.h"

namespace fpfs {
namespace {

class ArrayTest : public ArrayTestBase {
 protected:
  void expect_refused(const Paths& directories, const ArrayOptions& options, StatusCode code,
                      const std::vector<std::string>& words) {
    const std::string before = snapshot();
    expect_refusal(open(directories, options).status(), code, words);
    EXPECT_EQ(snapshot(), before) << "a refused open changes nothing";
  }
  static ArrayOptions read_only() {
    ArrayOptions options;
    options.read_only = true;
    return options;
  }
  static ArrayOptions degraded() {
    ArrayOptions options = read_only();
    options.degraded = true;
    return options;
  }
  void copy_member(const std::string& from, const std::string& to) {
    std::filesystem::copy(path(from), path(to), std::filesystem::copy_options::recursive);
  }
  // Changes a superblock and seals it again.
  void edit_superblock(const std::string& name, size_t offset, std::vector<uint8_t> bytes) {
    std::string content = read_file(path(name) + "/superblock");
    ASSERT_EQ(content.size(), kSuperblockSize);
    std::memcpy(content.data() + offset, bytes.data(), bytes.size());
    auto* raw = reinterpret_cast<std::byte*>(content.data());
    put_u64(raw + 4088, 0);
    put_u64(raw + 4088, hash_bytes({raw, kSuperblockSize}));
    write_file(path(name) + "/superblock", content);
  }
};

TEST_F(ArrayTest, OrderOfPathsDoesNotMatter) {
  must_format(paths({"a", "b", "c"}));
  Paths order = paths({"a", "b", "c"});
  do {
    const std::unique_ptr<Array> array = must_open(order);
    ASSERT_NE(array, nullptr);
    EXPECT_EQ(array->member_count(), 3);
    EXPECT_EQ(array->superblock().member_index, MemberIndex(0)) << "the first member's, whichever was given first";
    const char* names[] = {"a", "b", "c"};
    for (const MemberIndex i : array->members()) {
      EXPECT_EQ(array->member(i).path, path(names[i.value()]));
      EXPECT_TRUE(array->member(i).present);
      EXPECT_NE(array->member(i).directory, kNoHandle);
    }
    EXPECT_EQ(array->metadata_path(), path("a"));
    EXPECT_EQ(array->metadata_directory(), array->member(MemberIndex(0)).directory);
    EXPECT_EQ(array->stripes().chunk_size, kMiB);
    EXPECT_EQ(array->stripes().member_count, 3);
    EXPECT_FALSE(array->read_only());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(ArrayTest, RowsAreTurnedUnlessItIsFromBefore) {
  must_format(paths({"a", "b"}));
  const auto has_turned_rows = [&] {
    const std::unique_ptr<Array> array = must_open(paths({"a", "b"}));
    const std::optional<StripeMap> of_one = array->stripes_among(1);
    EXPECT_EQ(of_one && of_one->has_turned_rows, array->stripes().has_turned_rows);
    return array->stripes().has_turned_rows;
  };
  EXPECT_TRUE(has_turned_rows());
  // A program that did not know of it wrote zeros, which stay.
  for (const char* name : {"a", "b"}) edit_superblock(name, 16, {0});
  EXPECT_FALSE(has_turned_rows());
  EXPECT_FALSE(has_turned_rows());
}

TEST_F(ArrayTest, NoHandleIsLeftOpen) {
  const auto open_files = [] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
  };
  FormatOptions options;
  options.metadata_directory = path("names");
  const size_t before = open_files();
  must_format(paths({"a", "b"}), options);
  EXPECT_EQ(open_files(), before);
  {
    const std::unique_ptr<Array> array = must_open(paths({"a", "b"}));
    ASSERT_TRUE(array->object_directory(MemberIndex(1), FileId(0x1234)).is_ok());
    EXPECT_GT(open_files(), before);
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(open(paths({"a"})).is_ok());
  EXPECT_FALSE(format(paths({"a", "c"})).is_ok());
  EXPECT_EQ(open_files(), before);
}

TEST_F(ArrayTest, MembersAreClosedToOthers) {
  using std::filesystem::perms;
  const auto mode = [&](const char* name) { return std::filesystem::status(path(name)).permissions() & perms(07777); };
  for (const char* name : {"a", "b", "names"}) std::filesystem::create_directory(path(name));
  for (const char* name : {"a", "b", "names"}) std::filesystem::permissions(path(name), perms(0755));
  FormatOptions options;
  options.metadata_directory = path("names");
  must_format(paths({"a", "b"}), options);
  for (const char* name : {"a", "b", "names"}) EXPECT_EQ(mode(name), perms(0700)) << name;
  // A copy, say, made without its modes. Reading alone changes nothing.
  for (const char* name : {"a", "b", "names"}) std::filesystem::permissions(path(name), perms(01775));
  must_open(paths({"a", "b"}), read_only());
  for (const char* name : {"a", "b", "names"}) EXPECT_EQ(mode(name), perms(01775)) << name;
  must_open(paths({"a", "b"}));
  for (const char* name : {"a", "b", "names"}) EXPECT_EQ(mode(name), perms(01700)) << name;
}

// --- refusals --------------------------------------------------------------------------------------------------------

TEST_F(ArrayTest, RefusesWhatIsNoMember) {
  must_format(paths({"a"}));
  std::filesystem::create_directory(path("empty"));
  expect_refused(paths({"a", "empty"}), {}, StatusCode::kNotFound, {path("empty"), "no superblock", "mkfs"});
  expect_refused(paths({"absent"}), {}, StatusCode::kNotFound, {path("absent"), "no such directory", "mounted"});
  write_file(path("file"), "x");
  expect_refused(paths({"file"}), {}, StatusCode::kSystem, {path("file"), "Not a directory; name directories"});
  expect_refused({}, {}, StatusCode::kInvalidArgument, {"no directory"});
}

TEST_F(ArrayTest, RefusesADamagedSuperblock) {
  must_format(paths({"a", "b"}));
  const std::string whole = read_file(path("b/superblock"));
  std::string damaged = whole;
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  for (const std::string& content :
       {damaged, whole.substr(0, 4095), whole + "x", std::string(), std::string(4096, '\0')}) {
    write_file(path("b/superblock"), content);
    expect_refused(paths({"a", "b"}), {}, StatusCode::kCorruption, {path("b"), "superblock", "nothing was changed"});
  }
}

TEST_F(ArrayTest, RefusesASuperblockThatIsNoFile) {
  must_format(paths({"a"}));
  std::filesystem::remove(path("a/superblock"));
  std::filesystem::create_directory(path("a/superblock"));
  expect_refused(paths({"a"}), {}, StatusCode::kCorruption, {path("a"), "not a regular file"});
  std::filesystem::remove(path("a/superblock"));
  ASSERT_EQ(::mkfifo(path("a/superblock").c_str(), 0600), 0);
  expect_refused(paths({"a"}), {}, StatusCode::kCorruption, {path("a"), "not a regular file"});
}

TEST_F(ArrayTest, RefusesOtherVersionsAndUnknownFeatures) {
  must_format(paths({"a"}));
  edit_superblock("a", 8, {2});
  expect_refused(paths({"a"}), {}, StatusCode::kUnsupported, {path("a"), "version 2", "version 1"});
  edit_superblock("a", 8, {1});
  edit_superblock("a", 24, {4});
  expect_refused(paths({"a"}), {}, StatusCode::kUnsupported, {path("a"), "0x4", "ro"});
  EXPECT_NE(must_open(paths({"a"}), read_only()), nullptr);
  edit_superblock("a", 32, {8});
  expect_refused(paths({"a"}), read_only(), StatusCode::kUnsupported, {path("a"), "0x8", "newer"});
}

TEST_F(ArrayTest, RefusesAnotherArraysMember) {
  FormatOptions options;
  options.label = "night run";
  must_format(paths({"a", "b"}));
  must_format(paths({"c", "d"}), options);
  expect_refused(paths({"a", "d"}), {}, StatusCode::kInvalidArgument, {path("d"), "member 1", "night run", path("a")});
}

TEST_F(ArrayTest, RefusesTheSameDirectoryTwice) {
  must_format(paths({"a", "b"}));
  std::filesystem::create_directory_symlink(path("b"), path("alias"));
  expect_refused(paths({"a", "b", "alias"}), {}, StatusCode::kInvalidArgument,
                 {path("alias"), "same directory", path("b")});
}

TEST_F(ArrayTest, RefusesACopyBesideTheOriginal) {
  must_format(paths({"a", "b"}));
  copy_member("b", "copy");
  expect_refused(paths({"a", "b", "copy"}), {}, StatusCode::kInvalidArgument,
                 {path("copy"), "member 1", path("b"), "copy"});
  // Moved to a new drive, it is the member.
  EXPECT_NE(must_open(paths({"copy", "a"})), nullptr);
}

TEST_F(ArrayTest, RefusesAMissingMember) {
  must_format(paths({"a", "b", "c"}));
  expect_refused(paths({"c", "a"}), {}, StatusCode::kNotFound,
                 {path("a"), path("c"), "missing 1", "3 members", "degraded"});
  expect_refused(paths({"b", "c"}), {}, StatusCode::kNotFound, {"names", "member 0", "missing"});
}

TEST_F(ArrayTest, RefusesSuperblocksThatContradictEachOther) {
  must_format(paths({"a", "b", "c"}));
  edit_superblock("b", 74, {4, 0});
  expect_refused(paths({"a", "b", "c"}), {}, StatusCode::kCorruption, {path("b"), "otherwise", path("a")});
}

TEST_F(ArrayTest, RefusesAMemberWithoutItsParts) {
  must_format(paths({"a"}));
  std::filesystem::remove_all(path("a/objects"));
  expect_refused(paths({"a"}), {}, StatusCode::kCorruption,
                 {path("a"), "'objects'", "Put it back", "fsck.fastpersistfs -y"});
  std::filesystem::create_directory(path("elsewhere"));
  std::filesystem::create_directory_symlink(path("elsewhere"), path("a/objects"));
  EXPECT_FALSE(open(paths({"a"})).is_ok()) << "nothing under a member leads outside it";
  std::filesystem::remove(path("a/objects"));
  std::filesystem::create_directory(path("a/objects"));
  std::filesystem::remove(path("a/tree"));
  expect_refused(paths({"a"}), {}, StatusCode::kCorruption, {path("a"), "'tree'", "Put it back"});
}

// As all programs say it that look at the directories of an array.
TEST_F(ArrayTest, OfADriveThatFailsItIsSaidWhatToDo) {
  for (const int error : {EIO, ENODEV, EUCLEAN}) {
    const Status refused = refuse_failed("/n6/fp", Status::from_errno(error, "open directory /n6/fp"), ", to read");
    expect_refusal(refused, StatusCode::kIoError,
                   {"/n6/fp: ", std::strerror(error), "dmesg", "leave this directory out of the list, to read"});
  }
}

// --- degraded --------------------------------------------------------------------------------------------------------

// The list of fstab, on the day on which a drive has died.
TEST_F(ArrayTest, WhatIsLostIsToBeLeftOut) {
  must_format(paths({"a", "b"}));
  std::filesystem::rename(path("b"), path("gone"));
  expect_refused(paths({"a", "b"}), degraded(), StatusCode::kNotFound, {path("b"), "leave this directory out"});
  std::filesystem::create_directory(path("b"));
  expect_refused(paths({"a", "b"}), degraded(), StatusCode::kNotFound, {path("b"), "leave this directory out"});
  std::filesystem::rename(path("gone"), path("b"));
  std::filesystem::remove_all(path("b") + "/objects");
  expect_refused(paths({"a", "b"}), degraded(), StatusCode::kCorruption, {path("b"), "without this directory"});
  EXPECT_TRUE(open(paths({"a"}), degraded()).is_ok());
}

TEST_F(ArrayTest, DegradedReadsWithMembersMissing) {
  must_format(paths({"a", "b", "c"}));
  const std::unique_ptr<Array> array = must_open(paths({"a", "c"}), degraded());
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(array->member_count(), 3);
  EXPECT_FALSE(array->member(MemberIndex(1)).present);
  EXPECT_TRUE(array->member(MemberIndex(2)).present);
  EXPECT_TRUE(array->object_directory(MemberIndex(2), FileId(1)).is_ok());
  const Status status = array->object_directory(MemberIndex(1), FileId(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_EQ(status.member(), 1);
  EXPECT_TRUE(array->space().is_ok());
}

TEST_F(ArrayTest, DegradedIsForReadingAndNeedsTheNames) {
  must_format(paths({"a", "b"}));
  ArrayOptions options = degraded();
  options.read_only = false;
  expect_refused(paths({"a"}), options, StatusCode::kInvalidArgument, {"ro"});
  expect_refused(paths({"b"}), degraded(), StatusCode::kNotFound, {"names", "member 0"});
}

// --- metadata directory ----------------------------------------------------------------------------------------------

TEST_F(ArrayTest, TheMetadataDirectoryIsFoundByItsHint) {
  FormatOptions options;
  options.metadata_directory = path("names");
  must_format(paths({"a", "b"}), options);
  must_format(paths({"other"}));
  {
    const std::unique_ptr<Array> array = must_open(paths({"b", "a"}));
    ASSERT_NE(array, nullptr);
    EXPECT_EQ(array->metadata_path(), path("names"));
  }
  EXPECT_NE(must_open(paths({"a", "names", "b"})), nullptr) << "it may be among the directories";
  std::filesystem::rename(path("names"), path("moved"));
  for (const ArrayOptions& how : {ArrayOptions(), degraded()}) {
    expect_refused(paths({"a", "b"}), how, StatusCode::kNotFound,
                   {path("names"), "metadata directory", "names of all files", "meta_dir=DIR"});
    EXPECT_EQ(open(paths({"a", "b"}), how).status().message().find("leave"), std::string::npos) << "it is not given";
  }
  ArrayOptions where;
  where.metadata_directory = path("moved");
  EXPECT_NE(must_open(paths({"a", "b"}), where), nullptr);
  EXPECT_NE(must_open(paths({"a", "moved", "b"}), where), nullptr);
  where.metadata_directory = path("other");
  expect_refused(paths({"a", "b"}), where, StatusCode::kInvalidArgument, {path("other"), "not the metadata directory"});
  where.metadata_directory = path("b");
  expect_refused(paths({"a", "b"}), where, StatusCode::kInvalidArgument, {path("b"), "member 1"});
  copy_member("moved", "copy");
  where.metadata_directory = path("copy");
  expect_refused(paths({"a", "moved", "b"}), where, StatusCode::kInvalidArgument, {path("copy"), "copy"});
}

TEST_F(ArrayTest, RefusesAMetadataDirectoryThatIsNone) {
  must_format(paths({"a", "b"}));
  std::filesystem::create_directory(path("names"));
  ArrayOptions options;
  options.metadata_directory = path("names");
  expect_refused(paths({"a", "b"}), options, StatusCode::kInvalidArgument, {path("names"), "member 0"});
}

// --- locks -----------------------------------------------------------------------------------------------------------

TEST_F(ArrayTest, ASecondOpenIsRefusedWithTheHoldersPid) {
  must_format(paths({"a", "b"}));
  const std::unique_ptr<Array> first = must_open(paths({"a", "b"}));
  const std::string holder = "held by process " + std::to_string(::getpid()) + ";";
  expect_refused(paths({"b", "a"}), {}, StatusCode::kBusy, {path("a"), holder});
  expect_refused(paths({"b", "a"}), read_only(), StatusCode::kBusy, {path("a"), holder});
}

TEST_F(ArrayTest, AnotherProcessIsNamed) {
  must_format(paths({"a"}));
  int ready[2], finish[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(finish), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // The parent's environment serves: opening needs its storage only, and a child may not start threads.
    const Result<std::unique_ptr<Array>> array = open(paths({"a"}));
    char byte = array.is_ok() ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1 || ::read(finish[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(0);
  }
  ::close(ready[1]);  // so that a child that dies is noticed
  ::close(finish[0]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  expect_refused(paths({"a"}), {}, StatusCode::kBusy, {path("a"), "process " + std::to_string(child) + ";", "unmount"});
  ASSERT_EQ(::write(finish[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(must_open(paths({"a"})), nullptr) << "a lock ends with its process, however that ends";
  ::close(ready[0]);
  ::close(finish[1]);
}

TEST_F(ArrayTest, ReadersShareAndKeepWritersOut) {
  must_format(paths({"a", "b"}));
  const std::unique_ptr<Array> one = must_open(paths({"a", "b"}), read_only());
  const std::unique_ptr<Array> two = must_open(paths({"a", "b"}), read_only());
  expect_refused(paths({"a", "b"}), {}, StatusCode::kBusy, {path("a"), "process"});
}

TEST_F(ArrayTest, ALookerOnTakesNoLock) {
  must_format(paths({"a"}));
  const std::unique_ptr<Array> mounted = must_open(paths({"a"}));
  ArrayOptions options = read_only();
  options.lock = false;
  const std::string before = snapshot();
  EXPECT_NE(must_open(paths({"a"}), options), nullptr);
  EXPECT_EQ(snapshot(), before);
}

TEST_F(ArrayTest, ALockFileThatWasRemovedIsMadeAgain) {
  must_format(paths({"a"}));
  std::filesystem::remove(path("a/lock"));
  const std::unique_ptr<Array> array = must_open(paths({"a"}));
  EXPECT_EQ(read_file(path("a/lock")), std::to_string(::getpid()) + "\n");
}

TEST_F(ArrayTest, ALockWithoutAPidIsStillALock) {
  must_format(paths({"a"}));
  const int lock = ::open(path("a/lock").c_str(), O_RDWR | O_TRUNC);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  expect_refused(paths({"a"}), {}, StatusCode::kBusy, {path("a"), "another process"});
  ASSERT_EQ(::ftruncate(lock, 0), 0);
  // Of a process that has ended but for what the kernel cannot end.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const std::string number = std::to_string(child);
  ASSERT_EQ(::pwrite(lock, number.data(), number.size(), 0), static_cast<ssize_t>(number.size()));
  expect_refused(paths({"a"}), {}, StatusCode::kBusy, {"process " + number + "; that has ended", "does not answer"});
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // Of one that waits as for a drive (state D): for its child, until that begins another program or ends.
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t waiting = ::fork();
  if (waiting == 0) {
    ::close(pipe[1]);
    char none = 0;
    // As vfork(2) does, with memory of its own.
    if (::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) ::_exit(::read(pipe[0], &none, 1) == 0 ? 0 : 1);
    ::_exit(0);
  }
  const std::string at_drive = std::to_string(waiting);
  ASSERT_EQ(::ftruncate(lock, 0), 0);
  ASSERT_EQ(::pwrite(lock, at_drive.data(), at_drive.size(), 0), static_cast<ssize_t>(at_drive.size()));
  const auto state = [&at_drive] { return holder_state(read_file("/proc/" + at_drive + "/stat"), ""); };
  for (int looks = 0; looks < 10'000 && state() != HolderState::kAtDrive; ++looks)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect_refused(paths({"a"}), {}, StatusCode::kBusy,
                 {"process " + at_drive + ", which is in a call to a drive", "dmesg", "unmount it there"});
  ::close(pipe[0]);
  ::close(pipe[1]);
  ASSERT_EQ(::waitpid(waiting, nullptr, 0), waiting);
  // Of one that is in one such call after the other: its drive answers.
  const pid_t busy = ::fork();
  while (busy == 0) {
    if (::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ::_exit(0);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  const std::string at_work = std::to_string(busy);
  ASSERT_EQ(::ftruncate(lock, 0), 0);
  ASSERT_EQ(::pwrite(lock, at_work.data(), at_work.size(), 0), static_cast<ssize_t>(at_work.size()));
  expect_refused(paths({"a"}), {}, StatusCode::kBusy, {"process " + at_work + "; unmount it there"});
  ASSERT_EQ(::kill(busy, SIGKILL), 0);
  ASSERT_EQ(::waitpid(busy, nullptr, 0), busy);
  ASSERT_EQ(::ftruncate(lock, 0), 0);
  ASSERT_EQ(::pwrite(lock, "\x1b[2J evil", 9, 0), 9);
  expect_refused(paths({"a"}), {}, StatusCode::kBusy, {path("a"), "another process"});
  ::close(lock);
}

// A signal that it has not taken, or its end, is what tells a process that a drive keeps from one that is at it.
TEST(HolderState, WhatADriveKeepsFromEndingHasEnded) {
  const auto state = [](const std::string& letter, const std::string& flags, const std::string& pending) {
    return holder_state("4711 (a) name) " + letter + " 1 4711 4711 0 -1 " + flags + " 1 0",
                        "Name:\tname\nSigPnd:\t" + pending + "\nShdPnd:\t0000000000000000\n");
  };
  constexpr const char* kNone = "0000000000000000";
  EXPECT_EQ(state("S", "4194560", kNone), HolderState::kRuns);
  EXPECT_EQ(state("S", "4194560", "0000000000000100"), HolderState::kRuns) << "it takes it in a moment";
  EXPECT_EQ(state("D", "4194560", kNone), HolderState::kAtDrive);
  EXPECT_EQ(state("D", "4194560", "0000000000004000"), HolderState::kAtDrive) << "SIGTERM";
  EXPECT_EQ(state("D", "4194560", "0000000000000100"), HolderState::kHasEnded) << "SIGKILL";
  EXPECT_EQ(state("D", "4194564", kNone), HolderState::kHasEnded) << "exiting";
  EXPECT_EQ(state("Z", "4194564", kNone), HolderState::kHasEnded);
  EXPECT_EQ(holder_state("", ""), HolderState::kRuns);
  EXPECT_EQ(holder_state("4711 (x) D", ""), HolderState::kAtDrive);
}

// --- state -----------------------------------------------------------------------------------------------------------

TEST_F(ArrayTest, DirtyFromMarkToMark) {
  must_format(paths({"a", "b"}));
  {
    const std::unique_ptr<Array> array = must_open(paths({"a", "b"}));
    EXPECT_FALSE(array->was_dirty());
    ASSERT_TRUE(array->mark_dirty().is_ok());
    ASSERT_TRUE(array->mark_dirty().is_ok());
    EXPECT_EQ(read_file(path("a/state")), "dirty\n");
    EXPECT_FALSE(array->was_dirty()) << "it tells of the time before";
  }
  {
    const std::unique_ptr<Array> reader = must_open(paths({"a", "b"}), read_only());
    EXPECT_TRUE(reader->was_dirty());
    EXPECT_EQ(reader->mark_clean().code(), StatusCode::kReadOnly);
    EXPECT_EQ(reader->mark_dirty().code(), StatusCode::kReadOnly);
  }
  {
    const std::unique_ptr<Array> array = must_open(paths({"a", "b"}));
    EXPECT_TRUE(array->was_dirty());
    ASSERT_TRUE(array->mark_clean().is_ok());
    ASSERT_TRUE(array->mark_clean().is_ok());
    EXPECT_FALSE(exists(path("a/state")));
  }
  EXPECT_FALSE(must_open(paths({"a", "b"}))->was_dirty());
}

// --- objects ---------------------------------------------------------------------------------------------------------

TEST_F(ArrayTest, ObjectDirectoriesAreOpenedOnceForAllThreads) {
  must_format(paths({"a", "b"}));
  const std::unique_ptr<Array> array = must_open(paths({"a", "b"}));
  std::vector<std::thread> threads;
  std::vector<std::vector<Handle>> seen(4);
  threads.reserve(seen.size());
  for (auto& handles : seen)
    threads.emplace_back([&array, &handles] {
      for (uint64_t file = 0x4200; file < 0x4300; ++file)
        handles.push_back(array->object_directory(MemberIndex(1), FileId(file)).value().get());
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& handles : seen) EXPECT_EQ(handles, seen[0]);
  EXPECT_EQ(array->object_directory(MemberIndex(1), FileId(0xff42)).value().get(), seen[0][0x42])
      << "the low byte of the id names the directory";
  Storage& storage = environment_.storage();
  const Handle object =
      storage
          .open_at(array->object_directory(MemberIndex(1), FileId(0x1234ab)).value().get(), "o", O_RDWR | O_CREAT, 0600)
          .value();
  storage.close(object);
  EXPECT_TRUE(exists(path("b/objects/ab/o")));
}

TEST_F(ArrayTest, ALowLimitOfOpenFilesIsRaisedOrRefusedAtOnce) {
  must_format(paths({"a", "b", "c", "d", "e"}));
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // In a child, as a hard limit cannot be raised again.
  EXPECT_EXIT(
      {
        struct rlimit limit = before;
        limit.rlim_cur = 64;
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
        {
          const std::unique_ptr<Array> array = must_open(paths({"a", "b", "c", "d", "e"}));
          if (array == nullptr) ::_exit(2);
          for (const MemberIndex member : array->members())
            for (uint64_t file = 0; file < 256; ++file)
              if (!array->object_directory(member, FileId(file)).is_ok()) ::_exit(2);
        }
        limit.rlim_cur = limit.rlim_max = 1000;
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(3);
        const Status status = open(paths({"a", "b", "c", "d", "e"})).status();
        if (status.errno_value() != EMFILE || status.message().find("1000") == std::string::npos) ::_exit(4);
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ArrayTest, AMissingObjectDirectoryIsNamed) {
  must_format(paths({"a"}));
  std::filesystem::remove(path("a/objects/ab"));
  const std::unique_ptr<Array> array = must_open(paths({"a"}));
  const Status status = array->object_directory(MemberIndex(0), FileId(0xab)).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.member(), 0);
  EXPECT_NE(status.message().find(path("a") + "/objects"), std::string::npos) << status.message();
}

TEST(ArrayNamesTest, ObjectNamesAreReadBack) {
  for (const FileId file : {FileId(1), FileId(0x0123456789abcdef), FileId(UINT64_MAX)})
    for (const Generation generation : {Generation(0), Generation(1), Generation(UINT32_MAX)}) {
      FileId file_back;
      Generation generation_back;
      const std::string name = Array::object_name(file, generation);
      EXPECT_EQ(name.size(), 25u);
      ASSERT_TRUE(Array::parse_object_name(name, &file_back, &generation_back)) << name;
      EXPECT_EQ(file_back, file);
      EXPECT_EQ(generation_back, generation);
    }
  EXPECT_EQ(Array::object_name(FileId(0xabc), Generation(0x1f)), "0000000000000abc.0000001f");
}

TEST(ArrayNamesTest, OtherNamesAreNotObjects) {
  FileId file;
  Generation generation;
  for (const char* name : {"", ".", "0000000000000abc", "0000000000000abc.", "0000000000000abc.0000001",
                           "0000000000000abc.0000001f0", "0000000000000ABC.0000001f", "0000000000000abc-0000001f",
                           "0000000000000abg.0000001f", "0000000000000abc.0000001G", "0000000000000000.00000000",
                           "+000000000000abc.0000001f", "0000000000000abc.0000001f~"})
    EXPECT_FALSE(Array::parse_object_name(name, &file, &generation)) << name;
}

TEST(ArrayNamesTest, DirectoriesAreSplitAtColons) {
  EXPECT_EQ(Array::split_directories("/a").value(), (std::vector<std::string>{"/a"}));
  EXPECT_EQ(Array::split_directories("/a:b/c:/d e").value(), (std::vector<std::string>{"/a", "b/c", "/d e"}));
  for (const char* wrong : {"", ":", "/a:", ":/a", "/a::/b"}) {
    const Status status = Array::split_directories(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_NE(status.message().find("empty"), std::string::npos);
  }
  std::string many = "/a";
  for (int i = 1; i < kMemberCountMax; ++i) many += ":/a";
  EXPECT_EQ(Array::split_directories(many).value().size(), kMemberCountMax);
  EXPECT_EQ(Array::split_directories(many + ":/a").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ArrayTest, SpaceCountsOneDeviceOnce) {
  must_format(paths({"a", "b", "c"}));
  const std::unique_ptr<Array> array = must_open(paths({"a", "b", "c"}));
  struct statvfs device {};
  ASSERT_EQ(::statvfs(path("a").c_str(), &device), 0);
  const Result<struct statvfs> space = array->space();
  ASSERT_TRUE(space.is_ok());
  EXPECT_EQ(space->f_blocks * space->f_frsize, device.f_blocks * device.f_frsize);
  const double available = static_cast<double>(device.f_bavail * device.f_frsize);
  EXPECT_NEAR(static_cast<double>(space->f_bavail * space->f_frsize), available, available / 10 + 1e7);
  EXPECT_EQ(space->f_files, device.f_files);
  EXPECT_EQ(space->f_namemax, 255u);
}

}  // namespace
}  // namespace fpfs
