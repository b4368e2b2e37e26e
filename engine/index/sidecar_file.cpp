#include "engine/index/sidecar_file.h"

#include <algorithm>

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

}  // namespace fpfs
