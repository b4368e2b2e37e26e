#include "fs/transport/reply_watch.h"

#include "engine/base/clock.h"
#include "engine/io/stall_watch.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

bool is_watched(uint32_t opcode) {
  switch (opcode) {
    case wire::kOpcodeDestroy:  // NOLINT(bugprone-branch-clone): the same answer for two reasons
    case wire::kOpcodeInit:
      return false;  // not by these rules
    case wire::kOpcodeRead:
    case wire::kOpcodeWrite:
    case wire::kOpcodeFlush:
    case wire::kOpcodeFsync:
      return false;  // the engine gives up; and they may rightly take long
    default:
      return wire::is_answered(opcode);
  }
}

}  // namespace

bool ReplyWatch::Slot::take(uint64_t number) {
  uint64_t expected = number;
  if (unique.load(std::memory_order_acquire) != number) return false;
  if (!unique.compare_exchange_strong(expected, kTaken, std::memory_order_acq_rel, std::memory_order_acquire))
    return false;
  began_ns.store(0, std::memory_order_relaxed);  // nobody sees it beside the next one's number
  unique.store(kFree, std::memory_order_release);
  return true;
}

void ReplyWatch::begin(const wire::RequestFacts& request) {
  if (!is_watched(request.opcode)) return;
  const uint64_t unique = request.unique;
  Slot& slot = slots_->of(unique);
  uint64_t expected = Slot::kFree;
  if (slot.unique.compare_exchange_strong(expected, unique, std::memory_order_acq_rel, std::memory_order_relaxed)) {
    slot.names.store(request.names);
    slot.began_ns.store(monotonic_ns(), std::memory_order_release);
    return;
  }
  const MutexLock lock(mutex_);
  if (others_.try_emplace(unique, Other{monotonic_ns(), request.names}).second)
    known(unique).fetch_add(1, std::memory_order_relaxed);
}

bool ReplyWatch::may_reply(uint64_t unique) {
  if (unique == 0) return true;  // something the kernel is told without having asked
  if (slots_->of(unique).take(unique)) return true;
  // Whoever gave it up, and so took it from the slot, had counted it.
  if (known(unique).load(std::memory_order_relaxed) == 0) return true;
  const MutexLock lock(mutex_);
  (void)stop_waiting_locked(unique);
  return !forget_locked(unique);
}

// Whether it was waited for, and its slot had another.
bool ReplyWatch::stop_waiting_locked(uint64_t unique) {
  if (others_.erase(unique) == 0) return false;
  known(unique).fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void ReplyWatch::give_up_locked(uint64_t unique, const wire::Names& names) {
  if (!given_up_.emplace(unique, names).second) return;
  known(unique).fetch_add(1, std::memory_order_relaxed);
  caught_.begin(names);
}

// Whether it was given up.
bool ReplyWatch::forget_locked(uint64_t unique) {
  const auto entry = given_up_.find(unique);
  if (entry == given_up_.end()) return false;
  known(unique).fetch_sub(1, std::memory_order_relaxed);
  caught_.end(entry->second);
  given_up_.erase(entry);
  return true;
}

std::vector<uint64_t> ReplyWatch::give_up(uint64_t since_ns) {
  std::vector<uint64_t> overdue;
  const MutexLock lock(mutex_);
  for (Slot& slot : *slots_) {
    const uint64_t unique = slot.unique.load(std::memory_order_acquire);
    const uint64_t began = slot.began_ns.load(std::memory_order_acquire);
    if (unique == Slot::kFree || unique == Slot::kTaken || began == 0 || began > since_ns) continue;
    give_up_locked(unique, slot.names.load());
    if (slot.take(unique))
      overdue.push_back(unique);
    else
      (void)forget_locked(unique);  // answered just now
  }
  for (auto entry = others_.begin(); entry != others_.end();) {
    if (entry->second.began_ns > since_ns) {
      ++entry;
      continue;
    }
    overdue.push_back(entry->first);
    give_up_locked(entry->first, entry->second.names);
    known(entry->first).fetch_sub(1, std::memory_order_relaxed);
    entry = others_.erase(entry);
  }
  return overdue;
}

bool ReplyWatch::give_up_one(const wire::RequestFacts& request) {
  if (!wire::is_answered(request.opcode)) return false;
  const uint64_t unique = request.unique;
  const MutexLock lock(mutex_);
  if (given_up_.contains(unique)) return false;
  give_up_locked(unique, request.names);
  const bool was_waiting = slots_->of(unique).take(unique) || stop_waiting_locked(unique);
  if (was_waiting || !is_watched(request.opcode)) return true;
  (void)forget_locked(unique);
  return false;
}

void ReplyWatch::had_answer(uint64_t unique) {
  const MutexLock lock(mutex_);
  (void)forget_locked(unique);
}

}  // namespace fpfs
