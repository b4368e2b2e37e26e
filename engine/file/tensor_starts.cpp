#include "engine/file/tensor_starts.h"

#include <algorithm>

namespace fpfs {

// --- knowing ---------------------------------------------------------------------------------------------------------

bool TensorStarts::count_jump() {
  constexpr unsigned kJumps = 3;
  return ++jumps_ >= kJumps;
}

uint64_t TensorStarts::ask() {
  state_ = State::kAsked;
  jumps_ = 0;
  return ++questions_;
}

void TensorStarts::know(uint64_t question, const std::vector<uint64_t>& begins) {
  if (state_ != State::kAsked || question != questions_) return;
  state_ = State::kKnown;
  std::vector<uint64_t> pages;
  for (const uint64_t begin : begins) {
    const uint64_t page = round_down(begin, kIoAlignment);
    if (pages.empty() || pages.back() != page) pages.push_back(page);
  }
  pages.shrink_to_fit();
  pages_ = std::move(pages);
}

void TensorStarts::forget() {
  if (state_ == State::kUnknown) return;
  state_ = State::kUnknown;
  pages_ = {};
}

// --- pages -----------------------------------------------------------------------------------------------------------

std::optional<uint64_t> TensorStarts::first_from(uint64_t offset) const {
  const auto found = std::lower_bound(pages_.begin(), pages_.end(), offset);
  return found != pages_.end() ? std::optional(*found) : std::nullopt;
}

// The first one that is not read with `page`.
std::optional<uint64_t> TensorStarts::behind(uint64_t page, uint64_t reach) const {
  return first_from(page + std::max<uint64_t>(reach, kIoAlignment));
}

// The page that is in the middle of what the kernel reads: of one request, or between two of them. Tensors that begin
// elsewhere in there were not waited for.
std::optional<uint64_t> TensorStarts::cause_of(const std::optional<uint64_t>& expected, uint64_t begin,
                                               uint64_t end) const {
  std::optional<uint64_t> cause;
  for (const uint64_t page : {begin, end, begin + round_down((end - begin) / 2, kIoAlignment)})
    if (first_from(page) == page && (!cause || page == expected)) cause = page;
  return cause;
}

// --- one reader ------------------------------------------------------------------------------------------------------

namespace {
bool ends_close_before(const TensorHops::Range& request, uint64_t page) {
  return request.end <= page && page - request.end < TensorStarts::kReachMax;
}

// Around the page where the reader is. Behind it no more is believed to than came before it: who reads on comes by there.
bool is_around(const TensorHops& hops, const TensorHops::Range& request) {
  if (!hops.at) return false;
  const uint64_t page = *hops.at;
  return ends_close_before(request, page) ||
         (request.begin >= page && request.begin < page + std::max(hops.before, hops.reach));
}

// A jump to what the kernel reads around `page`, further out than its halves.
bool comes_with(const std::optional<uint64_t>& page, const TensorHops::Range& jump) {
  return page &&
         (ends_close_before(jump, *page) || (jump.begin >= *page && jump.begin - *page < TensorStarts::kReachMax));
}

void learn(TensorHops& hops, const TensorHops::Range& request) {
  const auto widen = [](uint64_t& side, uint64_t from, uint64_t to) {
    if (from < to) side = std::clamp(to - from, side, TensorStarts::kReachMax);
  };
  widen(hops.before, request.begin, *hops.at);
  widen(hops.after, *hops.at, request.end);
  hops.reach = std::max(hops.reach, std::min(hops.before, hops.after));
}
}  // namespace

void TensorStarts::move(TensorHops& hops, uint64_t page) const {
  const bool is_next = hops.at && page > *hops.at && page <= behind(*hops.at, kReachMax).value_or(page);
  if (!is_next) hops.reach = 0;
  hops.kept_to = is_next ? hops.kept_to + 1 : 0;
  hops.named = is_next && page < hops.last_named ? hops.named - std::min(hops.named, 1U) : 0;
  hops.at = page;
  hops.before = hops.after = 0;
}

bool TensorStarts::note(TensorHops& hops, FileOffset offset, uint32_t length, bool is_jump) const {
  if (pages_.empty() || length < kRequestMin) return false;
  const TensorHops::Range request{offset.value(), offset.value() + length};
  if (is_jump && hops.jump && request.begin <= hops.jump->end && hops.jump->begin <= request.end)
    hops.jump = {std::min(request.begin, hops.jump->begin), std::max(request.end, hops.jump->end)};
  else if (is_jump)
    hops.jump = request;
  const std::optional<uint64_t> expected = hops.at ? behind(*hops.at, hops.reach) : std::nullopt;
  const std::optional<uint64_t> cause = cause_of(expected, request.begin, request.end);
  if (cause && cause != hops.at && hops.jump) {
    move(hops, *cause);
    if (comes_with(cause, *hops.jump)) learn(hops, *hops.jump);
    hops.jump.reset();
    learn(hops, request);
  } else if (cause ? cause == hops.at : hops.kept_to > 0 && is_around(hops, request)) {
    learn(hops, request);
  } else if (cause || hops.kept_to == 0 || !is_jump || !comes_with(expected, request)) {
    if (is_jump) hops.kept_to = hops.named = 0;
    return false;
  }
  return hops.kept_to > 0;
}

std::optional<uint64_t> TensorStarts::next(const TensorHops& hops, uint64_t count_max) const {
  constexpr unsigned kDoublings = 4;
  if (hops.kept_to == 0 || hops.reach == 0) return std::nullopt;
  const uint64_t by_trust = uint64_t{1} << std::min(hops.kept_to, kDoublings);
  if (hops.named >= std::min(by_trust, count_max)) return std::nullopt;
  return behind(hops.named > 0 ? hops.last_named : *hops.at, hops.reach);
}

}  // namespace fpfs
