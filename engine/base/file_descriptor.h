// FileDescriptor: a descriptor of the kernel that is closed with its owner: a socket, an event, a pipe, a file outside
// the members. (What is open on a member is a Handle of its Storage, and owned by a ScopedHandle.)
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace fpfs {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}  // -1, what a call that failed returns: none
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int number() const { return number_; }  // -1: none
  bool is_open() const { return number_ >= 0; }
  // Gives the descriptor to someone else to close.
  int release() { return std::exchange(number_, -1); }
  void reset() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

// One that nothing can be read from or written to: it takes the place (dup3(2)) of one whose number others still use.
inline FileDescriptor open_nothing() {
  return FileDescriptor(::open("/dev/null", O_PATH | O_CLOEXEC));
}

}  // namespace fpfs
