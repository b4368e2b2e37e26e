#include "engine/aio/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/units.h"

namespace fastpersist {
namespace {

using fpfs::FileDescriptor;

template <typename Call>
auto again_when_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The file of an open descriptor once more, whatever has its name by now.
std::string proc_path(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

}  // namespace

Transfer::Transfer(Kind kind, std::string path, std::byte* data, size_t length, uint64_t offset, bool durable)
    : kind_(kind), path_(std::move(path)), data_(data), length_(length), offset_(offset), durable_(durable) {}

Transfer::Transfer(Kind kind, int given, std::byte* data, size_t length, uint64_t offset, bool durable)
    : kind_(kind),
      path_(proc_path(given)),
      given_(given),
      data_(data),
      length_(length),
      offset_(offset),
      durable_(durable) {}

void Transfer::fail(int error_number, const std::string& operation) {
  if (!error_.is_ok()) return;
  error_ = {error_number, operation + " " + path_ + ": " + std::strerror(error_number)};
}

// --- files -----------------------------------------------------------------------------------------------------------

void Transfer::open_files(const AioOptions& options) {
  if (data_ == nullptr && length_ > 0) return fail(EINVAL, "no memory for");
  if (offset_ > fpfs::kFileSizeMax || length_ > fpfs::kFileSizeMax - offset_)
    return fail(is_read() ? EINVAL : EFBIG, "no file is as long as this part of");
  const uint64_t first_whole = fpfs::round_up(offset_, kAlignment);
  const uint64_t end_whole = fpfs::round_down(offset_ + length_, kAlignment);
  const bool has_whole = options.direct && end_whole > first_whole;
  const bool has_parts = !has_whole || offset_ != first_whole || offset_ + length_ != end_whole;
  if (given_.has_value() && !check_given()) return;
  if (!open_file(has_whole)) return;
  if (has_whole && has_parts && !open_file(false)) return;
  if (!is_read()) size_file(options);
}

bool Transfer::check_given() {
  const int flags = ::fcntl(*given_, F_GETFL);
  if (flags < 0) {
    fail(errno, "use");
  } else if ((flags & O_ACCMODE) == (is_read() ? O_WRONLY : O_RDONLY)) {
    fail(EBADF, is_read() ? "not open for reading:" : "not open for writing:");
  } else if (!is_read() && (flags & O_APPEND) != 0) {
    fail(EINVAL, "no offset counts where all is appended (O_APPEND):");
  } else {
    given_is_direct_ = (flags & O_DIRECT) != 0;
  }
  return error_.is_ok();
}

bool Transfer::open_file(bool direct) {
  FileDescriptor& file = direct ? direct_ : cached_;
  if (given_.has_value() && given_is_direct_ == direct) {
    file = FileDescriptor(*given_);
    return true;
  }
  const int same = given_.value_or(direct_.number());
  const std::string path = same >= 0 ? proc_path(same) : path_;
  int flags = (is_read() ? O_RDONLY : O_WRONLY) | O_CLOEXEC | O_NOCTTY;
  if (direct) flags |= O_DIRECT;
  if (!is_read() && same < 0) flags |= O_CREAT;
  file = FileDescriptor(again_when_interrupted([&] { return ::open(path.c_str(), flags, 0666); }));
  if (file.is_open()) return true;
  // A file that this made stays, empty: the kernel looks at O_DIRECT last.
  fail(errno, direct && errno == EINVAL ? "open with O_DIRECT (its filesystem may have none: AioOptions::direct)"
              : same >= 0               ? "open through /proc/self/fd"
                                        : "open");
  return false;
}

void Transfer::size_file(const AioOptions& options) {
  const int file = direct_.is_open() ? direct_.number() : cached_.number();
  struct stat attributes {};
  if (::fstat(file, &attributes) < 0) return fail(errno, "stat");
  if (!S_ISREG(attributes.st_mode)) return;
  const auto size = static_cast<uint64_t>(attributes.st_size);
  const uint64_t end = offset_ + length_;
  if (kind_ == Kind::kWriteFile && size > end) {
    if (again_when_interrupted([&] { return ::ftruncate(file, static_cast<off_t>(end)); }) < 0) fail(errno, "cut");
    return;
  }
  if (size >= end || length_ <= options.block_size) return;
  const int result = again_when_interrupted(
      [&] { return ::fallocate(file, 0, static_cast<off_t>(offset_), static_cast<off_t>(length_)); });
  if (result < 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail(errno, "reserve the space of");
}

void Transfer::finish() {
  if (error_.is_ok() && is_read() && moved_ < length_) {
    fail(ENODATA, "read " + std::to_string(length_) + " bytes at " + std::to_string(offset_) + ", got " +
                      std::to_string(moved_) + " to the end of");
  }
  if (error_.is_ok() && durable_) {
    const int file = direct_.is_open() ? direct_.number() : cached_.number();
    if (again_when_interrupted([&] { return ::fdatasync(file); }) < 0) fail(errno, "sync");
    if (!given_.has_value()) sync_directory();
  }
  close_file(direct_);
  close_file(cached_);
}

void Transfer::sync_directory() {
  const std::string directory = directory_of(path_);
  const FileDescriptor parent(
      again_when_interrupted([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!parent.is_open() || again_when_interrupted([&] { return ::fsync(parent.number()); }) < 0)
    fail(errno, "sync the directory of");
}

// Some filesystems (NFS, FUSE) say only now what went wrong.
void Transfer::close_file(FileDescriptor& file) {
  if (file.number() == given_) {
    file.release();
    return;
  }
  if (file.is_open() && ::close(file.release()) < 0 && errno != EINTR && !is_read()) fail(errno, "close");
}

// --- blocks ----------------------------------------------------------------------------------------------------------

bool Transfer::next_block(const AioOptions& options, Block* block) {
  if (!error_.is_ok() || next_ == length_) return false;
  const uint64_t at = offset_ + next_, left = length_ - next_;
  const uint64_t to_whole = fpfs::round_up(at, kAlignment) - at;
  uint64_t length = 0;
  bool is_direct = false;
  if (!options.direct) {
    length = std::min<uint64_t>(left, options.block_size);
  } else if (to_whole > 0) {
    length = std::min(left, to_whole);
  } else if (left >= kAlignment) {
    is_direct = true;
    length = std::min<uint64_t>(fpfs::round_down(left, kAlignment), options.block_size);
  } else {
    length = left;
  }
  *block = {(is_direct ? direct_ : cached_).number(), data_ + next_, at, static_cast<uint32_t>(length), is_direct};
  next_ += length;
  ++under_way_;
  return true;
}

void Transfer::block_ended(const Block& block, uint32_t moved, int error_number) {
  --under_way_;
  moved_ += moved;
  if (error_number == 0) return;
  fail(error_number, (is_read() ? "read " : "write ") + std::to_string(block.length) + " bytes at " +
                         std::to_string(block.offset) + " of");
}

}  // namespace fastpersist
