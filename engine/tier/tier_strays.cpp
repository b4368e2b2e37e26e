#include "engine/tier/tier_strays.h"

#include <algorithm>
#include <utility>

namespace fpfs {

bool TierStrays::may_replace(const std::string& path, uint64_t inode) const {
  if (!is_on_) return true;
  return strays_.contains(path) ? owner_of(path, inode) == 0 : is_known_;
}

uint64_t TierStrays::owner_of(const std::string& path, uint64_t besides) const {
  const auto [begin, end] = strays_.equal_range(path);
  const auto owner = std::find_if(begin, end, [besides](const auto& stray) { return stray.second.inode != besides; });
  return owner != end ? owner->second.inode : 0;
}

TierStrays::Stray& TierStrays::at(const std::string& path, uint64_t inode) {
  const auto [begin, end] = strays_.equal_range(path);
  const auto found = std::find_if(begin, end, [inode](const auto& stray) { return stray.second.inode == inode; });
  return found != end ? found->second : strays_.emplace(path, Stray{inode, 0})->second;
}

void TierStrays::add(const std::string& path, uint64_t inode, uint64_t scan) {
  if (!is_on_) return;
  saw(inode, scan);
  at(path, inode).seen = scan;
}

void TierStrays::hold(const std::string& path, uint64_t inode) {
  at(path, inode).is_held = true;
}

bool TierStrays::has(uint64_t inode) const {
  return std::ranges::any_of(strays_, [inode](const auto& stray) { return stray.second.inode == inode; });
}

void TierStrays::saw(uint64_t inode, uint64_t scan) {
  for (auto& [path, stray] : strays_)
    if (stray.inode == inode) stray.seen = scan;
}

bool TierStrays::settle(uint64_t inode, const std::string& path) {
  return std::erase_if(strays_, [&](const auto& stray) { return stray.second.inode == inode && stray.first != path; }) >
         0;
}

void TierStrays::forget(uint64_t scan) {
  is_known_ = false;
  known_from_ = scan + 1;
}

bool TierStrays::misses_any(uint64_t scan) const {
  return std::ranges::any_of(strays_, [scan](const auto& stray) { return is_missed(stray, scan); });
}

bool TierStrays::scan_ended(uint64_t scan) {
  if (scan < known_from_) return false;
  const size_t gone = std::erase_if(strays_, [scan](const auto& stray) { return is_missed(stray, scan); });
  return !std::exchange(is_known_, true) || gone > 0;
}

}  // namespace fpfs
