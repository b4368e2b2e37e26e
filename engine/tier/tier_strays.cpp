#include "engine/tier/tier_strays.h"

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

bool TierStrays::scan_ended(uint64_t scan) {
  if (scan < known_from_) return false;
  const size_t gone = std::erase_if(strays_, [scan](const auto& stray) { return stray.second.seen < scan; });
  return !std::exchange(is_known_, true) || gone > 0;
}

}  // namespace fpfs
