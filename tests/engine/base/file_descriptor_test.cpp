// Descriptors that are closed with their owner, and one that takes another's place.
#include "engine/base/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

bool is_open(int number) {
  return ::fcntl(number, F_GETFD) >= 0;
}

TEST(FileDescriptor, IsClosedWithItsOwner) {
  int number = -1;
  {
    FileDescriptor first = open_nothing();
    number = first.number();
    EXPECT_TRUE(first.is_open() && is_open(number));
    const FileDescriptor second = std::move(first);
    EXPECT_EQ(second.number(), number);
  }
  EXPECT_FALSE(is_open(number));
}

// Who still writes to the number of a connection that has ended must not write into a file that is opened then.
TEST(FileDescriptor, NothingKeepsANumberTaken) {
  const FileDescriptor ended(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::write(ended.number(), "x", 1), 1);
  const FileDescriptor nothing = open_nothing();
  ASSERT_EQ(::dup3(nothing.number(), ended.number(), O_CLOEXEC), ended.number());
  const FileDescriptor file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_NE(file.number(), ended.number());
  char byte = 0;
  EXPECT_EQ(::write(ended.number(), &byte, 1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(::read(ended.number(), &byte, 1), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace fpfs
