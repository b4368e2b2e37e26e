#include "engine/tier/tier_queue.h"

#include <utility>

namespace fpfs {

TierWaiting merge(const TierWaiting& waiting, TierWaiting newer) {
  newer.since_ns = waiting.since_ns;
  newer.is_missing |= waiting.is_missing;
  newer.comes_back |= waiting.comes_back;
  newer.was_refused |= waiting.was_refused;
  if (newer.sequence == 0) newer.bytes = waiting.bytes;
  if (newer.sequence == 0) newer.sequence = waiting.sequence;
  if (!waiting.from.empty()) newer.from = waiting.from;  // its copy is where it was first
  return newer;
}

TierQueue::Key TierQueue::key_of(const TierWaiting& file) {
  return {file.inode, file.inode == 0 || file.is_link ? file.path : std::string()};
}

bool TierQueue::add(TierWaiting file) {
  const auto [found, is_new] = turns_.try_emplace(key_of(file), Turn(file.since_ns, next_));
  if (is_new) {
    ++next_;
    bytes_ += file.bytes;
    if (!file.from.empty()) from_.insert(file.from);
    files_.emplace(found->second, std::move(file));
    return true;
  }
  TierWaiting& waiting = files_.at(found->second);
  TierWaiting merged = merge(waiting, std::move(file));
  if (waiting.from.empty() && !merged.from.empty()) from_.insert(merged.from);
  bytes_ += merged.bytes;
  bytes_ -= waiting.bytes;
  waiting = std::move(merged);
  return false;
}

TierWaiting TierQueue::remove(std::map<Turn, TierWaiting>::iterator at) {
  TierWaiting taken = std::move(at->second);
  files_.erase(at);
  turns_.erase(key_of(taken));
  if (!taken.from.empty()) from_.erase(from_.find(taken.from));
  bytes_ -= taken.bytes;
  return taken;
}

std::optional<TierWaiting> TierQueue::take(const std::function<bool(const TierWaiting&)>& may_go) {
  for (auto at = files_.begin(); at != files_.end(); ++at)
    if (may_go(at->second)) return remove(at);
  return std::nullopt;
}

std::optional<TierWaiting> TierQueue::take(const TierWaiting& file) {
  const auto found = turns_.find(key_of(file));
  if (found == turns_.end()) return std::nullopt;
  return remove(files_.find(found->second));
}

}  // namespace fpfs
