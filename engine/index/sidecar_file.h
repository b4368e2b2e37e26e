// How a sidecar is read through Storage: fold_sidecar()'s view of an open file.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "engine/index/sidecar.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/storage.h"

namespace fpfs {

// Reads an open sidecar up to `end` (its size when it was opened: bytes that a running commit appends later are
// not looked at). The handle is a buffered one (no O_DIRECT) and stays the caller's, as does the Storage.
//
// Thread safety: none.
class StorageSidecarReader : public SidecarReader {
 public:
  StorageSidecarReader(Storage& storage, Handle handle, SidecarOffset end)
      : storage_(storage), handle_(handle), end_(end) {}

  Result<size_t> read(SidecarOffset offset, std::span<std::byte> buffer) override;
  Result<SidecarOffset> next_data(SidecarOffset offset) override;
  SidecarOffset end() const override { return end_; }

 private:
  Storage& storage_;
  const Handle handle_;
  const SidecarOffset end_;
};

// Reads it from the drive, past the page cache: what is stored, not what was written or read before. On a filesystem
// without O_DIRECT, where only a directory of names may lie, through the cache all the same.
//
// Thread safety: none.
class DirectSidecarReader : public SidecarReader {
 public:
  // Of what `sidecar` leads to, which stays the caller's and may be closed afterwards. Reads nothing yet.
  static Result<std::unique_ptr<DirectSidecarReader>> open(Storage& storage, Handle sidecar, SidecarOffset end);

  Result<size_t> read(SidecarOffset offset, std::span<std::byte> buffer) override;
  Result<SidecarOffset> next_data(SidecarOffset offset) override;
  SidecarOffset end() const override { return end_; }

 private:
  DirectSidecarReader(Storage& storage, ScopedHandle handle, bool is_direct, SidecarOffset end);
  Result<size_t> read_block(SidecarOffset offset, uint64_t length);

  Storage& storage_;
  ScopedHandle handle_;
  bool is_direct_;
  const SidecarOffset end_;
  std::unique_ptr<std::byte[], void (*)(void*)> bounce_;  // aligned, as O_DIRECT wants it
};

}  // namespace fpfs
