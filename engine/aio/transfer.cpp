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

}  // namespace

Transfer::Transfer(Kind kind, std::string path, std::byte* data, size_t length, uint64_t offset, bool durable)
    : kind_(kind), path_(std::move(path)), data_(data), length_(length), offset_(offset), durable_(durable) {}

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
  if (!open_first(has_whole)) return;
  if (has_whole && has_parts && !open_second()) return;
  if (!is_read()) size_file(options);
}

bool Transfer::open_first(bool direct) {
  const int flags = (is_read() ? O_RDONLY : O_WRONLY | O_CREAT) | O_CLOEXEC | O_NOCTTY | (direct ? O_DIRECT : 0);
  FileDescriptor& file = direct ? direct_ : cached_;
  file = FileDescriptor(again_when_interrupted([&] { return ::open(path_.c_str(), flags, 0666); }));
  if (file.is_open()) return true;
  // A file that this made stays, empty: the kernel looks at O_DIRECT last.
  fail(errno,
       direct && errno == EINVAL ? "open with O_DIRECT (its filesystem may have none: AioOptions::direct)" : "open");
  return false;
}

// The same file again, whatever has the name by now.
bool Transfer::open_second() {
  const std::string same = "/proc/self/fd/" + std::to_string(direct_.number());
  const int flags = (is_read() ? O_RDONLY : O_WRONLY) | O_CLOEXEC | O_NOCTTY;
  cached_ = FileDescriptor(again_when_interrupted([&] { return ::open(same.c_str(), flags); }));
  if (!cached_.is_open()) fail(errno, "open through /proc/self/fd");
  return cached_.is_open();
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
    const std::string directory = directory_of(path_);
    const FileDescriptor parent(
        again_when_interrupted([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!parent.is_open() || again_when_interrupted([&] { return ::fsync(parent.number()); }) < 0)
      fail(errno, "sync the directory of");
  }
  close_file(direct_);
  close_file(cached_);
}

// Some filesystems (NFS, FUSE) say only now what went wrong.
void Transfer::close_file(FileDescriptor& file) {
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
