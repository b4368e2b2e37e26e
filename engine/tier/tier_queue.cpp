#include "engine/tier/tier_queue.h"

#include <algorithm>
#include <utility>

namespace fpfs {

TierSame merge(const TierSame& known, const TierSame& newer) {
  if (newer.until == 0) return known;
  const bool go_on = known.file_id == newer.file_id && known.until >= newer.since && newer.until >= known.since;
  if (!go_on) return newer;
  return {newer.file_id, std::min(known.since, newer.since), std::max(known.until, newer.until)};
}

TierWaiting merge(const TierWaiting& waiting, TierWaiting newer) {
  newer.since_ns = waiting.since_ns;
  newer.is_missing |= waiting.is_missing;
  newer.comes_back |= waiting.comes_back;
  newer.was_refused |= waiting.was_refused;
  newer.is_awaited |= waiting.is_awaited;
  newer.no_room = std::max(newer.no_room, waiting.no_room);
  newer.is_looked_at |= waiting.is_looked_at;
  newer.is_in_way |= waiting.is_in_way;
  newer.was_here |= waiting.was_here;
  newer.same = merge(waiting.same, newer.same);
  if (newer.sequence == 0) newer.bytes = waiting.bytes;
  if (newer.sequence == 0) newer.sequence = waiting.sequence;
  if (!waiting.from.empty()) newer.from = waiting.from;  // its copy is where it was first
  return newer;
}

TierQueue::Key TierQueue::key_of(const TierWaiting& file) {
  return {file.inode, file.inode == 0 || file.is_link ? file.path : std::string()};
}

void TierQueue::insert(TierWaiting file, uint64_t number) {
  const Turn turn{file.no_room, file.is_awaited, file.since_ns, number};
  turns_[key_of(file)] = turn;
  bytes_ += file.bytes;
  if (!file.from.empty()) from_.insert(file.from);
  files_.emplace(turn, std::move(file));
}

bool TierQueue::add(TierWaiting file) {
  const auto found = turns_.find(key_of(file));
  if (found == turns_.end()) {
    insert(std::move(file), next_++);
    return true;
  }
  const uint64_t number = found->second.number;
  const TierWaiting waiting = remove(files_.find(found->second));
  insert(merge(waiting, std::move(file)), number);
  return false;
}

void TierQueue::forget_no_room() {
  Turn first_without;
  first_without.no_room = 1;
  first_without.is_awaited = true;
  for (auto at = files_.lower_bound(first_without); at != files_.end(); at = files_.lower_bound(first_without)) {
    const uint64_t number = at->first.number;
    TierWaiting file = remove(at);
    file.no_room = 0;
    insert(std::move(file), number);
  }
}

bool TierQueue::has_below(const std::string& directory) const {
  const auto next = turns_.upper_bound(Key(0, directory));
  return next != turns_.end() && next->first.first == 0 && next->first.second.starts_with(directory);
}

// The first of each kind: the kinds are few, as those without room take turns.
uint64_t TierQueue::oldest_ns() const {
  uint64_t oldest = 0;
  for (auto at = files_.begin(); at != files_.end();) {
    const Turn& first = at->first;
    oldest = oldest == 0 ? first.since_ns : std::min(oldest, first.since_ns);
    at = files_.upper_bound({first.no_room, first.is_awaited, UINT64_MAX, UINT64_MAX});
  }
  return oldest;
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

const TierWaiting* TierQueue::find(const TierWaiting& file) const {
  const auto found = turns_.find(key_of(file));
  return found == turns_.end() ? nullptr : &files_.find(found->second)->second;
}

}  // namespace fpfs
