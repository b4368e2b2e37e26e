#include "fs/nodes/page_cache.h"

#include <utility>

namespace fpfs {

// Readers trust the pages when nobody could write since they were read and the content was committed then: what a
// failed writer left in the cache must not outlive it. A writer is counted in Inode::writers before it comes here and
// clears cached_commit.
PageCache::Verdict PageCache::judge(const Opening& opening) {
  Inode& inode = opening.inode;
  if (inode.cache.dropping) return Verdict::kWait;
  if (opening.use.may_write) {
    inode.cached_commit.store(0);
    return Verdict::kGoOn;
  }
  const uint64_t commit = opening.commit();
  const bool is_committed = inode.writers.load() == 0 && commit != 0;
  const bool right = is_committed && inode.cached_commit.load() == commit && !opening.must_reach_us;
  if (!right && inode.has_pages.load() && inode.cache.handles == 0) return Verdict::kDrop;
  inode.cached_commit.store(right || (is_committed && !inode.has_pages.load()) ? commit : 0);
  return Verdict::kGoOn;
}

void PageCache::count(const Opening& opening) {
  CacheUse& use = opening.use;
  Inode::CacheState& cache = opening.inode.cache;
  use.goes_past = cache.writers_through == 0 && (use.prefers_past || (use.may_write && cache.readers_past > 0));
  ++cache.handles;
  if (use.may_write && !use.goes_past) ++cache.writers_through;
  if (use.may_read && use.goes_past) ++cache.readers_past;
}

void PageCache::enter(const Opening& opening, const Then& then) {
  Verdict verdict = Verdict::kGoOn;
  {
    const MutexLock lock(mutex_);
    verdict = judge(opening);
    if (verdict == Verdict::kGoOn) {
      count(opening);
    } else {
      opening.inode.cache.dropping = true;
      waiting_[&opening.inode].opens.push_back([this, opening, then] { enter(opening, then); });
    }
  }
  if (verdict == Verdict::kGoOn) then();
  if (verdict == Verdict::kDrop) opening.is_small ? run_drop(opening.inode, {}) : start_drop(opening.inode, {});
}

void PageCache::leave(Inode& inode, const CacheUse& use) {
  std::vector<Then> due;
  {
    const MutexLock lock(mutex_);
    --inode.cache.handles;
    if (use.may_write && !use.goes_past) --inode.cache.writers_through;
    if (use.may_read && use.goes_past) --inode.cache.readers_past;
    due = take_due_drops(inode);
  }
  if (!due.empty()) start_drop(inode, std::move(due));
}

void PageCache::drop_read_beside(Inode& inode) {
  inode.drops.fetch_add(1);
  inode.has_pages.store(false);
  invalidate_(inodes_.node(inode));
  inode.drops.fetch_sub(1);
}

void PageCache::drop(Inode& inode, Then then) {
  inodes_.hold(inode);
  std::vector<Then> due;
  {
    const MutexLock lock(mutex_);
    waiting_[&inode].drops.push_back(std::move(then));
    due = take_due_drops(inode);
  }
  if (!due.empty()) start_drop(inode, std::move(due));
}

// The drops that can begin now, all as one: it is counted as begun.
std::vector<PageCache::Then> PageCache::take_due_drops(Inode& inode) {
  const auto waiting = waiting_.find(&inode);
  if (waiting == waiting_.end() || inode.cache.dropping || inode.cache.writers_through > 0) return {};
  std::vector<Then> due = std::exchange(waiting->second.drops, {});
  inode.cache.dropping = !due.empty();
  return due;
}

void PageCache::start_drop(Inode& inode, std::vector<Then> then) {
  run_in_background_([this, &inode, then = std::move(then)] { run_drop(inode, then); });
}

void PageCache::run_drop(Inode& inode, const std::vector<Then>& then) {
  inode.has_pages.store(false);  // before they go: a READ that comes meanwhile says that there are some again
  invalidate_(inodes_.node(inode));
  std::vector<Then> opens, due;
  {
    const MutexLock lock(mutex_);
    inode.cache.dropping = false;
    const auto waiting = waiting_.find(&inode);
    if (waiting != waiting_.end()) {
      opens = std::move(waiting->second.opens);
      waiting->second.opens.clear();
      due = take_due_drops(inode);
      if (waiting->second.opens.empty() && waiting->second.drops.empty()) waiting_.erase(waiting);
    }
  }
  if (!due.empty()) start_drop(inode, std::move(due));
  for (const Then& open : opens) open();  // they look once more
  // Each drop has held the node.
  for (const Then& dropped : then) {
    dropped();
    inodes_.forget(inodes_.node(inode), 1);
  }
}

}  // namespace fpfs
