#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "engine/aio/aio.h"
#include "engine/base/units.h"

namespace fastpersist {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

PinnedBuffer PinnedBuffer::allocate(size_t size, Error& error) {
  error = {};
  PinnedBuffer buffer;
  if (size == 0 || size > SIZE_MAX / 2) {
    error = {EINVAL, "cannot pin " + std::to_string(size) + " bytes"};
    return buffer;
  }
  // The kernel uses huge pages for what begins at one: more is mapped than needed, and given back at both ends.
  const size_t spare = size >= kHugePage ? kHugePage : 0;
  const size_t mapped = fpfs::round_up(size, kAlignment);
  void* const memory = ::mmap(nullptr, mapped + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const int number = errno;
    error = {number, "map " + std::to_string(size) + " bytes: " + std::strerror(number)};
    return buffer;
  }
  auto* first = static_cast<std::byte*>(memory);
  if (spare > 0) {
    const auto address = reinterpret_cast<uintptr_t>(first);
    const size_t before = fpfs::round_up(address, kHugePage) - address;
    if (before > 0) ::munmap(first, before);
    first += before;
    if (spare > before) ::munmap(first + mapped, spare - before);
    ::madvise(first, mapped, MADV_HUGEPAGE);  // best effort
  }
  buffer.data_ = first;
  buffer.size_ = size;
  buffer.mapped_ = mapped;
  buffer.lock_error_ = ::mlock(first, mapped) == 0 ? 0 : errno;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      lock_error_(std::exchange(other.lock_error_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(lock_error_, other.lock_error_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

}  // namespace fastpersist
