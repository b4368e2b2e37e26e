#include "engine/io/sim/sparse_image.h"

#include <algorithm>
#include <cstring>

#include "engine/base/units.h"

namespace fpfs {

size_t SparseImage::read(uint64_t offset, std::span<std::byte> out) const {
  std::fill(out.begin(), out.end(), std::byte{0});
  if (offset >= size_) return 0;
  const uint64_t end = offset + std::min<uint64_t>(out.size(), size_ - offset);
  for (auto page = pages_.lower_bound(offset / kPageSize); page != pages_.end(); ++page) {
    const uint64_t begin_of_page = page->first * kPageSize;
    if (begin_of_page >= end) break;
    if (page->second == nullptr) continue;
    const uint64_t from = std::max(offset, begin_of_page);
    const uint64_t to = std::min(end, begin_of_page + kPageSize);
    std::memcpy(out.data() + (from - offset), page->second->data() + (from - begin_of_page), to - from);
  }
  return end - offset;
}

SparseImage::Page& SparseImage::writable_page(uint64_t index) {
  std::shared_ptr<Page>& page = pages_[index];
  if (page == nullptr)
    page = std::make_shared<Page>();
  else if (page.use_count() > 1)
    page = std::make_shared<Page>(*page);
  return *page;
}

void SparseImage::write(uint64_t offset, std::span<const std::byte> data) {
  size_t done = 0;
  while (done < data.size()) {
    const uint64_t at = offset + done;
    const size_t count = std::min<size_t>(data.size() - done, kPageSize - at % kPageSize);
    std::memcpy(writable_page(at / kPageSize).data() + at % kPageSize, data.data() + done, count);
    done += count;
  }
  if (!data.empty()) size_ = std::max(size_, offset + data.size());
}

void SparseImage::set_size(uint64_t size) {
  if (size < size_) {
    pages_.erase(pages_.lower_bound((size + kPageSize - 1) / kPageSize), pages_.end());
    zero(size, round_up(size, kPageSize) - size);
  }
  size_ = size;
}

void SparseImage::allocate(uint64_t offset, uint64_t length, bool keep_size) {
  for (uint64_t page = offset / kPageSize; page * kPageSize < offset + length; ++page)
    pages_.try_emplace(page, nullptr);
  if (!keep_size) size_ = std::max(size_, offset + length);
}

void SparseImage::punch(uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length;
  const uint64_t first_whole = round_up(offset, kPageSize);
  const uint64_t end_whole = round_down(end, kPageSize);
  if (first_whole >= end_whole) {
    const uint64_t boundary = std::min(first_whole, end);
    zero(offset, boundary - offset);
    zero(boundary, end - boundary);
    return;
  }
  zero(offset, first_whole - offset);
  pages_.erase(pages_.lower_bound(first_whole / kPageSize), pages_.lower_bound(end_whole / kPageSize));
  zero(end_whole, end - end_whole);
}

// Within one page.
void SparseImage::zero(uint64_t offset, uint64_t length) {
  if (length == 0) return;
  auto page = pages_.find(offset / kPageSize);
  if (page == pages_.end() || page->second == nullptr) return;
  std::memset(writable_page(page->first).data() + offset % kPageSize, 0, length);
}

std::optional<uint64_t> SparseImage::next_data(uint64_t offset) const {
  for (auto page = pages_.lower_bound(offset / kPageSize); page != pages_.end(); ++page) {
    const uint64_t found = std::max(offset, page->first * kPageSize);
    if (found >= size_) break;
    if (page->second != nullptr) return found;
  }
  return std::nullopt;
}

uint64_t SparseImage::missing_bytes(uint64_t offset, uint64_t length) const {
  uint64_t missing = 0;
  for (uint64_t page = offset / kPageSize; page * kPageSize < offset + length; ++page)
    if (!pages_.contains(page)) missing += kPageSize;
  return missing;
}

}  // namespace fpfs
