// SparseImage: the bytes of one simulated file, with holes and preallocated space, in 4 KiB pages that copies share
// until one of them writes. Copying an image is therefore cheap, which is what snapshots and syncs are made of.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

namespace fpfs {

class SparseImage {
 public:
  static constexpr uint64_t kPageSize = 4096;

  uint64_t size() const { return size_; }
  // Fills `out` from `offset`, zeros for holes and past the end. Returns the bytes that lie before the end.
  size_t read(uint64_t offset, std::span<std::byte> out) const;
  // Extends the size when the write ends past it.
  void write(uint64_t offset, std::span<const std::byte> data);
  void set_size(uint64_t size);
  // fallocate(2): allocates; extends the size unless `keep_size`.
  void allocate(uint64_t offset, uint64_t length, bool keep_size);
  void punch(uint64_t offset, uint64_t length);
  // The first offset at or after `offset`, before the end, in a page that was written to.
  std::optional<uint64_t> next_data(uint64_t offset) const;
  uint64_t allocated_bytes() const { return pages_.size() * kPageSize; }
  // Bytes that writing to [offset, offset + length) would newly allocate.
  uint64_t missing_bytes(uint64_t offset, uint64_t length) const;

 private:
  using Page = std::array<std::byte, kPageSize>;
  Page& writable_page(uint64_t index);
  void zero(uint64_t offset, uint64_t length);

  std::map<uint64_t, std::shared_ptr<Page>> pages_;  // null: allocated, never written
  uint64_t size_ = 0;
};

}  // namespace fpfs
