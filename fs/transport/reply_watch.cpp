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
  Shard& shard = shard_of(unique);
  const MutexLock lock(shard.mutex);
  shard.waiting.emplace(unique, monotonic_ns());
  shard.count();
}

bool ReplyWatch::may_reply(uint64_t unique) {
  Shard& shard = shard_of(unique);
  if (shard.known.load(std::memory_order_relaxed) == 0) return true;
  const MutexLock lock(shard.mutex);
  shard.waiting.erase(unique);
  const bool was_answered = shard.given_up.erase(unique) > 0;
  shard.count();
  return !was_answered;
}

std::vector<uint64_t> ReplyWatch::give_up(uint64_t since_ns) {
  std::vector<uint64_t> overdue;
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    for (auto entry = shard.waiting.begin(); entry != shard.waiting.end();) {
      if (entry->second > since_ns) {
        ++entry;
        continue;
      }
      overdue.push_back(entry->first);
      shard.given_up.insert(entry->first);
      entry = shard.waiting.erase(entry);
    }
  }
  return overdue;
}

bool ReplyWatch::give_up_one(uint64_t unique) {
  Shard& shard = shard_of(unique);
  const MutexLock lock(shard.mutex);
  shard.waiting.erase(unique);
  const bool is_new = shard.given_up.insert(unique).second;
  shard.count();
  return is_new;
}

}  // namespace fpfs
