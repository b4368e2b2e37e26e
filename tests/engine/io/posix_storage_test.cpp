#include "engine/io/posix_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class PosixStorageTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Handle> handle = storage_.open_directory(directory_.path());
    ASSERT_TRUE(handle.is_ok()) << handle.status().message();
    root_ = *handle;
  }
  void TearDown() override { storage_.close(root_); }

  Handle open(const std::string& name, int flags, mode_t mode = 0600) {
    Result<Handle> handle = storage_.open_at(root_, name, flags, mode);
    EXPECT_TRUE(handle.is_ok()) << handle.status().message();
    return handle.is_ok() ? *handle : kNoHandle;
  }
  // Makes a file that holds `text`.
  void make_file(const std::string& name, std::string_view text) {
    const Handle handle = open(name, O_RDWR | O_CREAT | O_EXCL);
    EXPECT_TRUE(storage_.pwrite(handle, bytes(text), 0).is_ok());
    storage_.close(handle);
  }
  std::string read_file(const std::string& name) {
    const Handle handle = open(name, O_RDONLY);
    std::string text(1000, '?');
    Result<size_t> count = storage_.pread(handle, std::as_writable_bytes(std::span(text)), 0);
    EXPECT_TRUE(count.is_ok()) << count.status().message();
    storage_.close(handle);
    text.resize(count.is_ok() ? *count : 0);
    return text;
  }
  struct stat attributes(const std::string& name) {
    Result<struct stat> result = storage_.stat_at(root_, name);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? *result : (struct stat){};
  }

  test::TemporaryDirectory directory_;
  PosixStorage storage_;
  Handle root_ = kNoHandle;
};

// --- handles and files -----------------------------------------------------------------------------------------------

TEST_F(PosixStorageTest, WritesAndReadsWholeRangesAndStopsAtTheEnd) {
  constexpr uint64_t kOffset = 5000, kLength = 100000;
  std::vector<std::byte> data(kLength), back(kLength + 10);
  test::fill(data, 1, kOffset);
  const Handle handle = open("a", O_RDWR | O_CREAT | O_EXCL);
  ASSERT_TRUE(storage_.pwrite(handle, data, kOffset).is_ok());
  Result<size_t> count = storage_.pread(handle, back, kOffset);
  ASSERT_TRUE(count.is_ok());
  EXPECT_EQ(*count, kLength);
  EXPECT_EQ(test::first_difference(std::span(back).first(kLength), 1, kOffset), kLength);
  count = storage_.pread(handle, back, kOffset + kLength);
  ASSERT_TRUE(count.is_ok());
  EXPECT_EQ(*count, 0u);
  EXPECT_TRUE(storage_.fsync(handle).is_ok());
  EXPECT_TRUE(storage_.fdatasync(handle).is_ok());
  EXPECT_TRUE(storage_.sync_filesystem(handle).is_ok());
  EXPECT_TRUE(storage_.fsync(root_).is_ok());
  storage_.close(handle);
}

TEST_F(PosixStorageTest, DirectReadStopsAtAnOddEnd) {
  make_file("a", std::string(6000, 'x'));
  Result<Handle> handle = storage_.open_at(root_, "a", O_RDONLY | O_DIRECT, 0);
  if (!handle.is_ok()) handle = storage_.open_at(root_, "a", O_RDONLY, 0);  // a filesystem without O_DIRECT
  ASSERT_TRUE(handle.is_ok()) << handle.status().message();
  test::AlignedBytes buffer(16384);
  Result<size_t> count = storage_.pread(*handle, buffer.span(), 0);
  ASSERT_TRUE(count.is_ok()) << count.status().message();
  EXPECT_EQ(*count, 6000u);
  storage_.close(*handle);
}

