// How a sidecar is read through Storage: fold_sidecar()'s view of an open file.
#pragma once

#include <cstdint>

#include "engine/index/sidecar.h"
#include "engine/io/storage.h"

namespace fpfs {

// Reads an open sidecar up to `size` bytes (its size when it was opened: bytes that a running commit appends later are
// not looked at). The handle is a buffered one (no O_DIRECT) and stays the caller's, as does the Storage.
//
// Thread safety: none.
class StorageSidecarReader : public SidecarReader {
 public:
  StorageSidecarReader(Storage& storage, Handle handle, uint64_t size)
      : storage_(storage), handle_(handle), size_(size) {}

  Result<size_t> read(uint64_t offset, std::span<std::byte> buffer) override;
  Result<uint64_t> next_data(uint64_t offset) override;
  uint64_t size() const override { return size_; }

 private:
  Storage& storage_;
  const Handle handle_;
  const uint64_t size_;
};

}  // namespace fpfs
