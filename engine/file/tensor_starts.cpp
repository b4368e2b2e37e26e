#include "engine/file/tensor_starts.h"

#include <algorithm>

namespace fpfs {

void TensorStarts::know(std::vector<uint64_t> begins) {
  begins_ = std::move(begins);
  state_ = State::kKnown;
}

// Of the first tensor that begins at `offset`, which is that of a page, or behind it.
std::optional<uint64_t> TensorStarts::page_from(uint64_t offset) const {
  const auto found = std::lower_bound(begins_.begin(), begins_.end(), offset);
  if (found == begins_.end()) return std::nullopt;
  return round_down(*found, kIoAlignment);
}

// Of the first tensor that is not read with `page`.
std::optional<uint64_t> TensorStarts::page_behind(uint64_t page, uint64_t reach) const {
  return page_from(page + std::max<uint64_t>(reach, kIoAlignment));
}

// The page that is in the middle of what the kernel reads: of one request, or between two of them. Tensors that begin
// elsewhere in there were not waited for.
std::optional<uint64_t> TensorStarts::cause_of(const std::optional<uint64_t>& expected, uint64_t begin,
                                               uint64_t end) const {
  std::optional<uint64_t> cause;
  for (const uint64_t page : {begin, end, begin + round_down((end - begin) / 2, kIoAlignment)})
    if (page_from(page) == page && (!cause || page == expected)) cause = page;
  return cause;
}

namespace {
bool is_near(const std::optional<uint64_t>& page, uint64_t begin, uint64_t end) {
  return page && *page <= end + TensorStarts::kReachMax && begin <= *page + TensorStarts::kReachMax;
}
}  // namespace

bool TensorStarts::note(TensorHops& hops, FileOffset offset, uint32_t length, bool is_jump) const {
  if (begins_.empty() || length < kRequestMin) return false;
  const uint64_t begin = offset.value(), end = begin + length;
  const std::optional<uint64_t> expected = hops.at ? page_behind(*hops.at, hops.reach) : std::nullopt;
  const std::optional<uint64_t> cause = cause_of(expected, begin, end);
  hops.has_jumped |= is_jump;
  if (cause && cause != hops.at && hops.has_jumped) {
    const bool is_expected = cause == expected;
    hops.has_jumped = false;
    hops.kept_to = is_expected ? hops.kept_to + 1 : 0;
    hops.named = is_expected && hops.named > 0 ? hops.named - 1 : 0;
    hops.at = cause;
  } else if (cause ? cause != hops.at
                   : hops.kept_to == 0 || !(is_near(hops.at, begin, end) || is_near(expected, begin, end))) {
    if (is_jump) hops.kept_to = hops.named = 0;
    return false;
  }
  const uint64_t page = *hops.at;
  if (is_near(page, begin, end))
    hops.reach = std::clamp(std::max(page - std::min(page, begin), end - std::min(page, end)), hops.reach, kReachMax);
  return hops.kept_to > 0;
}

std::optional<std::pair<FileOffset, FileOffset>> TensorStarts::next_range(TensorHops& hops, uint64_t bytes_max) const {
  constexpr unsigned kDoublings = 4;
  if (hops.kept_to == 0) return std::nullopt;
  const uint64_t by_trust = uint64_t{1} << std::min(hops.kept_to, kDoublings);
  const uint64_t by_room = std::max<uint64_t>(bytes_max / (2 * hops.reach), 1);
  if (hops.named >= std::min(by_trust, by_room)) return std::nullopt;
  const std::optional<uint64_t> page = page_behind(hops.named > 0 ? hops.last_named : *hops.at, hops.reach);
  if (!page) return std::nullopt;
  hops.last_named = *page;
  ++hops.named;
  return std::pair(FileOffset(*page - std::min(*page, hops.reach)), FileOffset(*page + hops.reach));
}

}  // namespace fpfs