TEST_F(PosixStorageTest, TruncatesAllocatesAndFindsData) {
  const Handle handle = open("a", O_RDWR | O_CREAT | O_EXCL);
  ASSERT_TRUE(storage_.ftruncate(handle, 1 << 20).is_ok());
  EXPECT_EQ(storage_.fstat(handle)->st_size, 1 << 20);
  EXPECT_EQ(storage_.seek_data(handle, 0).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(storage_.pwrite(handle, bytes("data"), 512 * 1024).is_ok());
  Result<uint64_t> position = storage_.seek_data(handle, 0);
  ASSERT_TRUE(position.is_ok()) << position.status().message();
  EXPECT_EQ(*position, 512u * 1024);
  ASSERT_TRUE(storage_.fallocate(handle, 0, 1 << 20, 1 << 20).is_ok());
  EXPECT_EQ(storage_.fstat(handle)->st_size, 2 << 20);
  ASSERT_TRUE(storage_.fallocate(handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20).is_ok());
  EXPECT_EQ(storage_.fstat(handle)->st_blocks, 0);
  storage_.close(handle);
}

// Its number stays taken, so that a thread that comes late does not reach what was opened since; and its lock is free.
TEST_F(PosixStorageTest, ARetiredHandleLeadsToNothing) {
  make_file("a", "content");
  const Handle directory = *storage_.reopen(root_, O_RDONLY | O_DIRECTORY);
  const Handle file = open("a", O_RDWR);
  ASSERT_TRUE(storage_.lock(file, true).is_ok());
  ASSERT_TRUE(storage_.retire(directory).is_ok());
  ASSERT_TRUE(storage_.retire(file).is_ok());
  const Handle other = open("a", O_RDWR);
  EXPECT_NE(other, directory);
  EXPECT_NE(other, file);
  EXPECT_TRUE(storage_.lock(other, true).is_ok());
  EXPECT_EQ(storage_.open_at(directory, "a", O_RDONLY, 0).status().errno_value(), ENOTDIR);
  EXPECT_EQ(storage_.pwrite(file, bytes("x"), 0).errno_value(), EBADF);
  EXPECT_EQ(storage_.sync_filesystem(directory).errno_value(), EBADF);
  for (const Handle handle : {directory, file, other}) storage_.close(handle);
}

TEST_F(PosixStorageTest, ADuplicateIsAnotherHandleOfTheSameOpenFile) {
  make_file("a", "content");
  const Handle file = open("a", O_RDWR);
  ASSERT_TRUE(storage_.lock(file, true).is_ok());
  const Handle duplicate = *storage_.duplicate(file);
  EXPECT_NE(duplicate, file);
  EXPECT_NE(::fcntl(duplicate, F_GETFD) & FD_CLOEXEC, 0);
  storage_.close(file);
  EXPECT_TRUE(storage_.pwrite(duplicate, bytes("x"), 0).is_ok()) << "it may write as the other one might";
  const Handle other = open("a", O_RDWR);
  EXPECT_EQ(storage_.lock(other, true).code(), StatusCode::kBusy) << "the lock is the open file's";
  for (const Handle handle : {duplicate, other}) storage_.close(handle);
  EXPECT_EQ(storage_.duplicate(duplicate).status().errno_value(), EBADF);
}

TEST_F(PosixStorageTest, FailuresNameThePlace) {
  const Handle handle = open("a", O_RDONLY | O_CREAT);
  const Status status = storage_.pwrite(handle, bytes("x"), 77);
  EXPECT_EQ(status.errno_value(), EBADF);
  EXPECT_NE(status.message().find(directory_ / "a"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("write"), std::string::npos) << status.message();
  EXPECT_EQ(status.offset(), 77u);
  EXPECT_EQ(status.length(), 1u);
  EXPECT_EQ(storage_.describe(handle), directory_ / "a");
  storage_.close(handle);
  EXPECT_EQ(storage_.open_directory(directory_ / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(storage_.open_directory(directory_ / "a").status().errno_value(), ENOTDIR);
}

TEST_F(PosixStorageTest, HandlesAreClosedOnExec) {
  const Handle handle = open("a", O_RDWR | O_CREAT);
  Result<Handle> again = storage_.reopen(handle, O_RDONLY);
  ASSERT_TRUE(again.is_ok());
  for (const Handle each : {root_, handle, *again}) EXPECT_TRUE(::fcntl(each, F_GETFD) & FD_CLOEXEC);
  storage_.close(handle);
  storage_.close(*again);
}

TEST_F(PosixStorageTest, UnnamedFilesGetANameByLink) {
  Result<Handle> handle = storage_.open_at(root_, ".", O_TMPFILE | O_RDWR, 0600);
  ASSERT_TRUE(handle.is_ok()) << handle.status().message();
  ASSERT_TRUE(storage_.pwrite(*handle, bytes("content"), 0).is_ok());
  ASSERT_TRUE(storage_.link(*handle, root_, "named").is_ok());
  EXPECT_EQ(read_file("named"), "content");
  storage_.close(*handle);
}

TEST_F(PosixStorageTest, LocksExcludeOtherOpenFiles) {
  const Handle first = open("lock", O_RDWR | O_CREAT);
  const Handle second = open("lock", O_RDWR);
  EXPECT_TRUE(storage_.lock(first, false).is_ok());
  EXPECT_TRUE(storage_.lock(second, false).is_ok());
  EXPECT_EQ(storage_.lock(first, true).code(), StatusCode::kBusy);
  storage_.close(second);
  EXPECT_TRUE(storage_.lock(first, true).is_ok());
  storage_.close(first);
}

// A look at /proc/PID/fd keeps the file open for a moment after its process has closed it.
TEST_F(PosixStorageTest, ALockThatIsGivenUpInAMomentIsTaken) {
  const Handle first = open("lock", O_RDWR | O_CREAT);
  const Handle second = open("lock", O_RDWR);
  ASSERT_TRUE(storage_.lock(first, true).is_ok());
  std::thread holder([&] {
    ::usleep(50'000);
    storage_.close(first);
  });
  const Status locked = storage_.lock(second, true);
  holder.join();
  EXPECT_TRUE(locked.is_ok()) << locked.message();
  storage_.close(second);
}

TEST_F(PosixStorageTest, TellsSpace) {
  const Handle path = open(".", O_PATH | O_DIRECTORY);
  Result<struct statvfs> space = storage_.fstatvfs(path);
  ASSERT_TRUE(space.is_ok()) << space.status().message();
  EXPECT_GT(space->f_blocks, 0u);
  storage_.close(path);
}

// --- names -----------------------------------------------------------------------------------------------------------

TEST_F(PosixStorageTest, RefusesNamesThatLeaveTheDirectory) {
  make_file("a", "a");
  const Handle file = open("a", O_RDONLY);
  for (const std::string& name : {std::string("../a"), std::string(".."), std::string("b/c"), std::string("/a"),
                                  std::string(), std::string("a\0b", 3)}) {
    SCOPED_TRACE("'" + name + "'");
    const auto expect_refused = [](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    };
    expect_refused(storage_.open_at(root_, name, O_RDONLY, 0).status());
    expect_refused(storage_.stat_at(root_, name).status());
    expect_refused(storage_.make_directory(root_, name, 0700));
    expect_refused(storage_.unlink(root_, name));
    expect_refused(storage_.remove_directory(root_, name));
    expect_refused(storage_.rename(root_, name, root_, "x", 0));
    expect_refused(storage_.rename(root_, "a", root_, name, 0));
    expect_refused(storage_.link(file, root_, name));
    expect_refused(storage_.symlink("a", root_, name));
    expect_refused(storage_.make_node(root_, name, S_IFIFO | 0600, 0));
  }
  EXPECT_EQ(storage_.unlink(root_, ".").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(storage_.stat_at(root_, std::string(300, 'n')).status().errno_value(), ENAMETOOLONG);
  storage_.close(file);
}

TEST_F(PosixStorageTest, DoesNotFollowLinks) {
  make_file("target", "secret");
  ASSERT_TRUE(storage_.symlink("target", root_, "link").is_ok());
  EXPECT_EQ(storage_.open_at(root_, "link", O_RDONLY, 0).status().errno_value(), ELOOP);
  EXPECT_TRUE(S_ISLNK(attributes("link").st_mode));
  const Handle link = open("link", O_PATH);
  EXPECT_TRUE(S_ISLNK(storage_.fstat(link)->st_mode));
  EXPECT_EQ(*storage_.read_link(link), "target");
  EXPECT_EQ(storage_.reopen(link, O_RDONLY).status().errno_value(), ELOOP);
  storage_.close(link);
  const Handle target = open("target", O_PATH);
  EXPECT_EQ(storage_.read_link(target).status().errno_value(), EINVAL);
  storage_.close(target);
}

TEST_F(PosixStorageTest, DoesNotEnterLinkedDirectories) {
  ASSERT_TRUE(storage_.make_directory(root_, "d", 0700).is_ok());
  ASSERT_TRUE(storage_.symlink(directory_ / "d", root_, "absolute").is_ok());
  ASSERT_TRUE(storage_.symlink("d", root_, "relative").is_ok());
  ASSERT_TRUE(storage_.symlink("/proc/self/cwd", root_, "magic").is_ok());
  for (const char* name : {"absolute", "relative", "magic"}) {
    SCOPED_TRACE(name);
    for (const int flags : {O_RDONLY | O_DIRECTORY, O_RDONLY, O_RDWR | O_CREAT, O_PATH | O_DIRECTORY}) {
      const int error = storage_.open_at(root_, name, flags, 0600).status().errno_value();
      EXPECT_TRUE(error == ELOOP || error == ENOTDIR) << error << " with flags " << flags;
    }
  }
}

// In a mount namespace of its own, so that nothing is left behind on the machine.
TEST_F(PosixStorageTest, DoesNotEnterWhatIsMountedOverAnEntry) {
  test::TemporaryDirectory outside;
  ASSERT_TRUE(storage_.make_directory(root_, "d", 0700).is_ok());
  make_file("f", "inside");
  std::string refusal;
  std::thread([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0 ||
        ::mount(outside.path().c_str(), (directory_ / "d").c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount("/proc/self/status", (directory_ / "f").c_str(), nullptr, MS_BIND, nullptr) != 0) {
      refusal = std::strerror(errno);
      return;
    }
    Result<Handle> root = storage_.open_directory(directory_.path());
    ASSERT_TRUE(root.is_ok());
    for (const int flags : {O_RDONLY | O_DIRECTORY, O_PATH, O_RDONLY})
      EXPECT_EQ(storage_.open_at(*root, "d", flags, 0).status().errno_value(), EXDEV) << flags;
    for (const int flags : {O_PATH, O_RDONLY, O_RDWR | O_CREAT})
      EXPECT_EQ(storage_.open_at(*root, "f", flags, 0600).status().errno_value(), EXDEV) << flags;
    storage_.close(*root);
  }).join();
  if (!refusal.empty()) GTEST_SKIP() << "mounting in a namespace of its own: " << refusal;
}

TEST_F(PosixStorageTest, DoesNotWaitAtAFifo) {
  ASSERT_TRUE(storage_.make_node(root_, "fifo", S_IFIFO | 0600, 0).is_ok());
  const Handle reader = open("fifo", O_RDONLY);  // would wait for a writer for ever
  std::byte byte{};
  EXPECT_EQ(storage_.pread(reader, {&byte, 1}, 0).status().errno_value(), ESPIPE);
  storage_.close(reader);
  EXPECT_TRUE(S_ISFIFO(attributes("fifo").st_mode));
}

TEST_F(PosixStorageTest, MakesAndRemovesDirectoriesAndNodes) {
  ASSERT_TRUE(storage_.make_directory(root_, "d", 0750).is_ok());
  EXPECT_EQ(attributes("d").st_mode & (S_IFMT | 0777), static_cast<mode_t>(S_IFDIR | 0750));
  EXPECT_EQ(storage_.make_directory(root_, "d", 0750).code(), StatusCode::kExists);
  ASSERT_TRUE(storage_.make_node(root_, "fifo", S_IFIFO | 0600, 0).is_ok());
  EXPECT_TRUE(S_ISFIFO(attributes("fifo").st_mode));
  EXPECT_EQ(storage_.unlink(root_, "d").errno_value(), EISDIR);
  EXPECT_EQ(storage_.remove_directory(root_, "fifo").errno_value(), ENOTDIR);
  EXPECT_TRUE(storage_.unlink(root_, "fifo").is_ok());
  EXPECT_TRUE(storage_.remove_directory(root_, "d").is_ok());
  EXPECT_EQ(storage_.unlink(root_, "fifo").code(), StatusCode::kNotFound);
}

TEST_F(PosixStorageTest, RenamesWithAllFlags) {
  make_file("a", "A");
  make_file("b", "B");
  EXPECT_EQ(storage_.rename(root_, "a", root_, "b", RENAME_NOREPLACE).code(), StatusCode::kExists);
  ASSERT_TRUE(storage_.rename(root_, "a", root_, "b", RENAME_EXCHANGE).is_ok());
  EXPECT_EQ(read_file("a"), "B");
  EXPECT_EQ(read_file("b"), "A");
  ASSERT_TRUE(storage_.rename(root_, "a", root_, "b", 0).is_ok());
  EXPECT_EQ(read_file("b"), "B");
  const Status status = storage_.rename(root_, "a", root_, "c", 0);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("rename to c of a"), std::string::npos) << status.message();
}

TEST_F(PosixStorageTest, LinksWhatAPathHandleRefersTo) {
  make_file("a", "A");
  ASSERT_TRUE(storage_.symlink("nowhere", root_, "s").is_ok());
  const Handle file = open("a", O_PATH);
  const Handle link = open("s", O_PATH);
  EXPECT_TRUE(storage_.link(file, root_, "a2").is_ok());
  EXPECT_TRUE(storage_.link(link, root_, "s2").is_ok());
  EXPECT_EQ(attributes("a2").st_ino, attributes("a").st_ino);
  EXPECT_EQ(attributes("s2").st_ino, attributes("s").st_ino);
  EXPECT_TRUE(S_ISLNK(attributes("s2").st_mode));
  EXPECT_EQ(storage_.link(file, root_, "s").code(), StatusCode::kExists);
  // The handle goes on to name the inode when its name is gone.
  ASSERT_TRUE(storage_.unlink(root_, "a").is_ok());
  EXPECT_TRUE(storage_.link(file, root_, "a3").is_ok());
  storage_.close(file);
  storage_.close(link);
}

TEST_F(PosixStorageTest, ListsThroughAPathHandle) {
  std::map<std::string, unsigned char> expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "file" + std::to_string(i);
    storage_.close(open(name, O_WRONLY | O_CREAT));
    expected[name] = DT_REG;
  }
  ASSERT_TRUE(storage_.make_directory(root_, "d", 0700).is_ok());
  expected["d"] = DT_DIR;
  const Handle path = open(".", O_PATH | O_DIRECTORY);
  for (int round = 0; round < 2; ++round) {
    std::map<std::string, unsigned char> found;
    const Status status = storage_.list(path, [&](const DirectoryEntry& entry) {
      EXPECT_NE(entry.inode, 0u);
      EXPECT_TRUE(found.emplace(entry.name, entry.type).second) << entry.name << " came twice";
      return true;
    });
    EXPECT_TRUE(status.is_ok()) << status.message();
    EXPECT_EQ(found, expected);
  }
  int visits = 0;
  EXPECT_TRUE(storage_.list(path, [&](const DirectoryEntry&) { return ++visits < 3; }).is_ok());
  EXPECT_EQ(visits, 3);
  storage_.close(path);
  const Handle file = open("file1", O_PATH);
  EXPECT_EQ(storage_.list(file, [](const DirectoryEntry&) { return true; }).errno_value(), ENOTDIR);
  storage_.close(file);
}

// --- attributes of O_PATH handles ------------------------------------------------------------------------------------

TEST_F(PosixStorageTest, ReopensAPathHandle) {
  make_file("a", "before");
  const Handle path = open("a", O_PATH);
  ASSERT_TRUE(storage_.rename(root_, "a", root_, "b", 0).is_ok());
  Result<Handle> handle = storage_.reopen(path, O_RDWR);
  ASSERT_TRUE(handle.is_ok()) << handle.status().message();
  EXPECT_TRUE(storage_.pwrite(*handle, bytes("AFTER"), 0).is_ok());
  EXPECT_EQ(read_file("b"), "AFTERe");
  storage_.close(*handle);
  storage_.close(path);
}

TEST_F(PosixStorageTest, SetsAttributesThroughAPathHandle) {
  make_file("a", "");
  ASSERT_TRUE(storage_.make_directory(root_, "d", 0700).is_ok());
  for (const std::string name : {"a", "d"}) {
    const Handle path = open(name, O_PATH);
    EXPECT_TRUE(storage_.chmod(path, 0640).is_ok());
    EXPECT_EQ(attributes(name).st_mode & 07777, 0640u);
    const struct timespec times[2] = {{1000, 1}, {2000, 2}};
    EXPECT_TRUE(storage_.set_times(path, times).is_ok());
    const struct timespec only_access[2] = {{3000, 3}, {0, UTIME_OMIT}};
    EXPECT_TRUE(storage_.set_times(path, only_access).is_ok());
    EXPECT_EQ(attributes(name).st_atim.tv_sec, 3000);
    EXPECT_EQ(attributes(name).st_mtim.tv_sec, 2000);
    EXPECT_EQ(attributes(name).st_mtim.tv_nsec, 2);
    EXPECT_TRUE(storage_.chown(path, static_cast<uid_t>(-1), getgid()).is_ok());
    EXPECT_EQ(attributes(name).st_uid, getuid());
    if (getuid() == 0) {
      EXPECT_TRUE(storage_.chown(path, 12, 34).is_ok());
      EXPECT_EQ(attributes(name).st_uid, 12u);
      EXPECT_EQ(attributes(name).st_gid, 34u);
    }
    storage_.close(path);
  }
}

TEST_F(PosixStorageTest, SetsAttributesOfALinkAndNotOfItsTarget) {
  make_file("target", "");
  ASSERT_TRUE(storage_.symlink("target", root_, "link").is_ok());
  const struct stat before = attributes("target");
  const Handle link = open("link", O_PATH);
  const struct timespec times[2] = {{1000, 0}, {2000, 0}};
  EXPECT_TRUE(storage_.set_times(link, times).is_ok());
  EXPECT_EQ(attributes("link").st_mtim.tv_sec, 2000);
  EXPECT_EQ(attributes("target").st_mtim.tv_sec, before.st_mtim.tv_sec);
  if (getuid() == 0) {
    EXPECT_TRUE(storage_.chown(link, 12, 34).is_ok());
    EXPECT_EQ(attributes("link").st_uid, 12u);
    EXPECT_EQ(attributes("target").st_uid, before.st_uid);
    // Trusted attributes are the ones that a link may have.
    const Status status = storage_.set_xattr(link, "trusted.test", bytes("v"), 0);
    char value[8];
    if (status.is_ok()) {
      EXPECT_EQ(::lgetxattr((directory_ / "link").c_str(), "trusted.test", value, sizeof value), 1);
      EXPECT_LT(::getxattr((directory_ / "target").c_str(), "trusted.test", value, sizeof value), 0);
    }
  }
  // The kernel has no mode and no user attributes for links, and says so; the target stays as it was in any case.
  (void)storage_.chmod(link, 0600).is_ok();
  EXPECT_EQ(attributes("target").st_mode, before.st_mode);
  const int error = storage_.set_xattr(link, "user.test", bytes("v"), 0).errno_value();
  EXPECT_TRUE(error == EPERM || error == EOPNOTSUPP) << error;
  storage_.close(link);
}

TEST_F(PosixStorageTest, KeepsExtendedAttributes) {
  make_file("a", "");
  const Handle path = open("a", O_PATH);
  std::vector<std::byte> value(100);
  EXPECT_EQ(storage_.get_xattr(path, "user.k", value).status().errno_value(), ENODATA);
  const Status set = storage_.set_xattr(path, "user.k", bytes("value"), 0);
  if (set.errno_value() == EOPNOTSUPP) return storage_.close(path);  // a filesystem without user attributes says so
  ASSERT_TRUE(set.is_ok()) << set.message();
  EXPECT_EQ(storage_.set_xattr(path, "user.k", bytes("again"), XATTR_CREATE).code(), StatusCode::kExists);
  Result<size_t> size = storage_.get_xattr(path, "user.k", {});
  ASSERT_TRUE(size.is_ok());
  EXPECT_EQ(*size, 5u);
  size = storage_.get_xattr(path, "user.k", value);
  ASSERT_TRUE(size.is_ok());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(value.data()), *size), "value");
  EXPECT_EQ(storage_.get_xattr(path, "user.k", std::span(value).first(2)).status().errno_value(), ERANGE);
  size = storage_.list_xattr(path, value);
  ASSERT_TRUE(size.is_ok());
  EXPECT_NE(std::string(reinterpret_cast<char*>(value.data()), *size).find("user.k"), std::string::npos);
  EXPECT_TRUE(storage_.remove_xattr(path, "user.k").is_ok());
  EXPECT_EQ(storage_.remove_xattr(path, "user.k").errno_value(), ENODATA);
  storage_.close(path);
}

using PosixStorageDeathTest = PosixStorageTest;
TEST_F(PosixStorageDeathTest, ClosingTwiceIsABrokenInvariant) {
  const Handle handle = open("a", O_RDWR | O_CREAT);
  storage_.close(handle);
  EXPECT_DEATH(storage_.close(handle), "closed exactly once");
}

}  // namespace
}  // namespace fpfs
