#include "engine/tier/tier_strays.h"

#include <algorithm>
#include <utility>

namespace fpfs {

bool TierStrays::may_replace(const std::string& path, uint64_t inode) const {
  if (!is_on_) return true;
  const auto stray = strays_.find(path);
  return stray != strays_.end() ? stray->second.inode == inode : is_known_;
}

uint64_t TierStrays::owner_of(const std::string& path) const {
  const auto stray = strays_.find(path);
  return stray != strays_.end() ? stray->second.inode : 0;
}

void TierStrays::add(const std::string& path, uint64_t inode, uint64_t scan) {
  if (!is_on_) return;
  saw(inode, scan);
  strays_[path] = {inode, scan};
}

void TierStrays::hold(const std::string& path, uint64_t inode) {
  strays_[path] = {inode, 0, true};
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
