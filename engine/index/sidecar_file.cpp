#include "engine/index/sidecar_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "engine/base/check.h"

namespace fpfs {

Result<size_t> StorageSidecarReader::read(uint64_t offset, std::span<std::byte> buffer) {
  if (offset >= size_) return size_t{0};
  return storage_.pread(handle_, buffer.first(std::min<uint64_t>(buffer.size(), size_ - offset)), offset);
}

Result<uint64_t> StorageSidecarReader::next_data(uint64_t offset) {
  if (offset >= size_) return size_;
  Result<uint64_t> data = storage_.seek_data(handle_, offset);
  if (data.is_ok()) return std::min(*data, size_);
  if (data.status().code() == StatusCode::kNotFound) return size_;
  return data.status();
}

namespace {

constexpr uint64_t kBounceSize = 64 * kKiB;

std::byte* allocate_bounce() {
  void* const memory = std::aligned_alloc(kIoAlignment, kBounceSize);
  FPFS_CHECK(memory != nullptr, "64 KiB are there");
  return static_cast<std::byte*>(memory);
}

// A filesystem may say so when a file is opened, or only when it is read.
bool is_refusal(const Status& status) {
  return status.errno_value() == EINVAL || status.errno_value() == EOPNOTSUPP;
}

}  // namespace

DirectSidecarReader::DirectSidecarReader(Storage& storage, ScopedHandle handle, bool is_direct, uint64_t size)
    : storage_(storage),
      handle_(std::move(handle)),
      is_direct_(is_direct),
      size_(size),
      bounce_(allocate_bounce(), std::free) {}

Result<std::unique_ptr<DirectSidecarReader>> DirectSidecarReader::open(Storage& storage, Handle sidecar,
                                                                       uint64_t size) {
  Result<Handle> opened = storage.reopen(sidecar, O_RDONLY | O_DIRECT);
  const bool is_direct = opened.is_ok() || !is_refusal(opened.status());
  if (!is_direct) opened = storage.reopen(sidecar, O_RDONLY);
  if (!opened.is_ok()) return opened.status();
  return std::unique_ptr<DirectSidecarReader>(
      new DirectSidecarReader(storage, ScopedHandle(storage, *opened), is_direct, size));
}

// Into the bounce buffer, aligned.
Result<size_t> DirectSidecarReader::read_block(uint64_t offset, uint64_t length) {
  const std::span<std::byte> block(bounce_.get(), length);
  Result<size_t> got = storage_.pread(handle_.get(), block, offset);
  if (got.is_ok() || !is_direct_ || !is_refusal(got.status())) return got;
  FPFS_ASSIGN_OR_RETURN(const Handle buffered, storage_.reopen(handle_.get(), O_RDONLY));
  handle_ = ScopedHandle(storage_, buffered);
  is_direct_ = false;
  return storage_.pread(buffered, block, offset);
}

Result<size_t> DirectSidecarReader::read(uint64_t offset, std::span<std::byte> buffer) {
  if (offset >= size_) return size_t{0};
  buffer = buffer.first(std::min<uint64_t>(buffer.size(), size_ - offset));
  size_t done = 0;
  while (done < buffer.size()) {
    const uint64_t at = offset + done;
    const uint64_t begin = round_down(at, kIoAlignment);
    const uint64_t length = std::min(round_up(offset + buffer.size(), kIoAlignment) - begin, kBounceSize);
    FPFS_ASSIGN_OR_RETURN(const size_t got, read_block(begin, length));
    if (got <= at - begin) break;
    const size_t usable = std::min<size_t>(got - (at - begin), buffer.size() - done);
    std::copy_n(bounce_.get() + (at - begin), usable, buffer.data() + done);
    done += usable;
    if (got < length) break;
  }
  return done;
}

Result<uint64_t> DirectSidecarReader::next_data(uint64_t offset) {
  if (offset >= size_) return size_;
  Result<uint64_t> data = storage_.seek_data(handle_.get(), offset);
  if (data.is_ok()) return std::min(*data, size_);
  if (data.status().code() == StatusCode::kNotFound) return size_;
  return data.status();
}

}  // namespace fpfs
