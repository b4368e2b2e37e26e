#include "engine/tier/tier_queue.h"

#include <utility>

namespace fpfs {

bool TierQueue::add(TierWaiting file) {
  const auto [found, is_new] = turns_.try_emplace(file.inode, Turn(file.since_ns, next_));
  bytes_ += file.bytes;
  if (is_new) {
    ++next_;
    files_.emplace(found->second, std::move(file));
    return true;
  }
  TierWaiting& waiting = files_.at(found->second);
  bytes_ -= waiting.bytes;
  file.since_ns = waiting.since_ns;
  file.is_missing |= waiting.is_missing;
  waiting = std::move(file);
  return false;
}

std::optional<TierWaiting> TierQueue::take(const std::function<bool(const TierWaiting&)>& may_go) {
  for (auto at = files_.begin(); at != files_.end(); ++at) {
    if (!may_go(at->second)) continue;
    TierWaiting taken = std::move(at->second);
    files_.erase(at);
    turns_.erase(taken.inode);
    bytes_ -= taken.bytes;
    return taken;
  }
  return std::nullopt;
}

}  // namespace fpfs
