#include "engine/tier/tier_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {

TierMemory::TierMemory(uint64_t bytes, uint32_t unit, unsigned pieces_max)
    : unit_(unit), pieces_max_(std::max(pieces_max, 1U)) {
  FPFS_CHECK(unit % kIoAlignment == 0 && bytes >= unit, "copies have memory for one chunk");
  memory_bytes_ = round_down(bytes, unit);
  used_.resize(memory_bytes_ / unit);
  largest_ = used_.size() > 1 ? used_.size() / 2 * unit : unit;
  void* const mapped =
      ::mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FPFS_CHECK(mapped != MAP_FAILED, "there are addresses for the memory of copies");
  // As the engine's buffers: user data does not belong into a core dump, and a fork would make pages under O_DIRECT
  // copies of their own.
  static_cast<void>(::madvise(mapped, memory_bytes_, MADV_DONTDUMP));
  static_cast<void>(::madvise(mapped, memory_bytes_, MADV_DONTFORK));
  memory_ = static_cast<std::byte*>(mapped);
}

TierMemory::~TierMemory() {
  ::munmap(memory_, memory_bytes_);
}

size_t TierMemory::find(size_t units) const {
  size_t free = 0;
  for (size_t i = 0; i < used_.size(); ++i) {
    free = used_[i] ? 0 : free + 1;
    if (free == units) return i + 1 - units;
  }
  return used_.size();
}

std::span<std::byte> TierMemory::try_take(size_t bytes) {
  const size_t units = std::max<size_t>(1, (bytes + unit_ - 1) / unit_);
  if (pieces_ == pieces_max_) return {};
  const size_t first = find(units);
  if (first == used_.size()) return {};
  std::fill_n(used_.begin() + static_cast<ptrdiff_t>(first), units, true);
  ++pieces_;
  return {memory_ + first * unit_, units * unit_};
}

void TierMemory::take(size_t bytes, Ready ready) {
  FPFS_CHECK(bytes <= largest_, "nobody asks for more than half of the memory");
  std::span<std::byte> piece;
  {
    const MutexLock lock(mutex_);
    if (!closed_ && waiters_.empty()) piece = try_take(bytes);
    if (!closed_ && piece.empty()) {
      waiters_.push_back({bytes, std::move(ready)});
      return;
    }
  }
  ready(piece);
}

void TierMemory::give_back(std::span<std::byte> piece) {
  std::vector<std::pair<Ready, std::span<std::byte>>> served;
  {
    const MutexLock lock(mutex_);
    const auto first = static_cast<ptrdiff_t>((piece.data() - memory_) / unit_);
    std::fill_n(used_.begin() + first, piece.size() / unit_, false);
    --pieces_;
    while (!waiters_.empty()) {
      const std::span<std::byte> next = try_take(waiters_.front().bytes);
      if (next.empty()) break;
      served.emplace_back(std::move(waiters_.front().ready), next);
      waiters_.pop_front();
    }
  }
  for (const auto& [ready, next] : served) ready(next);
}

void TierMemory::close() {
  std::deque<Waiter> waiters;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    waiters.swap(waiters_);
  }
  for (const Waiter& waiter : waiters) waiter.ready({});
}

void TierMemory::abandon() {
  std::deque<Waiter> waiters;
  const MutexLock lock(mutex_);
  closed_ = true;
  waiters.swap(waiters_);
}

uint64_t TierMemory::in_use() const {
  const MutexLock lock(mutex_);
  return static_cast<uint64_t>(std::count(used_.begin(), used_.end(), true)) * unit_;
}

}  // namespace fpfs
