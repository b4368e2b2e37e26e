#include "engine/index/sidecar_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "engine/base/check.h"

namespace fpfs {

namespace {

Result<SidecarOffset> seek_data(Storage& storage, Handle sidecar, SidecarOffset offset, SidecarOffset end) {
  if (offset >= end) return end;
  Result<uint64_t> data = storage.seek_data(sidecar, offset.value());
  if (data.is_ok()) return std::min(SidecarOffset(*data), end);
  if (data.status().code() == StatusCode::kNotFound) return end;
  return data.status();
}

}  // namespace

Result<size_t> StorageSidecarReader::read(SidecarOffset offset, std::span<std::byte> buffer) {
  if (offset >= end_) return size_t{0};
  return storage_.pread(handle_, buffer.first(std::min<uint64_t>(buffer.size(), end_ - offset)), offset.value());
}

Result<SidecarOffset> StorageSidecarReader::next_data(SidecarOffset offset) {
  return seek_data(storage_, handle_, offset, end_);
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

DirectSidecarReader::DirectSidecarReader(Storage& storage, ScopedHandle handle, bool is_direct, SidecarOffset end)
    : storage_(storage),
      handle_(std::move(handle)),
      is_direct_(is_direct),
      end_(end),
      bounce_(allocate_bounce(), std::free) {}

Result<std::unique_ptr<DirectSidecarReader>> DirectSidecarReader::open(Storage& storage, Handle sidecar,
                                                                       SidecarOffset end) {
  Result<Handle> opened = storage.reopen(sidecar, O_RDONLY | O_DIRECT);
  const bool is_direct = opened.is_ok() || !is_refusal(opened.status());
  if (!is_direct) opened = storage.reopen(sidecar, O_RDONLY);
  if (!opened.is_ok()) return opened.status();
  return std::unique_ptr<DirectSidecarReader>(
      new DirectSidecarReader(storage, ScopedHandle(storage, *opened), is_direct, end));
}

// Into the bounce buffer, aligned.
Result<size_t> DirectSidecarReader::read_block(SidecarOffset offset, uint64_t length) {
  const std::span<std::byte> block(bounce_.get(), length);
  Result<size_t> got = storage_.pread(handle_.get(), block, offset.value());
  if (got.is_ok() || !is_direct_ || !is_refusal(got.status())) return got;
  FPFS_ASSIGN_OR_RETURN(const Handle buffered, storage_.reopen(handle_.get(), O_RDONLY));
  handle_ = ScopedHandle(storage_, buffered);
  is_direct_ = false;
  return storage_.pread(buffered, block, offset.value());
}

Result<size_t> DirectSidecarReader::read(SidecarOffset offset, std::span<std::byte> buffer) {
  if (offset >= end_) return size_t{0};
  buffer = buffer.first(std::min<uint64_t>(buffer.size(), end_ - offset));
  size_t done = 0;
  while (done < buffer.size()) {
    const SidecarOffset at = offset + done;
    const SidecarOffset begin = round_down(at, kIoAlignment);
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

Result<SidecarOffset> DirectSidecarReader::next_data(SidecarOffset offset) {
  return seek_data(storage_, handle_.get(), offset, end_);
}

}  // namespace fpfs
