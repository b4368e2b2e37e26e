#include "fs/transport/reply_watch.h"

#include "engine/base/clock.h"
#include "engine/io/stall_watch.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

bool is_watched(uint32_t opcode) {
  switch (opcode) {
    case wire::kOpcodeForget:  // NOLINT(bugprone-branch-clone): the same answer for two reasons
    case wire::kOpcodeForgetMany:
    case wire::kOpcodeInterrupt:
    case wire::kOpcodeDestroy:
    case wire::kOpcodeInit:
      return false;  // not answered, or not by these rules
    case wire::kOpcodeRead:
    case wire::kOpcodeWrite:
    case wire::kOpcodeFlush:
    case wire::kOpcodeFsync:
      return false;  // the engine gives up; and they may rightly take long
    default:
      return true;
  }
}

}  // namespace

void ReplyWatch::begin(uint64_t unique, uint32_t opcode) {
  if (!is_watched(opcode)) return;
  const MutexLock lock(mutex_);
  waiting_.emplace(unique, monotonic_ns());
  known_.store(waiting_.size() + given_up_.size(), std::memory_order_relaxed);
}

bool ReplyWatch::may_reply(uint64_t unique) {
  if (known_.load(std::memory_order_relaxed) == 0) return true;
  const MutexLock lock(mutex_);
  waiting_.erase(unique);
  const bool was_answered = given_up_.erase(unique) > 0;
  known_.store(waiting_.size() + given_up_.size(), std::memory_order_relaxed);
  return !was_answered;
}

std::vector<uint64_t> ReplyWatch::give_up(uint64_t since_ns) {
  std::vector<uint64_t> overdue;
  const MutexLock lock(mutex_);
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    if (entry->second > since_ns) {
      ++entry;
      continue;
    }
    overdue.push_back(entry->first);
    given_up_.insert(entry->first);
    entry = waiting_.erase(entry);
  }
  return overdue;
}

bool ReplyWatch::give_up_one(uint64_t unique) {
  const MutexLock lock(mutex_);
  waiting_.erase(unique);
  const bool is_new = given_up_.insert(unique).second;
  known_.store(waiting_.size() + given_up_.size(), std::memory_order_relaxed);
  return is_new;
}

}  // namespace fpfs
