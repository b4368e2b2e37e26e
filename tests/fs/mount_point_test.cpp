#include "fs/interface/mount_point.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

TEST(MountTable, ReadsMountsOfAllKinds) {
  const std::vector<MountEntry> entries = parse_mount_table(
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "not a mount line\n"
      "99 22 0:39 / /mnt/with\\040space\\134x rw,nosuid - fuse.fastpersistfs /nvme0/fp:/nvme1/fp rw,user_id=0\n"
      "100 22 0:40 /sub /b rw shared:3 master:1 - xfs /dev/nvme0n1 rw\n"
      "101 22 0:41 / /c rw\n");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].mount_point, "/");
  EXPECT_EQ(entries[0].device_major, 254U);
  EXPECT_EQ(entries[1].mount_point, "/mnt/with space\\x");
  EXPECT_EQ(entries[1].type, kFilesystemType);
  EXPECT_EQ(entries[1].source, "/nvme0/fp:/nvme1/fp");
  EXPECT_EQ(entries[1].device_minor, 39U);
  EXPECT_EQ(entries[2].type, "xfs");
}

TEST(MountTable, KnowsTheRootOfThisMachine) {
  const std::vector<MountEntry> entries = read_mount_table();
  ASSERT_FALSE(entries.empty());
  EXPECT_FALSE(is_source_mounted("no such source"));
}

class MountPointTest : public testing::Test {
 protected:
  test::TemporaryDirectory directory_;
};

TEST_F(MountPointTest, AnEmptyDirectoryWillDo) {
  const Status status = check_mount_point(directory_.path(), {"/elsewhere"}, false);
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST_F(MountPointTest, MissingOrNoDirectoryIsRefused) {
  EXPECT_FALSE(check_mount_point(directory_ / "missing", {}, false).is_ok());
  std::ofstream(directory_ / "file") << "x";
  const Status status = check_mount_point(directory_ / "file", {}, true);
  EXPECT_NE(status.message().find("is not a directory"), std::string::npos) << status.message();
}

TEST_F(MountPointTest, ContentIsHiddenOnlyWhenAskedFor) {
  std::ofstream(directory_ / "precious") << "x";
  const Status status = check_mount_point(directory_.path(), {}, false);
  EXPECT_NE(status.message().find("is not empty (it holds 'precious')"), std::string::npos) << status.message();
  EXPECT_TRUE(check_mount_point(directory_.path(), {}, true).is_ok());
}

TEST_F(MountPointTest, APlaceInAMemberIsRefused) {
  std::filesystem::create_directories(directory_ / "fp/inner");
  std::filesystem::create_directories(directory_ / "fp2");
  for (const char* name : {"fp", "fp/inner"}) {
    const Status status = check_mount_point(directory_ / name, {"/other", directory_ / "fp"}, true);
    EXPECT_NE(status.message().find("lies in member directory"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(check_mount_point(directory_ / "fp2", {directory_ / "fp"}, false).is_ok());
  // Whatever path a member was given by.
  std::filesystem::create_symlink(directory_ / "fp", directory_ / "alias");
  const Status status = check_mount_point(directory_ / "fp/inner", {directory_ / "alias"}, false);
  EXPECT_NE(status.message().find("lies in member directory"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace fpfs
