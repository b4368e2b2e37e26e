#include "fs/interface/end_report.h"

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

// A device that no mount has, so that tests of several processes do not meet.
MountEntry mount_of(const std::string& source) {
  MountEntry mount;
  mount.source = source;
  mount.device_major = static_cast<unsigned>(::getpid());
  mount.device_minor = 1;
  return mount;
}

// A connection to whoever listens for the mount; -1 when nobody does.
int connect_to(const MountEntry& mount) {
  const EndReportAddress address(mount);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(descriptor, address.get(), address.length()) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

// What comes before the other side closes.
std::string read_all(int descriptor) {
  std::string text;
  char buffer[256];
  for (ssize_t count; (count = ::recv(descriptor, buffer, sizeof buffer, 0)) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  ::close(descriptor);
  return text;
}

TEST(EndReport, TellsWhoWaits) {
  int waiting = -1;
  {
    EndReport report;
    EXPECT_EQ(report.descriptor(), -1);
    ASSERT_TRUE(report.listen(mount_of("/a:/b")).is_ok());
    waiting = connect_to(mount_of("/a:/b"));
    ASSERT_GE(waiting, 0);
    report.say(1, "member 1 is full");
  }
  EXPECT_EQ(read_all(waiting), "1\nmember 1 is full");
}

TEST(EndReport, TheNextMountOnTheDeviceIsNotTakenForIt) {
  EndReport before, next;
  ASSERT_TRUE(before.listen(mount_of("/a:/b")).is_ok());
  const Status status = next.listen(mount_of("/c:/d"));
  ASSERT_TRUE(status.is_ok()) << status.message();
  const int waiting = connect_to(mount_of("/c:/d"));
  ASSERT_GE(waiting, 0);
  before.say(1, "before");
  next.say(0, "next");
  char text[16] = {};
  EXPECT_EQ(::recv(waiting, text, sizeof text, 0), 6);
  EXPECT_STREQ(text, "0\nnext");
  ::close(waiting);
}

TEST(EndReport, AMountThatIsOverLeavesItsNameToTheNext) {
  EndReport report;
  ASSERT_TRUE(report.listen(mount_of("/a")).is_ok());
  const int waiting = connect_to(mount_of("/a"));
  ASSERT_GE(waiting, 0);
  report.stop_listening();
  EXPECT_EQ(report.descriptor(), -1);
  EXPECT_EQ(connect_to(mount_of("/a")), -1);
  EndReport again;
  const Status status = again.listen(mount_of("/a"));
  EXPECT_TRUE(status.is_ok()) << status.message();
  report.say(0, "");
  char text[16] = {};
  EXPECT_EQ(::recv(waiting, text, sizeof text, 0), 2) << "who asked before it was over is told";
  EXPECT_STREQ(text, "0\n");
  ::close(waiting);
}

// The kernel may keep a process for as long as a drive hangs.
TEST(EndReport, WhoHasSaidItsEndHasNoName) {
  EndReport report, next;
  ASSERT_TRUE(report.listen(mount_of("/a")).is_ok());
  report.say(1, "a drive does not answer");
  EXPECT_TRUE(next.listen(mount_of("/a")).is_ok());
}

}  // namespace
}  // namespace fpfs
